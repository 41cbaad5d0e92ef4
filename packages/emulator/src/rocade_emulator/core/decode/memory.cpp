// Decoders of DS, FLAT (with GLOBAL and SCRATCH) and MUBUF.
#include <cstring>

#include "decode/reader.hpp"
#include "vmem_address.hpp"

namespace emu {
namespace {

// Widths that a MUBUF load can send to LDS.
bool loads_to_lds(const Reader& r) {
  u32 opcode = r.inst.info->opcode;
  bool narrow = opcode >= 16 && opcode <= 20, wide = opcode == 22 || opcode == 23;
  return narrow || (wide && r.target == Target::Gfx950);
}

bool keeps_half(const Reader& r) { return std::strstr(r.inst.info->mnemonic, "_d16") != nullptr; }

void data_registers(Reader& r, u32 dst, u32 data, bool acc, bool has_destination) {
  const OpInfo& info = *r.inst.info;
  u32 base = acc ? kAccBase : 0;
  if (info.src[1] != Type::None) {
    r.inst.src[1] = r.vector(data + base, info.src[1]);
    r.use(r.inst.src[1], false);
  }
  if (has_destination) {
    r.inst.dst = r.vector(dst + base, info.dst);
    if (keeps_half(r))
      r.use(r.inst.dst, false);
    r.use(r.inst.dst, true);
  }
}

} // namespace

void decode_ds(Reader& r) {
  r.second_word();
  r.look_up(Format::Ds, r.bits0(17, 8));
  const OpInfo& info = *r.inst.info;
  r.reject(r.bits0(16, 1), "gds");
  bool acc = r.bits0(25, 1);
  r.inst.offset = r.bits0(0, 16);
  r.inst.src[0] = r.vector(r.bits1(0, 8), Type::B32);
  r.use(r.inst.src[0], false);
  if (info.src[2] != Type::None) {
    r.inst.src[2] = r.vector(r.bits1(16, 8) + (acc ? kAccBase : 0), info.src[2]);
    r.use(r.inst.src[2], false);
  }
  data_registers(r, r.bits1(24, 8), r.bits1(8, 8), acc, info.dst != Type::None);
}

void decode_flat(Reader& r) {
  r.second_word();
  u32 segment = r.bits0(14, 2);
  if (segment == 3)
    r.fail("reserved segment");
  r.look_up(Format::Flat, r.bits0(18, 7) + kSegment * segment);
  const OpInfo& info = *r.inst.info;
  bool global = segment == 2, scratch = segment == 1, lds = std::strstr(info.mnemonic, "_lds_");
  r.reject(r.bits0(13, 1) && !scratch, "lds bit");
  i32 offset = static_cast<i32>(r.bits0(0, 13) << 19) >> 19;
  r.inst.offset = segment == 0 ? static_cast<i32>(r.bits0(0, 12)) : offset;
  r.set_modifier(Modifiers::kSc0, r.bits0(16, 1));
  r.set_modifier(Modifiers::kNt, r.bits0(17, 1));
  r.set_modifier(Modifiers::kSc1, r.bits0(25, 1));
  r.set_modifier(Modifiers::kLds, lds);
  u32 saddr = r.bits1(16, 7);
  bool has_scalar = segment != 0 && saddr != 0x7f;
  bool has_vector = !scratch || r.bits0(13, 1);
  if (has_scalar) {
    r.inst.src[2] = r.scalar(saddr, scratch ? Type::B32 : Type::B64);
    r.use(r.inst.src[2], false);
  }
  if (has_vector) {
    bool wide = !has_scalar && !scratch;
    r.inst.src[0] = r.vector(r.bits1(0, 8), wide ? Type::B64 : Type::B32);
    r.use(r.inst.src[0], false);
  }
  if (scratch && !has_scalar && !has_vector)
    r.inst.src[0].kind = Kind::None;
  if (lds)
    r.use_implicit(kM0, 1, false);
  bool atomic = std::strstr(info.mnemonic, "atomic");
  (void)global;
  data_registers(r, r.bits1(24, 8), r.bits1(8, 8), r.bits1(23, 1),
                 info.dst != Type::None && (!atomic || r.bits0(16, 1)));
}

void decode_mubuf(Reader& r) {
  r.second_word();
  r.look_up(Format::Mubuf, r.bits0(18, 7));
  const OpInfo& info = *r.inst.info;
  bool offen = r.bits0(12, 1), idxen = r.bits0(13, 1), lds = r.bits0(16, 1);
  r.inst.offset = r.bits0(0, 12);
  r.set_modifier(Modifiers::kOffen, offen);
  r.set_modifier(Modifiers::kIdxen, idxen);
  r.set_modifier(Modifiers::kSc0, r.bits0(14, 1));
  r.set_modifier(Modifiers::kSc1, r.bits0(15, 1));
  r.set_modifier(Modifiers::kNt, r.bits0(17, 1));
  if (std::strstr(info.mnemonic, "wbl2") || std::strstr(info.mnemonic, "inv"))
    return;
  if (lds && !loads_to_lds(r))
    r.fail("unsupported lds bit");
  r.set_modifier(Modifiers::kLds, lds);
  if (offen || idxen) {
    r.inst.src[0] = r.vector(r.bits1(0, 8), offen && idxen ? Type::B64 : Type::B32);
    r.use(r.inst.src[0], false);
  }
  r.inst.src[2] = r.scalar(r.bits1(16, 5) * 4, Type::B128);
  r.use(r.inst.src[2], false);
  r.inst.src[3] = r.source(r.bits1(24, 8), Type::B32);
  r.use(r.inst.src[3], false);
  if (lds)
    r.use_implicit(kM0, 1, false);
  bool atomic = std::strstr(info.mnemonic, "atomic");
  data_registers(r, r.bits1(8, 8), r.bits1(8, 8), r.bits1(23, 1),
                 !lds && info.dst != Type::None && (!atomic || r.bits0(14, 1)));
}

} // namespace emu
