// Which format a word belongs to, and decoding of a whole text section.
#include "decode/decode.hpp"

#include <algorithm>
#include <string_view>

#include "checks/hazards.hpp"
#include "decode/reader.hpp"

namespace emu {
namespace {

using Decoder = void (*)(Reader&);

struct Encoding {
  u32 mask, value;
  Decoder decode;
};

// Longest prefixes first: a word matches the first row whose masked bits agree.
constexpr Encoding kEncodings[] = {
    {0xff800000u, 0xbe800000u, decode_sop1},  {0xff800000u, 0xbf000000u, decode_sopc},
    {0xff800000u, 0xbf800000u, decode_sopp},  {0xff800000u, 0xd3800000u, decode_vop3p},
    {0xfe000000u, 0x7e000000u, decode_vop1},  {0xfe000000u, 0x7c000000u, decode_vopc},
    {0xfc000000u, 0xc0000000u, decode_smem},  {0xfc000000u, 0xd0000000u, decode_vop3},
    {0xfc000000u, 0xd8000000u, decode_ds},    {0xfc000000u, 0xdc000000u, decode_flat},
    {0xfc000000u, 0xe0000000u, decode_mubuf}, {0xf0000000u, 0xb0000000u, decode_sopk},
    {0xc0000000u, 0x80000000u, decode_sop2},  {0x80000000u, 0x00000000u, decode_vop2},
};

Touched sum_of(std::span<const Use> uses) {
  Touched t;
  for (const Use& u : uses)
    if (u.kind == Kind::Scalar)
      (u.write ? t.s_writes : t.s_reads).set(u.index, u.count);
    else
      (u.write ? t.writes : t.reads).set(u.index, u.count);
  return t;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

Undefined undefined_of(const Inst& i) {
  std::string_view name = i.info->mnemonic;
  if (is_one_of(name, {"v_mad_u64_u32", "v_mad_i64_i32", "v_lshl_add_u64", "v_lshlrev_b64"}))
    return Undefined::Upward;
  bool special = i.dst.kind == Kind::Scalar && i.dst.index >= kXnackMask; // VCC, M0, EXEC
  bool plain = i.form != Form::Sdwa && i.form != Form::Dpp && !special && i.src[0].select == Select::Dword;
  bool moves = is_one_of(name, {"v_mov_b32", "v_mov_b64", "s_mov_b32", "s_mov_b64", "v_accvgpr_read_b32",
                                "v_accvgpr_write_b32", "v_accvgpr_mov_b32"});
  return plain && moves ? Undefined::Copied : Undefined::Reported;
}

} // namespace

Inst decode_one(std::span<const u32> text, u32 pc, Target target) {
  Reader r{text, pc, target};
  r.word0 = r.word(0);
  r.inst.pc = pc;
  r.inst.size = 4;
  for (const Encoding& e : kEncodings)
    if ((r.word0 & e.mask) == e.value) {
      e.decode(r);
      r.inst.undefined = undefined_of(r.inst);
      r.inst.touched = sum_of(std::span(r.inst.uses, r.inst.num_uses));
      return r.inst;
    }
  r.fail("no encoding matches");
}

Program decode_text(std::span<const u32> text, Target target, bool strict) {
  Program p;
  p.target = target;
  p.at_dword.assign(text.size(), -1);
  for (u32 pc = 0; pc / 4 < text.size();) {
    try {
      Inst inst = decode_one(text, pc, target);
      p.at_dword[pc / 4] = static_cast<i32>(p.insts.size());
      p.insts.push_back(inst);
      pc += inst.size;
    } catch (const DecodeError& e) {
      if (strict)
        throw;
      p.undecoded.emplace(pc, e.what);
      pc += 4;
    }
  }
  find_hazards(p);
  for (Inst& i : p.insts)
    i.next = p.index_at(i.pc + i.size);
  return p;
}

} // namespace emu
