// The attention kernel: prefill and decode, dense, ragged and paged, over a list of work items.
//
// Variants are shapes of a block's work: the plain one has many query rows, `decode` few rows and waves side
// by side over the keys of a tile. Everything else is decided at run time.
#include "attention/attend.hpp"

namespace rocade {

constexpr int kDim = ROCADE_HEAD_DIM;
// Waves of 32 lanes have 255 registers a lane: queries rest in shared memory.
constexpr bool kWide = kWave == 64;
// Keys of a tile when two pairs of tiles of keys and values fill LDS.
constexpr int kMostKeys = kTarget.lds_bytes / (4 * kDim * static_cast<int>(sizeof(Element)));

#if ROCADE_VARIANT_DECODE
// Small tiles, several of them on their way, so that memory is never idle. Narrow waves: several blocks share
// a multiprocessor instead.
constexpr int kWaves = !kWide ? 4 : kMostKeys > 64 ? 2 : 1;
constexpr int kKeys = kWide ? 32 * kWaves : 64;
using Work = Shape<Element, kDim, 16, 1, 1, kWaves, kKeys, kWide ? 4 : 2, !kWide>;
#else
constexpr int kRowTiles = !kWide && kDim <= 128 ? 2 : 1;
constexpr int kWaves = kWide && kDim <= 128 ? 8 : 4;
constexpr int kKeys = kMostKeys < 64 || (!kWide && kDim > 128) ? 32 : 64;
using Work = Shape<Element, kDim, kWide ? 32 : 16, kRowTiles, kWaves, 1, kKeys, kWide ? 3 : 2, !kWide>;
#endif

} // namespace rocade

ROCADE_KERNEL(rocade::Work::kThreads, rocade::Work::kBlocks)
rocade_attention(ROCADE_ARGUMENT rocade::AttentionArgs args) {
  ROCADE_BLOCK_LDS(lds, rocade::Work::kLdsBytes);
  rocade::let_next_start();
  rocade::attend_items<rocade::Work>(ROCADE_CONSTANT_ARGUMENT(rocade::AttentionArgs, args), lds);
}
