// The instruction layer: one vector of fp32 lanes and what each instruction set does with it. No algorithm
// here.
//
// Compiled once per instruction set, each in its own namespace. Nothing from the C++ library may be used in
// these files: its inline functions would be emitted with one set's instructions and linked into another's
// code.
#pragma once
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define RK_ISA_NAMESPACE avx512
#define RK_LANES 16
#define RK_REGISTERS 32
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define RK_ISA_NAMESPACE avx2
#define RK_LANES 8
#define RK_REGISTERS 16
#else
#define RK_ISA_NAMESPACE plain
#define RK_LANES 4
#define RK_REGISTERS 16
#endif
#if RK_LANES > 4
#include <immintrin.h>
#endif

#define RK_INLINE inline __attribute__((always_inline))
#define RK_FLATTEN __attribute__((flatten))

namespace rk::RK_ISA_NAMESPACE {

constexpr int kLanes = RK_LANES;
constexpr int kRegisters = RK_REGISTERS;

typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef float VecUnaligned __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
typedef int32_t IntVec __attribute__((vector_size(4 * kLanes)));
typedef uint32_t UintVec __attribute__((vector_size(4 * kLanes)));
typedef uint16_t HalfBits __attribute__((vector_size(2 * kLanes)));
typedef uint16_t HalfBitsUnaligned __attribute__((vector_size(2 * kLanes), aligned(2), may_alias));

RK_INLINE Vec splat(float x) { return x - Vec{}; }
RK_INLINE Vec load(const float* p) { return *reinterpret_cast<const VecUnaligned*>(p); }
RK_INLINE void store(float* p, Vec x) { *reinterpret_cast<VecUnaligned*>(p) = x; }
RK_INLINE Vec max(Vec a, Vec b) { return a > b ? a : b; }

// a * b + c, rounded once where an instruction does that.
RK_INLINE Vec fused(Vec a, Vec b, Vec c) {
#if RK_LANES == 16
  return reinterpret_cast<Vec>(
      _mm512_fmadd_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#elif RK_LANES == 8
  return reinterpret_cast<Vec>(
      _mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#else
  return a * b + c;
#endif
}
RK_INLINE float fused(float a, float b, float c) {
#if RK_LANES > 4
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

RK_INLINE Vec lane_numbers() {
  Vec lanes;
  for (int i = 0; i < kLanes; ++i)
    lanes[i] = static_cast<float>(i);
  return lanes;
}

// Storage types. `load` widens kLanes elements to fp32, exactly.
struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

RK_INLINE HalfBits load_half_bits(const void* p) { return *static_cast<const HalfBitsUnaligned*>(p); }

RK_INLINE Vec load(const Bf16* p) {
  // g++ 12 widens in two halves unless told the instruction.
#if RK_LANES == 16
  const __m512i wide =
      _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return reinterpret_cast<Vec>(reinterpret_cast<UintVec>(wide) << 16);
#elif RK_LANES == 8
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return reinterpret_cast<Vec>(reinterpret_cast<UintVec>(wide) << 16);
#else
  return reinterpret_cast<Vec>(__builtin_convertvector(load_half_bits(p), UintVec) << 16);
#endif
}

RK_INLINE Vec load(const Fp16* p) {
#if RK_LANES == 16
  return reinterpret_cast<Vec>(
      _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#elif RK_LANES == 8
  return reinterpret_cast<Vec>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
  // Exponent and mantissa move into place; one multiplication rebiases both normal and subnormal numbers.
  const UintVec half = __builtin_convertvector(load_half_bits(p), UintVec);
  const UintVec magnitude = (half & 0x7fffu) << 13;
  const Vec rebiased = reinterpret_cast<Vec>(magnitude) * 0x1p112f;
  const UintVec not_finite = reinterpret_cast<UintVec>(magnitude >= 0x0f800000u) & 0x7f800000u;
  return reinterpret_cast<Vec>(reinterpret_cast<UintVec>(rebiased) | not_finite | (half & 0x8000u) << 16);
#endif
}

// The first n < kLanes elements, zero in the other lanes; reads nothing beyond them.
template <class T> RK_INLINE Vec load_first(const T* p, int n) {
  T padded[kLanes] = {};
  memcpy(padded, p, static_cast<size_t>(n) * sizeof(T));
  return load(padded);
}

RK_INLINE float to_float(float x) { return x; }
template <class T> RK_INLINE float to_float(T x) {
  T padded[kLanes] = {x};
  return load(padded)[0];
}

RK_INLINE void store(Bf16* p, Vec x) {
  const UintVec bits = reinterpret_cast<UintVec>(x);
  const UintVec nearest_even = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const UintVec nan = reinterpret_cast<UintVec>(x != x);
  const HalfBits half = __builtin_convertvector((nan & 0x7fc0u) | (~nan & nearest_even), HalfBits);
  memcpy(p, &half, sizeof half);
}

#if RK_LANES == 4
// Round to nearest even without hardware help; subnormal results come from adding a power of two that aligns
// them.
RK_INLINE uint16_t half_from_float(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  const uint32_t sign = bits >> 16 & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u)
    return static_cast<uint16_t>(sign | 0x7e00u);
  if (bits >= 0x477ff000u)
    return static_cast<uint16_t>(sign | 0x7c00u);
  if (bits < 0x38800000u) {
    float aligned;
    memcpy(&aligned, &bits, 4);
    aligned += 0.5f;
    memcpy(&bits, &aligned, 4);
    return static_cast<uint16_t>(sign | (bits - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((bits + 0xc8000fffu + (bits >> 13 & 1u)) >> 13));
}
#endif

RK_INLINE void store(Fp16* p, Vec x) {
#if RK_LANES == 16
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_maskz_cvtps_ph(0xffff, reinterpret_cast<__m512>(x), 0));
#elif RK_LANES == 8
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(reinterpret_cast<__m256>(x), 0));
#else
  for (int i = 0; i < kLanes; ++i)
    p[i].bits = half_from_float(x[i]);
#endif
}

template <class T> RK_INLINE void store_first(T* p, Vec x, int n) {
  T padded[kLanes];
  store(padded, x);
  memcpy(p, padded, static_cast<size_t>(n) * sizeof(T));
}

// Brings the line at p towards the second-level cache; any address is allowed.
RK_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }

// ---- across lanes
// ---------------------------------------------------------------------------------------------------

template <int N> struct Constant {
  static constexpr int value = N;
};
template <int... I> struct Indices {};
template <int N, int... I> struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <int... I> struct MakeIndices<0, I...> {
  using type = Indices<I...>;
};

// Lane i of `fold<Block>(a, b)` adds two lanes half a Block apart: of a in the low half of each Block, of b
// in the high.
constexpr int fold_lane(int lane, int block, int offset) {
  const int half = block / 2;
  const int within = lane % block;
  return (within < half ? 0 : kLanes) + lane / block * block + within % half + offset;
}

template <int Block, int... I> RK_INLINE Vec fold(Vec a, Vec b, Indices<I...>) {
  return __builtin_shufflevector(a, b, fold_lane(I, Block, 0)...) +
         __builtin_shufflevector(a, b, fold_lane(I, Block, Block / 2)...);
}

// Lane i of the result is the sum of all lanes of v[i].
template <int Count = kLanes> RK_INLINE Vec sum_each(Vec* v) {
  if constexpr (Count == 1) {
    return v[0];
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < Count / 2; ++i)
      v[i] = fold<Count>(v[i], v[i + Count / 2], typename MakeIndices<kLanes>::type{});
    return sum_each<Count / 2>(v);
  }
}

// Lanes of a and b, swapped where they lie off the diagonal of 2 x 2 blocks of `Size` lanes.
template <int Size, int... I> RK_INLINE void swap_blocks(Vec& a, Vec& b, Indices<I...>) {
  const Vec low = __builtin_shufflevector(a, b, (I % (2 * Size) < Size ? I : kLanes + I - Size)...);
  b = __builtin_shufflevector(a, b, (I % (2 * Size) < Size ? I + Size : kLanes + I)...);
  a = low;
}

// Lane j of v[i] becomes lane i of v[j].
template <int Size = kLanes / 2> RK_INLINE void transpose(Vec* v) {
  if constexpr (Size > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i)
      if ((i & Size) == 0)
        swap_blocks<Size>(v[i], v[i + Size], typename MakeIndices<kLanes>::type{});
    transpose<Size / 2>(v);
  }
}

// Lane i of the result is lane i ^ Distance.
template <int Distance, int... I> RK_INLINE Vec exchange(Vec x, Indices<I...>) {
  return __builtin_shufflevector(x, x, (I ^ Distance)...);
}

template <int Distance = kLanes / 2> RK_INLINE float max_lane(Vec x) {
  if constexpr (Distance == 0)
    return x[0];
  else
    return max_lane<Distance / 2>(max(x, exchange<Distance>(x, typename MakeIndices<kLanes>::type{})));
}

template <int Distance = kLanes / 2> RK_INLINE float sum_lanes(Vec x) {
  if constexpr (Distance == 0)
    return x[0];
  else
    return sum_lanes<Distance / 2>(x + exchange<Distance>(x, typename MakeIndices<kLanes>::type{}));
}

// ---- functions
// ------------------------------------------------------------------------------------------------------

// 2^x to 1.02 ulp (measured) for x <= 127; 0 below 2^-126 and for -inf; NaN stays NaN.
RK_INLINE Vec exp2(Vec x) {
  constexpr float kRound = 0x1.8p23f; // adding it leaves the nearest integer in the low mantissa bits
  const Vec in_range = x < -126.0f ? splat(-126.0f) : x;
  const Vec shifted = in_range + kRound;
  const Vec f = in_range - (shifted - kRound); // [-0.5, 0.5]
  // Least-squares fit of 2^f on Chebyshev nodes of [-0.5, 0.5]: relative error 2.2e-9 before rounding.
  Vec p = splat(1.53707048e-4f);
  p = p * f + 1.33998483e-3f;
  p = p * f + 9.61837325e-3f;
  p = p * f + 5.55032904e-2f;
  p = p * f + 2.40226485e-1f;
  p = p * f + 6.93147206e-1f;
  p = p * f + 1.0f;
  const UintVec exponent = (reinterpret_cast<UintVec>(shifted) + 127u) << 23;
  const Vec scaled = p * reinterpret_cast<Vec>(exponent);
  return x < -126.0f ? Vec{} : scaled;
}

// tanh to about 2e-7 relative: a soft cap multiplies it, and an absolute error would grow with the cap.
RK_INLINE Vec tanh(Vec x) {
  constexpr float kTwoLog2E = 2.8853900817779268f;
  constexpr float kSaturated = 10.0f; // tanh(10) rounds to 1
  constexpr float kNearZero = 0.625f; // from here on 1 - 2 / (e^2x + 1) loses no more than a bit
  const Vec limited = x > kSaturated ? splat(kSaturated) : x < -kSaturated ? splat(-kSaturated) : x;
  const Vec far = 1.0f - 2.0f / (exp2(limited * kTwoLog2E) + 1.0f);
  // Least-squares fit of (tanh(x) / x - 1) / x^2 on Chebyshev nodes: relative error of tanh 5e-9.
  const Vec square = limited * limited;
  Vec p = splat(-5.71896276e-3f);
  p = p * square + 2.06531249e-2f;
  p = p * square - 5.37446588e-2f;
  p = p * square + 1.33315131e-1f;
  p = p * square - 3.33332866e-1f;
  const Vec near = limited + limited * square * p;
  return square < kNearZero * kNearZero ? near : far; // NaN compares false and is NaN in `far`
}

} // namespace rk::RK_ISA_NAMESPACE
