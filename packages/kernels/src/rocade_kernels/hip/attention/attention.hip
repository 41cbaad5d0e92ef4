// The attention kernel: prefill and decode, dense, ragged and paged, over a list of work items.
//
// Variants are shapes of a block's work: the plain one has many query rows, `decode` few rows and waves side
// by side over the keys of a tile. Everything else is decided at run time.
#include "attention/attend.hpp"

namespace rocade {

constexpr int kDim = ROCADE_HEAD_DIM;
// Keys of a tile when two pairs of tiles of keys and values fill LDS.
constexpr int kMostKeys = kTarget.lds_bytes / (4 * kDim * static_cast<int>(sizeof(Element)));

#if ROCADE_VARIANT_DECODE
constexpr int kWaveKeys = 32;
constexpr int kWaves = kMostKeys > 4 * kWaveKeys ? 4 : kMostKeys >= 2 * kWaveKeys ? 2 : 1;
using Work = Shape<Element, kDim, 16, 1, 1, kWaves, kWaves * kWaveKeys, kWave != 64>;
#elif defined(__AMDGCN__)
constexpr int kWaves = kDim > 128 ? 4 : 8;
using Work = Shape<Element, kDim, 32, 1, kWaves, 1, kMostKeys < 64 ? 32 : 64>;
#else
// Queries rest in shared memory: there are 255 registers a thread.
constexpr int kRowTiles = kDim > 128 ? 1 : 2;
using Work = Shape<Element, kDim, 16, kRowTiles, 4, 1, 32 * kRowTiles, true>;
#endif

} // namespace rocade

ROCADE_KERNEL(rocade::Work::kThreads) rocade_attention(ROCADE_ARGUMENT rocade::AttentionArgs args) {
  ROCADE_BLOCK_LDS(lds, rocade::Work::kLdsBytes);
  rocade::attend_items<rocade::Work>(ROCADE_CONSTANT_ARGUMENT(rocade::AttentionArgs, args), lds);
}
