// Storage types and how they become fp32 and back: fp16, bf16, fp32, and packs of 16 bytes of them.
#pragma once
#include "arch/device.hpp"

namespace rocade {

using fp16 = _Float16;
using bf16 = __bf16;
using fp32 = float;

#if ROCADE_DTYPE_FP16
using Element = fp16;
#elif ROCADE_DTYPE_BF16
using Element = bf16;
#elif ROCADE_DTYPE_FP32
using Element = fp32;
#endif

typedef u32 Words4 __attribute__((ext_vector_type(4)));
static_assert(sizeof(Words4) == 16);

template <class T, int N> struct VectorOf {
  typedef T type __attribute__((ext_vector_type(N)));
};
/// N elements in registers.
template <class T, int N> using Vector = typename VectorOf<T, N>::type;

/// Elements of T that one 16-byte access moves.
template <class T> inline constexpr int kPack = 16 / sizeof(T);

/// To fp32, exactly.
template <class T, int N> ROCADE_DEVICE Vector<float, N> widen(Vector<T, N> x) {
  return __builtin_convertvector(x, Vector<float, N>);
}

/// To T, rounded to nearest even. NaN stays NaN, and what is too large becomes infinite.
template <class T, int N> ROCADE_DEVICE Vector<T, N> narrow(Vector<float, N> x) {
  return __builtin_convertvector(x, Vector<T, N>);
}

/// `x`, or zeros. Without a branch, behind which a compiler would move the load of x: it must not wait for
/// the condition. x may be NaN.
template <class V> ROCADE_DEVICE V kept_if(bool keep, V x) {
  typedef Vector<u32, sizeof(V) / 4> Words;
  return __builtin_bit_cast(V, __builtin_bit_cast(Words, x) & (keep ? ~0u : 0u));
}

/// Loads N elements. `kAligned`: in accesses as wide as the vector, else element by element, for memory that
/// is aligned to its elements only. What is loaded is read once, so caches are left to others.
template <class T, int N, bool kAligned> ROCADE_DEVICE Vector<T, N> load(const T* from) {
  if constexpr (kAligned) {
    return load_streaming(reinterpret_cast<const Vector<T, N>*>(from));
  } else {
    Vector<T, N> x;
#pragma unroll
    for (u32 e = 0; e < N; ++e)
      x[e] = from[opaque(e)];
    return x;
  }
}

template <class T, int N, bool kAligned> ROCADE_DEVICE void store(T* to, Vector<T, N> x) {
  if constexpr (kAligned) {
    *reinterpret_cast<Vector<T, N>*>(to) = x;
  } else {
#pragma unroll
    for (u32 e = 0; e < N; ++e)
      to[opaque(e)] = x[e];
  }
}

} // namespace rocade
