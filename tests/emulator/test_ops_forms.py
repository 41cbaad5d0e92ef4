"""Operand forms of vector instructions: signs, op_sel, SDWA, constants, scalars, clamp, packed selects."""

from __future__ import annotations

import itertools

import pytest
from tests.emulator import isa_oracle, isa_run
from tests.emulator.isa_inputs import register, states
from tests.emulator.isa_modifiers import (
    SELECTS,
    Form,
    constant_source,
    part_source,
    placed,
    plain_sources,
    signed_source,
)
from tests.emulator.isa_oracle import same
from tests.emulator.isa_overrides import overrides
from tests.emulator.isa_run import LANES, State
from tests.emulator.isa_table import REGISTERS, TARGETS, Row, rows_of
from tests.emulator.isa_valu import Case, name
from tests.emulator.pcode_values import bits_of, float_of, fused, is_nan

FLOAT_ROWS = (
    *(
        "v_add_f32",
        "v_mul_f32",
        "v_max_f32",
        "v_fma_f32",
        "v_med3_f32",
        "v_add_f64",
        "v_max_f64",
        "v_fma_f64",
    ),
    *(
        "v_add_f16",
        "v_min_f16",
        "v_fma_f16",
        "v_trunc_f32",
        "v_ceil_f16",
        "v_floor_f64",
        "v_cvt_f32_f16",
        "v_cvt_f16_f32",
    ),
)
INT_ROWS = (
    "v_add_u32",
    "v_and_b32",
    "v_lshlrev_b32",
    "v_ashrrev_i32",
    "v_min_i32",
    "v_mad_u32_u24",
    "v_lshl_add_u32",
)
HALF_ROWS = (
    "v_fma_f16",
    "v_med3_f16",
    "v_min3_i16",
    "v_max3_u16",
    "v_mad_u16",
    "v_mad_i16",
    "v_add_i16",
    "v_mad_u32_u16",
)
WIDE_ROWS = ("v_lshlrev_b64", "v_mul_f64", "v_ldexp_f64", "v_lshl_add_u64", "v_mov_b64")
SDWA_ROWS = (
    "v_add_u32",
    "v_and_b32",
    "v_add_f32",
    "v_mul_f16",
    "v_mov_b32",
    "v_lshlrev_b32",
    "v_cvt_f32_ubyte0",
    "v_max_i32",
)
INLINE = ("0", "-16", "64", "0.5", "-4.0")


def _rows(target: str, names: tuple[str, ...]) -> list[Row]:
    by_name = {row.mnemonic: row for row in rows_of(target)}
    return [by_name[n] for n in names]


def _long(row: Row) -> str:
    return row.mnemonic if row.format == "vop3" else f"{row.mnemonic}_e64"


def _form(
    row: Row,
    mnemonic: str,
    operands: list[str],
    sources: list[isa_oracle.Source],
    tail: str = "",
    **more: object,
) -> Form:
    text = f"{mnemonic} {', '.join([name(row.dst, 3), *operands])} {tail}".strip()
    return Form(Case(row, text, sources, register(row.dst, 3)), **more)  # type: ignore[arg-type]


def sign_forms(row: Row) -> list[Form]:
    """neg, abs and both on each float source; clamp on the result."""
    names, readers = plain_sources(row)
    found = []
    for k, (pattern, negate, absolute) in itertools.product(
        range(len(names)), (("-{}", True, False), ("|{}|", False, True), ("-|{}|", True, True))
    ):
        if row.src[k] not in ("f32", "f16", "f64"):
            continue
        changed = [pattern.format(n) if j == k else n for j, n in enumerate(names)]
        read = [
            signed_source(r, row.src[k], negate, absolute) if j == k else r for j, r in enumerate(readers)
        ]
        found.append(_form(row, _long(row), changed, read))
    return [*found, _form(row, _long(row), names, readers, "clamp", clamp=True)]


