"""Assembly lines of every operand form that a row of the instruction table may have.

Forms are tried on every row; the assembler decides which of them exist. Only a row's plain form must exist.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tests.emulator.isa_forms_memory import buffer_lines, ds_lines, flat_lines, smem_lines
from tests.emulator.isa_operands import INLINE, LITERAL, SPECIAL, SPECIAL64, Line, Pick, join
from tests.emulator.isa_table import REGISTERS, Row


def lines_of(row: Row) -> list[Line]:
    """Candidates of a row, without repetitions."""
    maker = {
        "sop1": _scalar_lines,
        "sop2": _scalar_lines,
        "sopc": _scalar_lines,
        "sopk": _sopk_lines,
        "sopp": _sopp_lines,
        "smem": smem_lines,
        "vop1": _vector_lines,
        "vop2": _vector_lines,
        "vopc": _vector_lines,
        "vop3": _vop3_lines,
        "vop3p": _packed_lines,
        "mfma": _matrix_lines,
        "ds": ds_lines,
        "flat": flat_lines,
        "mubuf": buffer_lines,
    }[row.format]
    found: dict[str, Line] = {}
    for line in maker(row):
        found.setdefault(line.text, line)  # the first one is the required one
    return list(found.values())


def _scalar_lines(row: Row) -> Iterator[Line]:
    pick = Pick(row)
    dst = pick.scalar(row.dst) if row.width else ""
    plain = [pick.scalar(kind) for kind in row.src]
    yield Line(row, join(row.mnemonic, dst, *plain), True)
    for k, kind in enumerate(row.src):
        for other in (*INLINE, LITERAL, *(SPECIAL64 if REGISTERS[kind] == 2 else SPECIAL)):
            yield Line(row, join(row.mnemonic, dst, *(other if j == k else p for j, p in enumerate(plain))))
    for special in ("vcc", "exec", "ttmp[4:5]") if row.width == 2 else ("vcc_hi", "m0", "exec_lo", "ttmp7"):
        if row.width:
            yield Line(row, join(row.mnemonic, special, *plain))


def _sopk_lines(row: Row) -> Iterator[Line]:
    pick = Pick(row)
    register = pick.scalar("b32")
    for k, value in enumerate(("0x1234", "0xffff", "0x8000", "0")):
        if row.mnemonic.startswith("s_setreg_imm32"):
            yield Line(row, f"{row.mnemonic} {value}, 0x12345678", k == 0)
        elif row.mnemonic.startswith("s_setreg"):
            yield Line(row, f"{row.mnemonic} {value}, {register}", k == 0)
        elif row.mnemonic == "s_call_b64":
            yield Line(row, f"{row.mnemonic} s[4:5], {value}", k == 0)
        else:
            yield Line(row, f"{row.mnemonic} {register}, {value}", k == 0)


def _sopp_lines(row: Row) -> Iterator[Line]:
    if row.mnemonic == "s_waitcnt":
        for text in (
            "vmcnt(0)",
            "lgkmcnt(3)",
            "vmcnt(47) lgkmcnt(0)",
            "expcnt(2)",
            "vmcnt(5) expcnt(1) lgkmcnt(9)",
        ):
            yield Line(row, f"s_waitcnt {text}", True)
        return
    yield Line(row, row.mnemonic, row.mnemonic in ("s_endpgm", "s_barrier", "s_wakeup", "s_icache_inv"))
    for value in ("0", "1", "7", "0x7f", "0xfff0"):
        yield Line(row, f"{row.mnemonic} {value}")


def _is_scalar(row: Row) -> bool:
    return row.mnemonic.startswith(("v_readlane", "v_readfirstlane"))


def _implied(row: Row) -> bool:
    """Whether the last source is the destination and not written."""
    return (
        row.format == "vop2"
        and len(row.src) == 3
        and row.src[2] != "mask"
        and "mk_" not in row.mnemonic
        and ("ak_" not in row.mnemonic)
    )


def _sources(row: Row, pick: Pick) -> list[str]:
    kinds = row.src[:2] if _implied(row) else row.src
    return [pick.scalar(k) if k == "mask" else pick.vector(k) for k in kinds]


def _destination(row: Row, pick: Pick) -> str:
    if not row.width:
        return ""
    return pick.scalar(row.dst) if _is_scalar(row) or row.dst == "mask" else pick.vector(row.dst)


def _vector_lines(row: Row) -> Iterator[Line]:
    pick = Pick(row)
    if row.mnemonic == "v_accvgpr_mov_b32":
        yield Line(row, f"{row.mnemonic} a7, a201", True)
        return
    carry = row.dst2 == "mask"
    short = "vcc" if row.format == "vopc" else _destination(row, pick)
    long = _destination(row, pick)
    sources = _sources(row, pick)
    in_short = ["vcc" if k == "mask" else s for k, s in zip(row.src, sources, strict=False)]
    if row.mnemonic.startswith(("v_fmamk", "v_fmaak")):
        literal = (
            [in_short[0], LITERAL, in_short[1]]
            if "mk_" in row.mnemonic
            else [in_short[0], in_short[1], LITERAL]
        )
        yield Line(row, join(row.mnemonic, short, *literal), True)
        yield Line(row, join(row.mnemonic, short, "1.0", *literal[1:]))
        return
    dst2 = ["vcc"] if carry else []
    yield Line(row, join(f"{row.mnemonic}_e32", short, *dst2, *in_short), True)
    for other in _others(row.src[:1], pick):
        yield Line(row, join(f"{row.mnemonic}_e32", short, *dst2, other, *in_short[1:]))
    long_dst2 = [pick.scalar("mask")] if carry else []
    required = row.mnemonic not in NO_E64
    yield from _long_lines(row, f"{row.mnemonic}_e64", [long, *long_dst2], sources, pick, required)
    yield from _sdwa_lines(row, [short, *dst2], in_short, pick)
    yield from _dpp_lines(row, [short, *dst2], in_short)


# VOP1 and VOP2 rows without a 64-bit form.
NO_E64 = {
    "v_swap_b32",
    "v_readfirstlane_b32",
    "v_pk_fmac_f16",
}


def _others(kinds: tuple[str, ...], pick: Pick) -> tuple[str, ...]:
    if not kinds:
        return ()
    wide = REGISTERS[kinds[0]] == 2
    return (*INLINE, LITERAL, pick.scalar(kinds[0]), *(SPECIAL64 if wide else SPECIAL))


def _long_lines(
    row: Row, mnemonic: str, dst: list[str], sources: list[str], pick: Pick, required: bool
) -> Iterator[Line]:
    yield Line(row, join(mnemonic, *dst, *sources), required)
    for k, kind in enumerate(row.src[: len(sources)]):
        for other in (
            *_others((kind,), pick),
            f"-{sources[k]}",
            f"|{sources[k]}|",
            f"-|{sources[k]}|",
            "-|s9|",
        ):
            yield Line(row, join(mnemonic, *dst, *(other if j == k else s for j, s in enumerate(sources))))
    for modifier in ("clamp", "mul:2", "mul:4", "div:2", "clamp mul:4"):
        yield Line(row, f"{join(mnemonic, *dst, *sources)} {modifier}")
    entries = 4 if "_sr_" in row.mnemonic or "scalef32_pk_fp4" in row.mnemonic else len(sources) + 1
    for bits in itertools.product("01", repeat=entries):
        yield Line(row, f"{join(mnemonic, *dst, *sources)} op_sel:[{','.join(bits)}]")
    if row.format == "vopc" or row.dst == "mask":
        yield Line(row, join(mnemonic, "vcc", *sources))


def _sdwa_lines(row: Row, dst: list[str], sources: list[str], pick: Pick) -> Iterator[Line]:
    mnemonic = f"{row.mnemonic}_sdwa"
    parts = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
    base = join(mnemonic, *dst, *sources)
    two = len(row.src) > 1
    out = "" if row.format == "vopc" else " dst_sel:{} dst_unused:{}"
    for k, part in enumerate(parts):
        unused = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")[k % 3]
        other = f" src1_sel:{parts[(k + 3) % 7]}" if two else ""
        yield Line(row, f"{base}{out.format(parts[(k + 5) % 7], unused)} src0_sel:{part}{other}")
    tail = f"{out.format('WORD_1', 'UNUSED_PRESERVE')} src0_sel:WORD_1{' src1_sel:BYTE_2' if two else ''}"
    for modifier in ("clamp", "mul:2", "clamp div:2"):
        yield Line(row, f"{base} {modifier}{tail}")
    for pattern in ("sext({})", "-{}", "|{}|", "-|{}|"):
        for k in range(min(len(sources), 2)):
            changed = [pattern.format(s) if j == k else s for j, s in enumerate(sources)]
            yield Line(row, join(mnemonic, *dst, *changed) + tail)
    for k in range(min(len(sources), 2)):
        changed = [pick.scalar(row.src[0]) if j == k else s for j, s in enumerate(sources)]
        yield Line(row, join(mnemonic, *dst, *changed) + tail)
    if row.format == "vopc":
        yield Line(row, join(mnemonic, "s[6:7]", *sources) + tail)


DPP = (
    *(
        "quad_perm:[3,0,1,2]",
        "row_shl:1",
        "row_shr:15",
        "row_ror:7",
        "wave_shl:1",
        "wave_shr:1",
        "wave_rol:1",
    ),
    *("wave_ror:1", "row_mirror", "row_half_mirror", "row_bcast:15", "row_bcast:31", "row_newbcast:5"),
)


def _dpp_lines(row: Row, dst: list[str], sources: list[str]) -> Iterator[Line]:
    mnemonic = f"{row.mnemonic}_dpp"
    base = join(mnemonic, *dst, *sources)
    for k, control in enumerate(DPP):
        masks = ("row_mask:0xf bank_mask:0xf", "row_mask:0x5 bank_mask:0xf", "row_mask:0xf bank_mask:0x9")[
            k % 3
        ]
        yield Line(row, f"{base} {control} {masks}{' bound_ctrl:0' if k & 1 else ''}")
    for pattern, k in itertools.product(("-{}", "|{}|"), range(min(len(sources), 2))):
        changed = [pattern.format(s) if j == k else s for j, s in enumerate(sources)]
        yield Line(row, f"{join(mnemonic, *dst, *changed)} row_mirror row_mask:0xf bank_mask:0xf")


def _vop3_lines(row: Row) -> Iterator[Line]:
    pick = Pick(row)
    dst = [_destination(row, pick)]
    if row.dst2 == "mask":
        dst.append(pick.scalar("mask"))
    sources = _sources(row, pick)
    if row.mnemonic.startswith("v_bitop3"):
        for table in ("0x0", "0x96", "0xe4", "0xff"):
            yield Line(row, f"{join(row.mnemonic, *dst, *sources)} bitop3:{table}", table == "0x96")
        yield Line(row, f"{join(row.mnemonic, *dst, *sources)} bitop3:0x1e op_sel:[1,0,1,1]")
        return
    lane = row.mnemonic in ("v_readlane_b32", "v_writelane_b32")
    if lane:
        sources[1] = "s5"
        if row.mnemonic == "v_writelane_b32":
            sources = ["s6", "13"]
    yield from _long_lines(row, row.mnemonic, dst, sources, pick, True)


def _packed_lines(row: Row) -> Iterator[Line]:
    pick = Pick(row)
    if row.mnemonic == "v_accvgpr_read_b32":
        yield Line(row, f"{row.mnemonic} v5, a200", True)
        return
    if row.mnemonic == "v_accvgpr_write_b32":
        for k, source in enumerate(("v77", "s8", *INLINE)):
            yield Line(row, f"{row.mnemonic} a130, {source}", k == 0)
        return
    dst, sources = pick.vector(row.dst), _sources(row, pick)
    yield Line(row, join(row.mnemonic, dst, *sources), True)
    for k, kind in enumerate(row.src):
        for other in (*_others((kind,), pick), f"-{sources[k]}", f"|{sources[k]}|"):
            yield Line(row, join(row.mnemonic, dst, *(other if j == k else s for j, s in enumerate(sources))))
    n = len(sources)
    for name in ("op_sel", "op_sel_hi", "neg_lo", "neg_hi"):
        for bits in itertools.product("01", repeat=n):
            yield Line(row, f"{join(row.mnemonic, dst, *sources)} {name}:[{','.join(bits)}]")
    ones = ",".join(["1"] * n)
    for tail in ("clamp", f"op_sel:[{ones}] op_sel_hi:[{ones}] neg_lo:[{ones}] neg_hi:[{ones}] clamp"):
        yield Line(row, f"{join(row.mnemonic, dst, *sources)} {tail}")


def _matrix_lines(row: Row) -> Iterator[Line]:
    pick = Pick(row)
    sparse = "smfmac" in row.mnemonic
    third = "b32" if sparse else row.src[2]
    scales = [pick.vector(kind) for kind in row.src[3:]]
    for k, (d, a, b, c) in enumerate(("vvvv", "avva", "aaaa", "vaav", "vavv", "avaa")):
        operands = [pick.vector(row.dst, d), pick.vector(row.src[0], a), pick.vector(row.src[1], b)]
        same = operands[0] if d == c and k & 1 else f"{c}[0:{REGISTERS[third] - 1}]"
        base = join(row.mnemonic, *operands, pick.vector(third) if sparse else same, *scales)
        yield Line(row, base, k == 0)
        if k > 1:
            continue
        for tail in ("cbsz:1", "abid:3", "cbsz:2 abid:1", "blgp:4", "cbsz:4 blgp:2", "neg:[1,0,1]"):
            yield Line(row, f"{base} {tail}")
    for constant in ("0", "1.0", "-4"):
        operands = [pick.vector(row.dst, "v"), pick.vector(row.src[0]), pick.vector(row.src[1])]
        yield Line(row, join(row.mnemonic, *operands, constant, *scales))
    if "f8f6f4" in row.mnemonic:
        yield from _typed_matrix_lines(row, pick, scales)


# Registers of 32 elements of each type that cbsz and blgp name.
_TYPED = ("b256", "b256", "b192", "b192", "b128")


def _typed_matrix_lines(row: Row, pick: Pick, scales: list[str]) -> Iterator[Line]:
    dst, addend = pick.vector(row.dst), pick.vector(row.src[2])
    for a, b in itertools.product(range(5), repeat=2):
        operands = join(row.mnemonic, dst, pick.vector(_TYPED[a]), pick.vector(_TYPED[b]), addend, *scales)
        yield Line(row, f"{operands} cbsz:{a} blgp:{b}", True)
        for bits in itertools.product("01", repeat=4) if scales and a == b else ():
            select = f"op_sel:[{bits[0]},{bits[1]},0] op_sel_hi:[{bits[2]},{bits[3]},0]"
            yield Line(row, f"{operands} {select} cbsz:{a} blgp:{b}", True)
