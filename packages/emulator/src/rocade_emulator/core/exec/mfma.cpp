// Matrix instructions: the rows of isa/mfma.inc. EXEC is ignored.
// Layouts: lane = i + M * (k / kp) for A (kp = K * M / 64 consecutive k in a lane's registers, per block), likewise B
// with n; D has row 8 * (r / 4) + 4 * (lane / 32) + r % 4 for 32 x 32 and 4 * (lane / 16) + r for 16 x 16.
// The sum runs in f32 over ascending k; hardware orders and rounds otherwise, so compare with a tolerance.
#include <cstring>

#include "fp8.hpp"
#include "rows.hpp"

namespace emu {
namespace {

template <class T>
struct Element {  // how an A or B element sits in registers and what it multiplies as
  using Number = f32;
  static constexpr int bits = 32;
  static f32 load(u32 x) { return std::bit_cast<f32>(x); }
};
template <> struct Element<f16> {
  using Number = f32;
  static constexpr int bits = 16;
  static f32 load(u32 x) { return half_to_float(static_cast<u16>(x)); }
};
template <> struct Element<bf16> {
  using Number = f32;
  static constexpr int bits = 16;
  static f32 load(u32 x) { return bfloat_to_float(static_cast<u16>(x)); }
};
template <> struct Element<fp8> {
  using Number = f32;
  static constexpr int bits = 8;
  static f32 load(u32 x) { return fp8_to_float(x); }
};
template <> struct Element<bf8> {
  using Number = f32;
  static constexpr int bits = 8;
  static f32 load(u32 x) { return bf8_to_float(x); }
};
template <> struct Element<i8> {
  using Number = i32;
  static constexpr int bits = 8;
  static i32 load(u32 x) { return static_cast<i8>(x); }
};

// Elements a lane holds of an operand: `kSide` is M or N.
template <int kSide, int K, int kBlocks>
inline constexpr int kPerLane = K * kSide * kBlocks / kLanes;
template <int kSide, int K, int kBlocks, class T>
inline constexpr int kOperandRegs = (kPerLane<kSide, K, kBlocks> * Element<T>::bits + 31) / 32;

// Unpack A or B into [block][k][side], so that the inner loop of the product runs over contiguous columns.
template <int kSide, int K, int kBlocks, class T>
void unpack(const Wave& w, const Operand& op, typename Element<T>::Number (*out)[K][kSide]) {
  constexpr int kBits = Element<T>::bits, kInRegister = 32 / kBits;
  constexpr int kPerGroup = kPerLane<kSide, K, kBlocks>;
  constexpr u32 kMask = kBits == 32 ? ~0u : (1u << (kBits & 31)) - 1;
  for (int e = 0; e < kPerGroup; ++e) {
    const u32* row = w.v[op.index + e / kInRegister];
    int shift = e % kInRegister * kBits;
    for (int lane = 0; lane < kLanes; ++lane) {
      int side = lane % kSide, group = lane / kSide;
      int block = kBlocks == 1 ? 0 : group, k = kBlocks == 1 ? group * kPerGroup + e : e;
      out[block][k][side] = Element<T>::load(row[lane] >> shift & kMask);
    }
  }
}

// Where register r of a lane sits in C and D.
template <int M, int N, int kBlocks>
struct Place {
  static constexpr int regs = M * N * kBlocks / kLanes;
  static constexpr int kGroups = kLanes / N;  // lanes of one column
  static int block(int r, int lane) {
    if constexpr (M == 4) return lane / 4;
    else return r / (M * N / kLanes);
    (void)lane;
  }
  static int row(int r, int lane) {
    if constexpr (M == 4) return r;
    int in_block = r % (M * N / kLanes);
    return in_block / 4 * 4 * kGroups + lane / N * 4 + in_block % 4;
  }
};

template <int M, int N, int K, int kBlocks, class A, class B, class D>
void run_mfma(Wave& w, const Inst& i) {
  using P = Place<M, N, kBlocks>;
  alignas(64) typename Element<A>::Number a[kBlocks][K][M];
  alignas(64) typename Element<B>::Number b[kBlocks][K][N];
  unpack<M, K, kBlocks, A>(w, i.src[0], a);
  unpack<N, K, kBlocks, B>(w, i.src[1], b);
  alignas(64) D sum[P::regs][kLanes];
  for (int r = 0; r < P::regs; ++r) {
    if (i.src[2].kind == Kind::Vector)
      std::memcpy(sum[r], w.v[i.src[2].index + r], sizeof(Row));
    else
      for (int l = 0; l < kLanes; ++l) sum[r][l] = std::bit_cast<D>(read_scalar(w, i.src[2]));
  }
  for (int r = 0; r < P::regs; ++r)
    for (int first = 0; first < kLanes; first += N) {
      int block = P::block(r, first), row = P::row(r, first);
      D* out = sum[r] + first;
      for (int k = 0; k < K; ++k) {
        auto scale = a[block][k][row];
        for (int n = 0; n < N; ++n) out[n] += scale * b[block][k][n];
      }
    }
  for (int r = 0; r < P::regs; ++r) std::memcpy(w.v[i.dst.index + r], sum[r], sizeof(Row));
}

Type type_of_regs(int regs) {
  switch (regs) {
    case 1: return Type::B32;
    case 2: return Type::B64;
    case 4: return Type::B128;
    case 8: return Type::B256;
    case 16: return Type::B512;
    default: return Type::B1024;
  }
}

template <int M, int N, int K, int kBlocks, class A, class B, class D>
OpInfo row(const char* name, int code, Target target, int clocks) {
  constexpr int kRegs = Place<M, N, kBlocks>::regs;
  Type wide = type_of_regs(kRegs);
  OpInfo info = special_row(name, Format::Mfma, Unit::Mfma, code, target, &run_mfma<M, N, K, kBlocks, A, B, D>, wide,
                     {type_of_regs(kOperandRegs<M, K, kBlocks, A>), type_of_regs(kOperandRegs<N, K, kBlocks, B>), wide});
  info.cycles = static_cast<u8>(clocks);
  return info;
}

template <int M, int K>
Exec of_types(u32 a, u32 b) {
  constexpr Exec kExec[2][2] = {{&run_mfma<M, M, K, 1, fp8, fp8, f32>, &run_mfma<M, M, K, 1, fp8, bf8, f32>},
                                {&run_mfma<M, M, K, 1, bf8, fp8, f32>, &run_mfma<M, M, K, 1, bf8, bf8, f32>}};
  return a < 2 && b < 2 ? kExec[a][b] : nullptr;
}

}  // namespace

Exec f8f6f4_exec(const OpInfo& info, u32 a, u32 b) {
  return info.opcode == 45 ? of_types<16, 128>(a, b) : of_types<32, 64>(a, b);
}

std::vector<OpInfo> mfma_rows() {
  return {
#define MFMA(code, name, M, N, K, blocks, A, B, D, clocks) row<M, N, K, blocks, A, B, D>(#name, code, Target::Both, clocks),
#define MFMA950(code, name, M, N, K, blocks, A, B, D, clocks) row<M, N, K, blocks, A, B, D>(#name, code, Target::Gfx950, clocks),
#include "isa/mfma.inc"
#undef MFMA
#undef MFMA950
  };
}

}  // namespace emu
