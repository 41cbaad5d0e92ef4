// Matrix instructions of NVIDIA GPUs from sm_80 on: one struct each. See mma.hpp for what is made of them.
#pragma once
#include "types.hpp"

namespace rocade {

/// mma.sync.m16n8k16: result[m][n] += sum over k of a[m][k] * b[n][k], fp32 results.
/// With g = lane / 4, t = lane % 4: a holds [g][2t, 2t+1], [g+8][same], [g][2t+8, 2t+9], [g+8][same]; b holds
/// [n=g][2t, 2t+1, 2t+8, 2t+9]; the result [g][2t, 2t+1], [g+8][2t, 2t+1].
template <class T> struct Mma16x8x16;

#define ROCADE_MMA(T, name)                                                                                  \
  template <> struct Mma16x8x16<T> {                                                                         \
    static ROCADE_DEVICE Vector<float, 4> run(Vector<T, 8> a, Vector<T, 4> b, Vector<float, 4> c) {          \
      const Vector<u32, 4> x = bits_as<Vector<u32, 4>>(a);                                                   \
      const Vector<u32, 2> y = bits_as<Vector<u32, 2>>(b);                                                   \
      float d0 = c[0], d1 = c[1], d2 = c[2], d3 = c[3];                                                      \
      asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, " \
          "{%8, %9}, {%0, %1, %2, %3};"                                                                      \
          : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)                                                           \
          : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));                               \
      return Vector<float, 4>{d0, d1, d2, d3};                                                               \
    }                                                                                                        \
  }

ROCADE_MMA(fp16, "f16");
ROCADE_MMA(bf16, "bf16");
#undef ROCADE_MMA

} // namespace rocade