def constant_forms(row: Row) -> list[Form]:
    """Each source as an inline constant, a literal or a scalar, in the short and the long encoding."""
    names, readers = plain_sources(row)
    found = []
    for k, kind in enumerate(row.src[: len(names)]):
        for text in (*INLINE, "0x3c12" if kind in ("f16", "b16") else "0x3f9df3b6"):
            changed = [text if j == k else n for j, n in enumerate(names)]
            read = [constant_source(text, kind) if j == k else r for j, r in enumerate(readers)]
            if not text.startswith("0x"):
                found.append(_form(row, _long(row), changed, read))
            if k == 0 and row.format != "vop3":
                found.append(_form(row, f"{row.mnemonic}_e32", changed, read))
        count = REGISTERS[kind]
        changed = [("s12" if count == 1 else "s[12:13]") if j == k else n for j, n in enumerate(names)]
        read = [isa_oracle.scalar(12, count) if j == k else r for j, r in enumerate(readers)]
        found.append(_form(row, _long(row), changed, read))
    return found


def select_forms(row: Row) -> list[Form]:
    """op_sel: the high half of each 16-bit source, and of the destination."""
    names, readers = plain_sources(row)
    half = [kind in ("f16", "b16") for kind in row.src[: len(names)]]
    found = []
    for bits in itertools.product((0, 1), repeat=len(names) + 1):
        if any(bit and not ok for bit, ok in zip(bits, [*half, row.dst in ("f16", "b16")], strict=True)):
            continue
        read = [part_source(r, 16, 16) if bit else r for r, bit in zip(readers, bits[:-1], strict=True)]
        tail = f"op_sel:[{','.join(map(str, bits))}]"
        found.append(_form(row, _long(row), names, read, tail, high=bool(bits[-1])))
    return found


def sdwa_forms(row: Row) -> list[Form]:
    """Every selection of source and destination, sign extension, and the rest of the register."""
    names, readers = plain_sources(row)
    found = []
    unused = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
    parts = list(SELECTS)
    for k, (select, keep) in enumerate(itertools.product(parts, unused)):
        dst, other = parts[(k * 3 + 1) % 7], parts[(k * 5 + 2) % 7]
        read = [part_source(readers[0], *SELECTS[select])]
        tail = f"dst_sel:{dst} dst_unused:{keep} src0_sel:{select}"
        if len(names) > 1:
            read.append(part_source(readers[1], *SELECTS[other]))
            tail += f" src1_sel:{other}"
        found.append(_form(row, f"{row.mnemonic}_sdwa", names, read, tail, part=SELECTS[dst], unused=keep))
        if row.src[0] == "b32" and select != "DWORD":
            changed = [f"sext({names[0]})", *names[1:]]
            extended = [part_source(readers[0], *SELECTS[select], extend=True), *read[1:]]
            found.append(
                _form(row, f"{row.mnemonic}_sdwa", changed, extended, tail, part=SELECTS[dst], unused=keep)
            )
    return found


def _wrong(form: Form, before: State, after: State, target: str) -> str:
    case = form.case
    read = isa_oracle.vector(case.dst, REGISTERS[case.row.dst])
    kind = (
        case.row.dst
        if not form.high and form.part == (0, 32)
        else "pk_f16"
        if case.row.dst == "f16"
        else "b32"
    )
    for lane in range(LANES):
        old = read(before, lane)
        if not before.exec >> lane & 1:
            if read(after, lane) != old:
                return f"inactive lane {lane} changed"
            continue
        if own := overrides(target).get(case.row.mnemonic):
            plain = own([source(before, lane) for source in case.sources], old)
        else:
            plain = isa_oracle.lane_result(case.row, case.sources, before, lane, old, target).d0
        wanted = placed(form, plain, old)
        if not same(kind, read(after, lane), wanted) and not _partial_nan(form, plain):
            sources = ", ".join(f"{s(before, lane):#x}" for s in case.sources)
            return f"lane {lane}: {sources} old {old:#x} gave {read(after, lane):#x}, expected {wanted:#x}"
    return ""


def _partial_nan(form: Form, plain: int) -> bool:
    """Whether the destination shows only some bits of a NaN, whose payload may be any."""
    width = {"f32": 32, "f16": 16}.get(form.case.row.dst)
    return width is not None and form.part[1] < 32 and is_nan(plain & ((1 << width) - 1), width)


