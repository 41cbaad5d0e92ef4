// Matrix instructions: the rows of isa/mfma.inc. EXEC is ignored.
// Layouts: lane = i + M * (k / kp) for A (kp = K * M / 64 consecutive k in a lane's registers, per block),
// likewise B with n; D has row 8 * (r / 4) + 4 * (lane / 32) + r % 4 for 32 x 32 and 4 * (lane / 16) + r for
// 16 x 16. The sum runs in f32 over ascending k; hardware orders and rounds otherwise, so compare with a
// tolerance.
#include <cstring>

#include "fp8.hpp"
#include "rows.hpp"

namespace emu {
namespace {

// f32 of which the unit looks at 10 bits of fraction, rounded to nearest even.
struct xf32 {};

// How an A or B element sits in registers and the number that it multiplies as. `Decoder` is made once an
// instruction: it holds what the bits' meaning depends on.
template <class T> struct Element {
  using Number = f32;
  static constexpr int bits = 32;
  struct Decoder {
    f32 operator()(u32 x) const { return std::bit_cast<f32>(x); }
  };
};
template <> struct Element<xf32> {
  using Number = f32;
  static constexpr int bits = 32;
  struct Decoder {
    f32 operator()(u32 x) const {
      bool finite = (x & 0x7f800000u) != 0x7f800000u;
      return std::bit_cast<f32>(finite ? (x + 0xfffu + (x >> 13 & 1)) & 0xffffe000u : x);
    }
  };
};
template <> struct Element<f16> {
  using Number = f32;
  static constexpr int bits = 16;
  struct Decoder {
    f32 operator()(u32 x) const { return half_to_float(static_cast<u16>(x)); }
  };
};
template <> struct Element<bf16> {
  using Number = f32;
  static constexpr int bits = 16;
  struct Decoder {
    f32 operator()(u32 x) const { return bfloat_to_float(static_cast<u16>(x)); }
  };
};
template <bool kBf8> struct Element8 {
  using Number = f32;
  static constexpr int bits = 8;
  struct Decoder {
    const f32* table = fp8_table(t_fp8_ocp, kBf8);
    f32 operator()(u32 x) const { return table[x]; }
  };
};
template <> struct Element<fp8> : Element8<false> {};
template <> struct Element<bf8> : Element8<true> {};
template <> struct Element<i8> {
  using Number = u32; // sums wrap
  static constexpr int bits = 8;
  struct Decoder {
    u32 operator()(u32 x) const { return static_cast<u32>(static_cast<i8>(x)); }
  };
};

// Elements a lane holds of an operand: `kSide` is M or N.
template <int kSide, int K, int kBlocks> inline constexpr int kPerLane = K * kSide * kBlocks / kLanes;
template <int kSide, int K, int kBlocks, class T>
inline constexpr int kOperandRegs = (kPerLane<kSide, K, kBlocks> * Element<T>::bits + 31) / 32;

// Unpack A or B into [block][k][side], so that the inner loop of the product runs over contiguous columns.
template <int kSide, int K, int kBlocks, class T>
void unpack(const Wave& w, const Operand& op, typename Element<T>::Number (*out)[K][kSide]) {
  constexpr int kBits = Element<T>::bits, kInRegister = 32 / kBits;
  constexpr int kPerGroup = kPerLane<kSide, K, kBlocks>;
  constexpr u32 kMask = kBits == 32 ? ~0u : (1u << (kBits & 31)) - 1;
  const typename Element<T>::Decoder decode;
  for (int e = 0; e < kPerGroup; ++e) {
    const u32* row = w.v[op.index + e / kInRegister];
    int shift = e % kInRegister * kBits;
    for (int group = 0; group < kLanes / kSide; ++group) {
      int block = kBlocks == 1 ? 0 : group, k = kBlocks == 1 ? group * kPerGroup + e : e;
      for (int side = 0; side < kSide; ++side)
        out[block][k][side] = decode(row[group * kSide + side] >> shift & kMask);
    }
  }
}

// Where register r of a lane sits in C and D.
template <int M, int N, int kBlocks> struct Place {
  static constexpr int regs = M * N * kBlocks / kLanes;
  static constexpr int kGroups = kLanes / N; // lanes of one column
  static int block(int r, int lane) {
    if constexpr (M == 4)
      return lane / 4;
    else
      return r / (M * N / kLanes);
    (void)lane;
  }
  static int row(int r, int lane) {
    if constexpr (M == 4)
      return r;
    int in_block = r % (M * N / kLanes);
    return in_block / 4 * 4 * kGroups + lane / N * 4 + in_block % 4;
  }
};

// Vectors as wide as this variant's registers, for the products; they alias the register file.
#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif
template <class T, int kBytes> struct Vectors {
  typedef T type __attribute__((vector_size(kBytes), may_alias, aligned(4)));
};

// out[r][0..N) += a[k][r] * b[k][0..N) for `kRows` rows, over ascending k, with the sums in host registers.
template <int M, int N, int K, int kRows, class T>
void add_products(const T (*a)[M], const T (*b)[N], T* const* out) {
  constexpr int kBytes = std::min<int>(kVectorBytes, N * sizeof(T)), kInVector = kBytes / sizeof(T);
  constexpr int kVectors = N / kInVector;
  using Vector = typename Vectors<T, kBytes>::type;
  Vector sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = *reinterpret_cast<const Vector*>(out[r] + v * kInVector);
#pragma GCC unroll 1
  for (int k = 0; k < K; ++k)
    for (int v = 0; v < kVectors; ++v) {
      const Vector column = *reinterpret_cast<const Vector*>(b[k] + v * kInVector);
      for (int r = 0; r < kRows; ++r)
        sum[r][v] += a[k][r] * column;
    }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v)
      *reinterpret_cast<Vector*>(out[r] + v * kInVector) = sum[r][v];
}

// Rows whose sums fit the host's registers together; they are neighbours in D, as groups of 4 registers are.
template <int N> inline constexpr int kRowsAtOnce = std::clamp(8 * kVectorBytes / (N * 4), 1, 4);

// C to where D goes, so that the sums can run in place. The two may overlap.
void copy_addend(Wave& w, const Inst& i, int regs) {
  if (i.src[2].kind == Kind::Vector) {
    if (i.src[2].index != i.dst.index)
      std::memmove(w.v[i.dst.index], w.v[i.src[2].index], sizeof(Row) * static_cast<std::size_t>(regs));
    return;
  }
  u32 value = read_scalar(w, i.src[2]);
  for (int r = 0; r < regs; ++r)
    std::fill_n(w.v[i.dst.index + r], kLanes, value);
}

template <int M, int N, int K, int kBlocks, class A, class B> void run_mfma(Wave& w, const Inst& i) {
  using P = Place<M, N, kBlocks>;
  using Number = typename Element<A>::Number;
  alignas(64) Number a[kBlocks][K][M];
  alignas(64) Number b[kBlocks][K][N];
  unpack<M, K, kBlocks, A>(w, i.src[0], a);
  unpack<N, K, kBlocks, B>(w, i.src[1], b);
  copy_addend(w, i, P::regs);
  constexpr int kRows = kRowsAtOnce<N>;
  static_assert(P::regs % kRows == 0);
  for (int r = 0; r < P::regs; r += kRows)
    for (int first = 0; first < kLanes; first += N) {
      Number* out[kRows];
      for (int k = 0; k < kRows; ++k)
        out[k] = reinterpret_cast<Number*>(w.v[i.dst.index + r + k] + first);
      int block = P::block(r, first), row = P::row(r, first);
      add_products<M, N, K, kRows>(reinterpret_cast<const Number(*)[M]>(&a[block][0][row]), b[block], out);
    }
}

f64 element_f64(const Wave& w, int reg, int lane) {
  return std::bit_cast<f64>(u64{w.v[reg + 1][lane]} << 32 | w.v[reg][lane]);
}

// A, B: lane = index + M * block + 16 * k. D: element r of a lane is row 4 * r + lane / 16 (M = 16), or row
// lane / 16 of block lane / 4 % 4 (M = 4).
template <int M, int kBlocks> void run_mfma_f64(Wave& w, const Inst& i) {
  constexpr int K = 4, kElements = M * M * kBlocks / kLanes;
  f64 out[kElements][kLanes];
  for (int r = 0; r < kElements; ++r)
    for (int l = 0; l < kLanes; ++l) {
      int row = M == 16 ? 4 * r + l / 16 : l / 16, block = l / M % kBlocks, column = l % M;
      f64 sum = i.src[2].kind == Kind::Vector ? element_f64(w, i.src[2].index + 2 * r, l)
                                              : std::bit_cast<f64>(read_scalar64(w, i.src[2]));
      for (int k = 0; k < K; ++k)
        sum = std::fma(element_f64(w, i.src[0].index, row + M * block + 16 * k),
                       element_f64(w, i.src[1].index, column + M * block + 16 * k), sum);
      out[r][l] = sum;
    }
  for (int r = 0; r < kElements; ++r)
    for (int l = 0; l < kLanes; ++l) {
      u64 bits = std::bit_cast<u64>(out[r][l]);
      w.v[i.dst.index + 2 * r][l] = static_cast<u32>(bits);
      w.v[i.dst.index + 2 * r + 1][l] = static_cast<u32>(bits >> 32);
    }
}

Type type_of_regs(int regs) {
  switch (regs) {
  case 1:
    return Type::B32;
  case 2:
    return Type::B64;
  case 4:
    return Type::B128;
  case 8:
    return Type::B256;
  case 16:
    return Type::B512;
  default:
    return Type::B1024;
  }
}

template <int M, int N, int K, int kBlocks, class A, class B, class D>
OpInfo row(const char* name, int code, Target target, int clocks) {
  constexpr int kRegs = Place<M, N, kBlocks>::regs;
  Type wide = type_of_regs(kRegs);
  OpInfo info = special_row(
      name, Format::Mfma, Unit::Mfma, code, target, &run_mfma<M, N, K, kBlocks, A, B>, wide,
      {type_of_regs(kOperandRegs<M, K, kBlocks, A>), type_of_regs(kOperandRegs<N, K, kBlocks, B>), wide});
  info.cycles = info.cycles_gfx950 = static_cast<u8>(clocks);
  return info;
}

template <int M, int kBlocks> OpInfo row_f64(const char* name, int code, int clocks, int clocks_gfx950) {
  Type wide = kBlocks == 1 ? Type::B256 : Type::B64;
  OpInfo info = special_row(name, Format::Mfma, Unit::Mfma, code, Target::Both, &run_mfma_f64<M, kBlocks>,
                            wide, {Type::F64, Type::F64, wide});
  info.cycles = static_cast<u8>(clocks);
  info.cycles_gfx950 = static_cast<u8>(clocks_gfx950);
  return info;
}

} // namespace

std::vector<OpInfo> mfma_rows() {
  return {
#define MFMA942(code, name, M, N, K, blocks, A, B, D, clocks)                                                \
  row<M, N, K, blocks, A, B, D>(#name, code, Target::Gfx942, clocks),
#define MFMA_F64(code, name, M, blocks, clocks, clocks_gfx950)                                               \
  row_f64<M, blocks>(#name, code, clocks, clocks_gfx950),
#define MFMA(code, name, M, N, K, blocks, A, B, D, clocks)                                                   \
  row<M, N, K, blocks, A, B, D>(#name, code, Target::Both, clocks),
#define MFMA950(code, name, M, N, K, blocks, A, B, D, clocks)                                                \
  row<M, N, K, blocks, A, B, D>(#name, code, Target::Gfx950, clocks),
#include "isa/mfma.inc"
#undef MFMA
#undef MFMA950
#undef MFMA942
#undef MFMA_F64
  };
}

} // namespace emu
