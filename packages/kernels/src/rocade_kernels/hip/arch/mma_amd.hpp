// Matrix instructions of AMD's CDNA GPUs: one struct each. See mma.hpp for the layouts and what is made of
// them.
#pragma once
#include "types.hpp"

namespace rocade {

/// v_mfma_f32_<rows>x<columns>x<depth>: result[m][n] += sum over k of a[m][k] * b[n][k].
/// With G = 64 / columns groups of lanes: a lane holds a[lane % rows][depth / G * (lane / rows) + j], b
/// alike, and result[4 * G * (r / 4) + 4 * (lane / columns) + r % 4][lane % columns] in register r.
template <class T, int kRows, int kDepth> struct Mfma;

#define ROCADE_MFMA(T, rows, depth, results, Raw, builtin)                                                   \
  template <> struct Mfma<T, rows, depth> {                                                                  \
    using Operand = Vector<T, rows * depth / 64>;                                                            \
    using Result = Vector<float, results>;                                                                   \
    static ROCADE_DEVICE Result run(Operand a, Operand b, Result c) {                                        \
      using Bits = Vector<Raw, rows * depth / 64>;                                                           \
      return __builtin_amdgcn_mfma_f32_##builtin(bits_as<Bits>(a), bits_as<Bits>(b), c, 0, 0, 0);            \
    }                                                                                                        \
  }

#if defined(__gfx950__)
ROCADE_MFMA(fp16, 32, 16, 16, fp16, 32x32x16_f16);
ROCADE_MFMA(bf16, 32, 16, 16, bf16, 32x32x16_bf16);
ROCADE_MFMA(fp16, 16, 32, 4, fp16, 16x16x32_f16);
ROCADE_MFMA(bf16, 16, 32, 4, bf16, 16x16x32_bf16);
#else
ROCADE_MFMA(fp16, 32, 8, 16, fp16, 32x32x8f16);
ROCADE_MFMA(bf16, 32, 8, 16, short, 32x32x8bf16_1k);
ROCADE_MFMA(fp16, 16, 16, 4, fp16, 16x16x16f16);
ROCADE_MFMA(bf16, 16, 16, 4, short, 16x16x16bf16_1k);
#endif
#undef ROCADE_MFMA

} // namespace rocade
