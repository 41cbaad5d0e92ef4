// Instructions as text that an assembler turns back into the same bytes, in the syntax of LLVM's AMDGPU
// assembler.
#include "text.hpp"

#include <cstring>
#include <tuple>

#include "modifiers.hpp"
#include "vmem_address.hpp"

namespace emu {
namespace {

std::string format(const char* pattern, long long value) {
  char out[40];
  std::snprintf(out, sizeof(out), pattern, value);
  return out;
}
std::string hex(u64 value) { return format("0x%llx", static_cast<long long>(value)); }
std::string decimal(i64 value) { return std::to_string(value); }

std::string range(const char* file, u32 first, u32 count) {
  if (count <= 1)
    return file + decimal(first);
  return std::string(file) + "[" + decimal(first) + ":" + decimal(first + count - 1) + "]";
}

// Codes 102.. name special registers; a pair has the plain name, its halves end in _lo and _hi.
std::string scalar_name(u32 code, u32 count) {
  if (code < 102)
    return range("s", code, count);
  if (code >= kTrapTemp && code < kM0)
    return range("ttmp", code - kTrapTemp, count);
  if (code == kM0)
    return "m0";
  std::string name = code < kXnackMask ? "flat_scratch"
                     : code < kVccLo   ? "xnack_mask"
                     : code < kM0      ? "vcc"
                                       : "exec";
  return count == 2 ? name : name + (code & 1 ? "_hi" : "_lo");
}

bool is_wide(Type t) { return t == Type::F64 || t == Type::B64; }

constexpr const char* kApertures[] = {"src_shared_base", "src_shared_limit", "src_private_base",
                                      "src_private_limit"};

std::string constant_name(const Operand& op, Type type) {
  constexpr const char* kFloats[] = {"0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0"};
  if (op.code <= 192)
    return decimal(op.code - 128);
  if (op.code <= 208)
    return decimal(192 - op.code);
  if (op.code <= 238)
    return kApertures[op.code - 235];
  if (op.code < 248)
    return kFloats[op.code - 240];
  if (op.code == 248)
    return is_wide(type) ? "0.15915494309189532" : "0.15915494";
  return hex(type == Type::F64 ? op.value >> 32 : op.value & 0xffffffffu);
}

std::string name_of(const Operand& op, Type type = Type::B32) {
  switch (op.kind) {
  case Kind::None:
    return "off";
  case Kind::Vector:
    return op.index >= kAccBase ? range("a", op.index - kAccBase, op.count) : range("v", op.index, op.count);
  case Kind::Scalar:
    return scalar_name(op.index, op.count);
  case Kind::Scc:
    return "src_scc";
  case Kind::VccZero:
    return "src_vccz";
  case Kind::ExecZero:
    return "src_execz";
  default:
    return constant_name(op, type);
  }
}

// A source with its sign and extension modifiers. A negated number would read as another number.
std::string source_name(const Operand& op, Type type) {
  std::string s = name_of(op, type);
  if (op.sign_extend)
    s = "sext(" + s + ")";
  if (op.absolute)
    s = "|" + s + "|";
  if (!op.negate)
    return s;
  return op.kind == Kind::Constant && !op.absolute ? "neg(" + s + ")" : "-" + s;
}

// The f32/f16 mixes use op_sel_hi as a type and neg_hi as a magnitude.
bool is_mixed(const Inst& i) { return std::strncmp(i.info->mnemonic, "v_fma_mix", 9) == 0; }
bool is_setreg(const Inst& i) { return std::strncmp(i.info->mnemonic, "s_setreg", 8) == 0; }
// ds_read2_b32, ds_write2st64_b64 and the like.
bool has_two_offsets(const Inst& i) {
  return std::strstr(i.info->mnemonic, "2st64_") || std::strstr(i.info->mnemonic, "d2_") ||
         std::strstr(i.info->mnemonic, "e2_") || std::strstr(i.info->mnemonic, "g2_");
}

struct Line {
  std::string out;
  const char* separator = " ";
  void add(const std::string& s) {
    out += separator + s;
    separator = ", ";
  }
  void word(const std::string& s) { out += " " + s; }
  void word_if(bool on, const char* s) {
    if (on)
      word(s);
  }
  // "name:[1,0,1]" of the low `count` bits.
  void bits(const char* name, u32 value, int count) {
    std::string s = std::string(name) + ":[";
    for (int k = 0; k < count; ++k)
      s += std::string(k ? "," : "") + (value >> k & 1 ? "1" : "0");
    word(s + "]");
  }
};

int sources_of(const Inst& i) {
  int n = 0;
  while (n < kSources && i.src[n].kind != Kind::None)
    ++n;
  return n;
}

// ---- Vector instructions
// ------------------------------------------------------------------------------------------

const char* suffix_of(Form f) {
  switch (f) {
  case Form::E32:
    return "_e32";
  case Form::E64:
    return "_e64";
  case Form::Sdwa:
    return "_sdwa";
  case Form::Dpp:
    return "_dpp";
  default:
    return "";
  }
}

void output_modifiers(const Inst& i, Line& l) { l.word_if(has(i, Modifiers::kClamp), "clamp"); }

const char* select_name(Select s) {
  constexpr const char* kNames[] = {"DWORD", "BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1"};
  return kNames[static_cast<int>(s)];
}

void sdwa_selects(const Inst& i, Line& l) {
  constexpr const char* kUnused[] = {"UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"};
  if (has(i, Modifiers::kSdwa)) {
    l.word(std::string("dst_sel:") + select_name(static_cast<Select>(field(i, Modifiers::kDstSelShift, 3))));
    l.word(std::string("dst_unused:") + kUnused[field(i, Modifiers::kDstUnusedShift, 2)]);
  }
  l.word(std::string("src0_sel:") + select_name(i.src[0].select));
  if (i.src[1].kind != Kind::None)
    l.word(std::string("src1_sel:") + select_name(i.src[1].select));
}

std::string dpp_control(u32 c) {
  if (c <= 0xff) {
    std::string s = "quad_perm:[";
    for (int k = 0; k < 4; ++k)
      s += (k ? "," : "") + decimal(c >> 2 * k & 3);
    return s + "]";
  }
  std::string n = decimal(c & 15);
  switch (c & ~15u) {
  case 0x100:
    return "row_shl:" + n;
  case 0x110:
    return "row_shr:" + n;
  case 0x120:
    return "row_ror:" + n;
  case 0x150:
    return "row_newbcast:" + n;
  }
  constexpr const char* kWave[] = {"wave_shl:1", "wave_rol:1", "wave_shr:1", "wave_ror:1"};
  constexpr const char* kRow[] = {"row_mirror", "row_half_mirror", "row_bcast:15", "row_bcast:31"};
  return c < 0x140 ? kWave[c >> 2 & 3] : kRow[c & 3];
}

void dpp_modifiers(const Inst& i, Line& l) {
  l.word(dpp_control(i.dpp.control));
  l.word("row_mask:" + hex(i.dpp.row_mask));
  l.word("bank_mask:" + hex(i.dpp.bank_mask));
  l.word_if(i.dpp.bound_control, "bound_ctrl:0");
}

// The operand that VOP2 and VOP3 leave out: an accumulator that is the destination.
bool is_implied(const Inst& i, int k) {
  return k == 2 && i.info->format == Format::Vop2 && i.info->src[2] != Type::Mask &&
         i.src[2].kind == Kind::Vector && i.src[2].index == i.dst.index;
}

void vop3_selects(const Inst& i, Line& l) {
  u32 bits = i.op_sel;
  if (!bits)
    return;
  bool parts = std::strstr(i.info->mnemonic, "_sr_") || std::strstr(i.info->mnemonic, "scalef32_pk_fp4");
  int n = parts ? 3 : sources_of(i); // a destination byte has bits of its own
  l.bits("op_sel", (bits & ((1u << n) - 1)) | (bits >> 3 & 1) << n, n + 1);
}

void vector_line(const Inst& i, Line& l) {
  constexpr int kPlain[] = {0, 1, 2, 3}, kLiteralInside[] = {0, 2, 1, 3};
  bool inside = std::strncmp(i.info->mnemonic, "v_fmamk", 7) == 0;
  const int (&order)[4] = inside ? kLiteralInside : kPlain;
  bool single = inside || std::strncmp(i.info->mnemonic, "v_fmaak", 7) == 0;
  if (!single)
    l.out += suffix_of(i.form);
  if (i.dst.kind != Kind::None)
    l.add(name_of(i.dst));
  if (i.dst2.kind != Kind::None)
    l.add(name_of(i.dst2));
  for (int k = 0; k < 4; ++k)
    if (i.src[order[k]].kind != Kind::None && !is_implied(i, k))
      l.add(source_name(i.src[order[k]], i.info->src[order[k]]));
  if (i.form == Form::E64 || i.form == Form::Plain) {
    if (std::strncmp(i.info->mnemonic, "v_bitop3", 8) == 0)
      l.word("bitop3:" + hex(i.simm));
    vop3_selects(i, l);
  }
  output_modifiers(i, l);
  if (i.form == Form::Sdwa)
    sdwa_selects(i, l);
  if (i.form == Form::Dpp)
    dpp_modifiers(i, l);
}

u32 low_signs(const Inst& i) {
  u32 bits = 0;
  for (int k = 0; k < 3; ++k)
    bits |= u32{i.src[k].negate} << k;
  return bits;
}

void packed_line(const Inst& i, Line& l) {
  l.add(name_of(i.dst));
  int n = sources_of(i);
  u32 all = (1u << n) - 1, op_sel = field(i, Modifiers::kOpSelShift, 3) & all;
  bool mixed = is_mixed(i), move = std::strncmp(i.info->mnemonic, "v_accvgpr", 9) == 0;
  for (int k = 0; k < n; ++k) {
    Operand plain = i.src[k];
    if (mixed)
      plain.absolute = i.modifiers >> Modifiers::kNegHiShift >> k & 1;
    else
      plain.negate = false;
    l.add(source_name(plain, i.info->src[k]));
  }
  if (move)
    return;
  u32 op_sel_hi = field(i, Modifiers::kOpSelHiShift, 3) & all, neg_hi = field(i, Modifiers::kNegHiShift, 3);
  if (op_sel)
    l.bits("op_sel", op_sel, n);
  if (op_sel_hi != (mixed ? 0 : all))
    l.bits("op_sel_hi", op_sel_hi, n);
  if (!mixed && low_signs(i))
    l.bits("neg_lo", low_signs(i), n);
  if (!mixed && neg_hi)
    l.bits("neg_hi", neg_hi, n);
  output_modifiers(i, l);
}

void matrix_line(const Inst& i, Line& l) {
  l.add(name_of(i.dst));
  for (const Operand& source : i.src)
    if (source.kind != Kind::None)
      l.add(name_of(source, Type::F32));
  if (i.op_sel & 3)
    l.bits("op_sel", i.op_sel & 3u, 3);
  if (i.op_sel >> 2)
    l.bits("op_sel_hi", i.op_sel >> 2, 3);
  for (auto [name, shift, bits] : {std::tuple{"cbsz:", Modifiers::kCbszShift, 3u},
                                   {"abid:", Modifiers::kAbidShift, 4u},
                                   {"blgp:", Modifiers::kBlgpShift, 3u}})
    if (u32 value = field(i, shift, bits))
      l.word(name + decimal(value));
}

// ---- Memory
// -------------------------------------------------------------------------------------------------------

void cache_bits(const Inst& i, Line& l) {
  l.word_if(has(i, Modifiers::kSc0), "sc0");
  l.word_if(has(i, Modifiers::kNt), "nt");
  l.word_if(has(i, Modifiers::kSc1), "sc1");
}
void offset_word(const Inst& i, Line& l) {
  if (i.offset)
    l.word("offset:" + decimal(i.offset));
}

void ds_line(const Inst& i, Line& l) {
  if (i.dst.kind != Kind::None)
    l.add(name_of(i.dst));
  for (int k = 0; k < 3; ++k)
    if (i.src[k].kind != Kind::None)
      l.add(name_of(i.src[k]));
  if (!has_two_offsets(i))
    return offset_word(i, l);
  if (i.offset & 0xff)
    l.word("offset0:" + decimal(i.offset & 0xff));
  if (i.offset >> 8)
    l.word("offset1:" + decimal(i.offset >> 8));
}

// Loads name the destination first, stores the address first; a missing address or base reads "off".
void flat_line(const Inst& i, Line& l) {
  u32 segment = i.info->opcode / kSegment;
  if (i.dst.kind != Kind::None)
    l.add(name_of(i.dst));
  l.add(name_of(i.src[0]));
  if (i.src[1].kind != Kind::None)
    l.add(name_of(i.src[1]));
  if (segment)
    l.add(name_of(i.src[2]));
  offset_word(i, l);
  cache_bits(i, l);
}

void buffer_line(const Inst& i, Line& l) {
  if (i.src[2].kind == Kind::None)
    return cache_bits(i, l); // cache control
  if (i.src[1].kind != Kind::None)
    l.add(name_of(i.src[1])); // of an atomic that returns, also the destination
  else if (i.dst.kind != Kind::None)
    l.add(name_of(i.dst));
  l.add(name_of(i.src[0]));
  l.add(name_of(i.src[2]));
  l.add(name_of(i.src[3]));
  l.word_if(has(i, Modifiers::kIdxen), "idxen");
  l.word_if(has(i, Modifiers::kOffen), "offen");
  offset_word(i, l);
  cache_bits(i, l);
  l.word_if(has(i, Modifiers::kLds), "lds");
}

void smem_line(const Inst& i, Line& l) {
  if (i.dst.kind != Kind::None)
    l.add(name_of(i.dst));
  if (i.src[0].kind == Kind::None)
    return;
  l.add(name_of(i.src[0]));
  bool in_register = i.src[1].kind != Kind::None;
  std::string number = (i.offset < 0 ? "-" : "") + hex(static_cast<u64>(i.offset < 0 ? -i.offset : i.offset));
  l.add(in_register ? name_of(i.src[1]) : number);
  if (in_register && has(i, Modifiers::kImmediate))
    l.word("offset:" + number);
  l.word_if(has(i, Modifiers::kSc0), "glc");
}

// ---- Scalar
// -------------------------------------------------------------------------------------------------------

std::string wait_counts(u32 simm) {
  u32 vm = (simm & 15) | (simm >> 14 & 3) << 4, exp = simm >> 4 & 7, lgkm = simm >> 8 & 15;
  std::string s;
  for (auto [name, value, none] :
       {std::tuple{"vmcnt(", vm, 63u}, {"expcnt(", exp, 7u}, {"lgkmcnt(", lgkm, 15u}})
    if (value != none)
      s += (s.empty() ? "" : " ") + (name + decimal(value)) + ")";
  bool spare = simm & 0x3080; // bits that belong to no counter, or no counter at all: only the number tells
  return spare || s.empty() ? hex(simm) : s;
}

void sopp_line(const Inst& i, Line& l) {
  std::string name = i.info->mnemonic;
  bool bare = name == "s_barrier" || name == "s_endpgm" || name == "s_wakeup" || name == "s_icache_inv" ||
              name == "s_ttracedata" || name == "s_endpgm_saved";
  if (bare && i.simm == 0)
    return;
  if (name == "s_waitcnt")
    return l.add(wait_counts(i.simm));
  l.add(decimal(i.simm & 0xffff));
}

void scalar_line(const Inst& i, Line& l) {
  if (i.dst.kind != Kind::None && !is_setreg(i))
    l.add(name_of(i.dst));
  bool sopk = i.info->format == Format::Sopk;
  if (is_setreg(i))
    l.add(hex(i.simm & 0xffff));
  for (int k = 0; k < 2; ++k)
    if (i.src[k].kind != Kind::None)
      l.add(name_of(i.src[k], i.info->src[k]));
  if (sopk && !is_setreg(i))
    l.add(hex(i.simm & 0xffff));
}

} // namespace

std::string text_of(const Inst& i) {
  Line l{i.info->mnemonic};
  switch (i.info->format) {
  case Format::Sopp:
    sopp_line(i, l);
    break;
  case Format::Smem:
    smem_line(i, l);
    break;
  case Format::Ds:
    ds_line(i, l);
    break;
  case Format::Flat:
    flat_line(i, l);
    break;
  case Format::Mubuf:
    buffer_line(i, l);
    break;
  case Format::Mfma:
    matrix_line(i, l);
    break;
  case Format::Vop3p:
    packed_line(i, l);
    break;
  case Format::Vop1:
  case Format::Vop2:
  case Format::Vopc:
  case Format::Vop3:
    vector_line(i, l);
    break;
  default:
    scalar_line(i, l);
  }
  return l.out;
}

} // namespace emu