def _check(target: str, forms: list[Form]) -> None:
    inputs = states()[:2]
    which = [(k, s) for k in range(len(forms)) for s in range(len(inputs))]
    outcome = isa_run.run(target, [form.case.text for form in forms], inputs, which)
    wrong = [
        f"{forms[k].case.text} [state {s}]: {text}"
        for (k, s), after in zip(which, outcome.states, strict=True)
        if (text := _wrong(forms[k], inputs[s], after, target))
    ]
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:30])
    assert not outcome.reports, outcome.reports


@pytest.mark.parametrize("target", TARGETS)
def test_sign_and_output_modifiers(target: str) -> None:
    """neg, abs and clamp of the 64-bit encoding."""
    _check(target, [form for row in _rows(target, FLOAT_ROWS) for form in sign_forms(row)])


@pytest.mark.parametrize("target", TARGETS)
def test_constants_and_scalars(target: str) -> None:
    """Inline constants take the operand's width; a literal is the high half of a 64-bit float."""
    _check(
        target,
        [form for row in _rows(target, (*FLOAT_ROWS, *INT_ROWS, *WIDE_ROWS)) for form in constant_forms(row)],
    )


@pytest.mark.parametrize("target", TARGETS)
def test_op_sel(target: str) -> None:
    """Halves of sources and destination."""
    _check(target, [form for row in _rows(target, HALF_ROWS) for form in select_forms(row)])


@pytest.mark.parametrize("target", TARGETS)
def test_sdwa(target: str) -> None:
    """Bytes and words of sources and destination."""
    _check(target, [form for row in _rows(target, SDWA_ROWS) for form in sdwa_forms(row)])


def _packed_expected(op: str, bits: list[int], wide: bool) -> int:
    width = 32 if wide else 16
    x = [float_of(b, width) for b in bits]
    if op == "fma":
        return fused(x[0], x[1], x[2], width)
    return bits_of(x[0] * x[1] if op == "mul" else x[0] + x[1], width)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mnemonic", ["v_pk_fma_f16", "v_pk_mul_f16", "v_pk_add_f32", "v_pk_fma_f32"])
def test_packed_selects(target: str, mnemonic: str) -> None:
    """op_sel and op_sel_hi pick the halves of each result, neg_lo and neg_hi change their signs."""
    op, wide = mnemonic.split("_")[2], mnemonic.endswith("f32")
    n, width = (3 if op == "fma" else 2), 32 if wide else 16
    kind = "pk_f32" if wide else "pk_f16"
    operands = ", ".join(name(kind, k) for k in (3, *range(n)))
    choices = list(itertools.product((0, 1), repeat=n))
    forms = [(s, h, choices[(k + 3) % len(choices)], choices[(k * 3 + 1) % len(choices)])
             for k, (s, h) in enumerate(itertools.product(choices, choices))]  # fmt: skip
    words = ("op_sel", "op_sel_hi", "neg_lo", "neg_hi")
    texts = [
        f"{mnemonic} {operands} "
        + " ".join(f"{w}:[{','.join(map(str, b))}]" for w, b in zip(words, form, strict=True))
        for form in forms
    ]
    before = states()[0]
    outcome = isa_run.run(target, texts, [before], [(k, 0) for k in range(len(texts))])
    read = [isa_oracle.vector(register(kind, k), REGISTERS[kind]) for k in range(n)]
    dst = isa_oracle.vector(register(kind, 3), REGISTERS[kind])
    mask = (1 << width) - 1
    for text, form, after in zip(texts, forms, outcome.states, strict=True):
        for lane in range(0, LANES, 3):
            result = 0
            for half, (select, negate) in enumerate(((form[0], form[2]), (form[1], form[3]))):
                bits = [
                    (r(before, lane) >> width * select[k] & mask) ^ negate[k] << (width - 1)
                    for k, r in enumerate(read)
                ]
                result |= _packed_expected(op, bits, wide) << width * half
            assert same(kind, dst(after, lane), result), (text, lane)
    assert not outcome.reports, outcome.reports
