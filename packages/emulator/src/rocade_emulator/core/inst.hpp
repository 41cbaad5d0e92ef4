// A decoded instruction. Decoding happens once per program, so that execution is a call through `exec`.
#pragma once

#include "bits.hpp"
#include "types.hpp"

namespace emu {

struct Wave;
struct Inst;

// The meaning of an instruction: reads its operands from the wave, writes its results. It checks nothing
// itself: what it reads and writes is declared in `Inst::uses`, and `checks/` looks at that before the call.
using Exec = void (*)(Wave&, const Inst&);

enum class Format : u8 {
  Sop1,
  Sop2,
  Sopk,
  Sopc,
  Sopp,
  Smem,
  Vop1,
  Vop2,
  Vopc,
  Vop3,
  Vop3p,
  Mfma,
  Ds,
  Flat,
  Mubuf
};

// Which unit issues it, for counters, wait counts and hazards.
enum class Unit : u8 { Salu, Smem, Valu, Trans, Mfma, Lds, Vmem, Branch, Message, Other };

enum class Kind : u8 { None, Vector, Scalar, Constant, Scc, VccZero, ExecZero, LdsDirect };

// Which encoding of a vector instruction it is. Plain: its format has only one.
enum class Form : u8 { Plain, E32, E64, Sdwa, Dpp };

// How a source or destination selects part of a register (SDWA, op_sel).
enum class Select : u8 { Dword, Byte0, Byte1, Byte2, Byte3, Word0, Word1 };

struct Operand {
  Kind kind = Kind::None;
  u8 count = 1;  // registers of 32 bits
  u16 index = 0; // Vector: 0..511; Scalar: operand code
  u64 value = 0; // Constant: already widened for the type the instruction reads
  u16 code = 0;  // as encoded, where a constant keeps its spelling
  Select select = Select::Dword;
  bool negate = false;
  bool absolute = false;
  bool sign_extend = false; // SDWA
};

// One register range that the instruction touches, for the checks.
struct Use {
  Kind kind = Kind::None;
  bool write = false;
  bool whole_wave = false; // ignores EXEC (MFMA, readlane and the like)
  u8 count = 0;
  u16 index = 0;
};

// DPP control of a VOP1/VOP2/VOPC, as encoded.
struct Dpp {
  bool on = false;
  u16 control = 0;
  u8 row_mask = 0xf;
  u8 bank_mask = 0xf;
  bool bound_control = false;
};

// What an operand means to an instruction: decides its register count and how an inline constant is widened.
// Half: 16 bits of a result register; the other half is kept.
enum class Type : u8 {
  None,
  B32,
  F32,
  B16,
  F16,
  BF16,
  B64,
  F64,
  PkB16,
  PkF16,
  PkF32,
  Mask,
  B96,
  B128,
  B256,
  B512,
  B1024,
  B192,
  Half
};

// Which targets have an instruction.
enum class Target : u8 { Both, Gfx942, Gfx950 };

inline constexpr int kSources = 5;

struct OpInfo {
  const char* mnemonic;
  Format format;
  Unit unit;
  u16 opcode; // as encoded in its format
  Target target;
  Exec exec;
  Type dst, dst2;
  Type src[kSources];
  u8 cycles = 0, cycles_gfx950 = 0; // Mfma: clocks a wave occupies the matrix unit
};

// Its part in the rules of checks/hazards.inc: a bit for each rule that it begins, or that it may break.
struct Hazards {
  u64 makes = 0, meets = 0;
  u8 states = 1; // wait states that pass while it issues
  u8 passes = 0; // matrix instructions: of 4 clocks each
};

// All registers of an instruction's uses as sets: in the usual case a check is a comparison of a few words.
struct Touched {
  BitSet<kVectorRegs> reads, writes;
  BitSet<kScalarRegs> s_reads, s_writes;
};

// What the checks make of a source that was never written. Compilers copy values of which only a part is
// defined, and leave high dwords undefined where only the low dword of a result is used.
enum class Undefined : u8 {
  Reported,
  Upward, // the low dword of the result does not depend on high dwords of sources: those pass into the high
          // one
  Copied, // each register of the result is as defined as that of the source
};

struct Inst {
  const OpInfo* info = nullptr;
  Exec exec = nullptr;
  Operand dst, dst2; // dst2: VOP3B carry out, sdst of VOPC and the like
  Operand src[kSources];
  Use uses[6];
  u8 num_uses = 0;
  Touched touched; // the same as sets, for the checks
  Form form = Form::Plain;
  u8 op_sel = 0; // VOP3, as encoded: a bit per source, bit 3 the destination
  u8 size = 0;   // bytes, 4 to 12
  u8 cycles = 0; // of the matrix unit
  Undefined undefined = Undefined::Reported;
  u32 pc = 0;     // byte offset in the program's text
  i32 next = -1;  // index of the instruction behind it; -1 where none was decoded
  i64 offset = 0; // memory offset, or branch target as a byte offset in the text
  u32 simm = 0;   // SOPP/SOPK immediate
  u32 modifiers =
      0; // format-specific bits: clamp, op_sel, op_sel_hi, neg_hi, cbsz/abid/blgp, sc0/sc1/nt, lds
  Dpp dpp;
  Hazards hazards;
};

} // namespace emu
