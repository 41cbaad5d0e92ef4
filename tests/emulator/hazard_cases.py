"""For every rule of core/checks/hazards.inc: two instructions, and the wait states needed between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

TARGETS = ("gfx942", "gfx950")


@dataclass(frozen=True)
class Case:
    """`first` and `second` break the rule (classes and touch as in its row) with fewer states between."""

    rule: tuple[str, str, str]
    first: str
    second: str
    states: dict[str, int]  # by target; a target that is not in it has no such instruction


def _both(states: int) -> dict[str, int]:
    return dict.fromkeys(TARGETS, states)


def _only950(states: int) -> dict[str, int]:
    return {"gfx950": states}


def _scalar() -> Iterator[Case]:
    lane = "v_readfirstlane_b32 s8, v0"
    yield Case(
        ("kValuScalar", "kVmem", "ReadsScalar"), lane, "buffer_load_dword v1, off, s[8:11], 0", _both(5)
    )
    yield Case(("kValuScalar", "kLaneSelect", "LaneSelect"), lane, "v_readlane_b32 s9, v1, s8", _both(4))
    yield Case(("kValuScalar", "kLaneSelect", "LaneSelect"), lane, "v_writelane_b32 v1, 0, s8", _both(4))
    compare = "v_cmp_eq_u32 vcc, v0, v1"
    fmas = "v_div_fmas_f32 v2, v3, v4, v5"
    yield Case(("kValuScalar", "kDivFmas", "ReadsVcc"), compare, fmas, _both(4))
    yield Case(("kValuScalar", "kValu", "ReadsConstant"), lane, "v_add_u32 v1, s8, v2", _both(2))
    yield Case(("kValuScalar", "kValu", "ReadsConstant"), compare, "v_mov_b32 v1, vcc_lo", _both(2))
    yield Case(("kValuScalar", "kReadsZero", "ZeroFlag"), compare, "v_mov_b32 v1, src_vccz", _both(5))
    masked = "v_cmpx_eq_u32 vcc, v0, v0"
    dpp = "v_mov_b32_dpp v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf"
    yield Case(("kValuExec", "kDpp", "Always"), masked, dpp, _both(5))
    for text in ("v_readfirstlane_b32 s9, v1", "v_readlane_b32 s9, v1, 0", "v_writelane_b32 v1, 0, 0"):
        yield Case(("kValuExec", "kLaneOp", "Always"), masked, text, _both(4))
    matrix = "v_mfma_f32_4x4x4_16b_f16 v[4:7], v[8:9], v[10:11], 0"
    yield Case(("kValuExec", "kMfma", "Always"), masked, matrix, _both(4))
    yield Case(("kValuExec", "kPermlane", "Always"), masked, "v_permlane32_swap_b32 v1, v2", _only950(4))
    to_lds = "global_load_lds_dword v[2:3], off"
    yield Case(("kSaluM0", "kReadsM0", "Always"), "s_mov_b32 m0, 0", to_lds, _both(1))
    rule = ("kSetreg", "kSetreg | kGetreg", "SameHwreg")
    first = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 0"
    yield Case(rule, first, "s_getreg_b32 s8, hwreg(HW_REG_MODE, 0, 32)", _both(2))
    yield Case(rule, first, "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 15", _both(2))


def _vector() -> Iterator[Case]:
    add = "v_add_u32 v1, v2, v3"
    dpp = "v_mov_b32_dpp v4, v1 row_shr:1 row_mask:0xf bank_mask:0xf"
    yield Case(("kValuVector", "kDpp", "ReadsVector"), add, dpp, _both(2))
    for text in ("v_permlane32_swap_b32 v1, v2", "v_permlane16_swap_b32 v5, v1"):
        yield Case(("kUnswapped", "kPermlane", "ReadsVector"), add, text, _only950(2))
    swap = "v_permlane32_swap_b32 v1, v2"
    yield Case(("kPermlane", "kPermlane", "ReadsVector"), swap, "v_permlane16_swap_b32 v5, v2", _only950(1))
    for text in ("v_readlane_b32 s9, v1, 0", "v_readfirstlane_b32 s9, v1"):
        yield Case(("kValuVector", "kReadLane", "Source0"), add, text, _both(1))
    rule = ("kTrans", "kNonTrans", "ReadsVector")
    yield Case(rule, "v_exp_f32 v1, v2", "v_add_f32 v3, v1, v1", _both(1))
    yield Case(rule, "v_rcp_f64 v[2:3], v[4:5]", "v_mov_b32 v6, v3", _both(1))
    rule = ("kPartial", "kValu", "Touches")
    part = (
        "v_add_f16_sdwa v1, v2, v3 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0 src1_sel:WORD_0"
    )
    yield Case(rule, part, "v_mov_b32 v4, v1", _both(1))
    yield Case(rule, part, "v_mov_b32 v1, v4", _both(1))
    yield Case(rule, "v_mad_u16 v1, v2, v3, v4 op_sel:[0,0,0,1]", "v_mov_b32 v4, v1", _both(1))
    yield Case(rule, "v_cvt_sr_fp8_f32 v1, v2, v3 op_sel:[0,0,1,0]", "v_mov_b32 v4, v1", _both(1))
    for text in (
        "v_cvt_scalef32_pk_fp4_f32 v1, v2, v3, v4",
        "v_cvt_scalef32_sr_fp8_f32 v1, v2, v3, v4 op_sel:[0,0,1,0]",
    ):
        yield Case(rule, text, "v_mov_b32 v5, v1", _only950(1))


def _stores_and_dots() -> Iterator[Case]:
    for store in (
        "global_store_dwordx4 v[2:3], v[4:7], off",
        "buffer_store_dwordx3 v[4:6], v2, s[8:11], 0 offen",
        "global_atomic_cmpswap_x2 v[2:3], v[4:7], off",
    ):
        yield Case(("kWideStore", "kValu", "OverwritesData"), store, "v_mov_b32 v6, 0", _both(2))
        load = "global_load_dword v6, v[12:13], off"
        yield Case(("kWideStore", "kMemory", "OverwritesData"), store, load, _both(1))
    rule = ("kDot", "kValu | kMemory", "AfterDot")
    dot = "v_dot2_f32_f16 v1, v2, v3, v4"
    for text in (
        "v_dot2_f32_f16 v5, v1, v3, v4",
        "v_mov_b32 v5, v1",
        "v_mov_b32 v1, v5",
        "ds_write_b32 v1, v5",
        "v_dot2_u32_u16 v5, v2, v3, v1",
    ):
        yield Case(rule, dot, text, _both(3))


@dataclass(frozen=True)
class Shape:
    """A matrix instruction: vector registers of D (and C) and of A (and B), passes by target."""

    name: str
    d: int
    a: int
    passes: dict[str, int]

    def text(self, d: int, a: int, b: int, c: int | None) -> str:
        """With operands from these registers on; C is 0 without one."""

        def span(first: int, count: int) -> str:
            return f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"

        last = "0" if c is None else span(c, self.d)
        return f"{self.name} {span(d, self.d)}, {span(a, self.a)}, {span(b, self.a)}, {last}"


XDL = (
    Shape("v_mfma_f32_4x4x4_16b_f16", 4, 2, _both(2)),
    Shape("v_mfma_f32_16x16x16_bf16", 4, 2, _both(4)),
    Shape("v_mfma_f32_32x32x8_f16", 16, 2, _both(8)),
    Shape("v_mfma_f32_32x32x4_2b_bf16", 32, 2, _both(16)),
    Shape("v_mfma_i32_16x16x32_i8", 4, 2, _both(4)),
    Shape("v_mfma_f32_16x16x8_xf32", 4, 2, {"gfx942": 4}),
    Shape("v_mfma_f32_32x32x16_bf16", 16, 4, {"gfx950": 8}),
)
SGEMM = (
    Shape("v_mfma_f32_4x4x1_16b_f32", 4, 1, _both(2)),
    Shape("v_mfma_f32_16x16x4_f32", 4, 1, _both(8)),
    Shape("v_mfma_f32_32x32x2_f32", 16, 1, _both(16)),
)
DGEMM = (
    Shape("v_mfma_f64_4x4x4_4b_f64", 2, 2, _both(4)),
    Shape("v_mfma_f64_16x16x4_f64", 8, 2, {"gfx942": 8, "gfx950": 16}),
)
# What the second instruction of a pair is; registers from 128 on belong to it, from 32 on to the first one.
_XDL = Shape("v_mfma_f32_16x16x16_f16", 4, 2, _both(4))
_SGEMM = Shape("v_mfma_f32_16x16x4_f32", 4, 1, _both(8))
_D, _A, _B = 32, 96, 100


def _more950(passes: int, target: str) -> int:
    return int(target == "gfx950" and passes != 2)


def _matrix_inputs() -> Iterator[Case]:
    second = _XDL.text(128, 132, 134, None)
    for text in ("v_mov_b32 v133, 0", "v_accvgpr_read_b32 v134, a0"):
        yield Case(("kPlainVector", "kMfma", "ReadsVector"), text, second, _both(2))


def _after_xdl() -> Iterator[Case]:
    for shape in XDL:
        first = shape.text(_D, _A, _B, None)
        written = {t: min(p + 3 + _more950(p, t), 19) for t, p in shape.passes.items()}
        rest = {t: p + 1 + (t == "gfx950") for t, p in shape.passes.items()}
        other = {t: p + 1 + _more950(p, t) for t, p in shape.passes.items()}
        yield Case(("kXdl", "kMfma", "ReadsAB"), first, _XDL.text(128, _D, 134, None), written)
        yield Case(("kXdl", "kMfma", "ReadsAB"), first, _SGEMM.text(128, 134, _D + 3, None), written)
        yield Case(("kXdl", "kXdl", "OtherC"), first, _XDL.text(128, 132, 134, _D + 2), rest)
        yield Case(("kXdl", "kSgemm | kDgemm", "OtherC"), first, _SGEMM.text(128, 132, 134, _D + 2), other)
        for text in (f"v_mov_b32 v128, v{_D}", f"v_mov_b32 v{_D + 3}, 0", f"ds_write_b32 v128, v{_D}"):
            yield Case(("kXdl", "kVectorOp", "Touches"), first, text, written)
        overwritten = {t: p - 1 for t, p in shape.passes.items()}
        with_c = shape.text(_D, _A, _B, 160)
        yield Case(("kXdl", "kVectorOp", "OverwritesC"), with_c, "v_mov_b32 v161, 0", overwritten)
    chained = XDL[0].text(_D, _A, _B, _D)
    yield Case(("kXdl | kSgemm", "kMfma", "SameC"), chained, chained, _both(2))


def _after_sgemm() -> Iterator[Case]:
    for shape in SGEMM:
        first = shape.text(_D, _A, _B, None)
        written = {t: p + 2 for t, p in shape.passes.items()}
        yield Case(("kSgemm", "kMfma", "ReadsAB"), first, _XDL.text(128, _D, 134, None), written)
        yield Case(
            ("kSgemm", "kSgemm | kDgemm", "OtherC"), first, _SGEMM.text(128, 132, 134, _D + 2), shape.passes
        )
        for text in (
            f"v_mov_b32 v128, v{_D}",
            f"v_mov_b32 v{_D + 3}, 0",
            f"global_store_dword v[128:129], v{_D}, off",
        ):
            yield Case(("kSgemm", "kVectorOp", "Touches"), first, text, written)
    chained = SGEMM[0].text(_D, _A, _B, _D)
    yield Case(("kXdl | kSgemm", "kMfma", "SameC"), chained, chained, _both(2))


def _after_dgemm() -> Iterator[Case]:
    small, large = DGEMM
    first = small.text(_D, _A, _B, None)
    yield Case(("kDgemm", "kDgemm", "SameC"), first, small.text(_D, _A, _B, _D), _both(4))
    yield Case(("kDgemm", "kMfma", "ReadsAB"), first, _XDL.text(128, _D, 134, None), _both(6))
    yield Case(("kDgemm", "kMemory", "ReadsVector"), first, f"ds_write_b32 v128, v{_D}", _both(9))
    yield Case(("kDgemm", "kPlainValu", "ReadsVector"), first, f"v_mov_b32 v128, v{_D}", _both(6))
    yield Case(("kDgemm", "kVectorOp", "Overwrites"), first, f"v_mov_b32 v{_D}, 0", _both(6))
    fma = "v_fma_f64 v[128:129], v[130:131], v[132:133], v[134:135]"
    yield Case(("kDgemm", "kFma64", "Always"), first, fma, _both(2))
    first = large.text(_D, _A, _B, None)
    yield Case(
        ("kDgemm", "kSgemm | kDgemm", "OtherC"),
        first,
        small.text(128, 130, 132, _D),
        {"gfx942": 9, "gfx950": 17},
    )
    yield Case(
        ("kDgemm", "kMfma", "ReadsAB"), first, _XDL.text(128, _D, 134, None), {"gfx942": 11, "gfx950": 19}
    )
    yield Case(("kDgemm", "kMemory", "ReadsVector"), first, f"ds_write_b32 v128, v{_D}", _both(18))
    yield Case(
        ("kDgemm", "kPlainValu", "ReadsVector"), first, f"v_mov_b32 v128, v{_D}", {"gfx942": 11, "gfx950": 19}
    )
    yield Case(("kDgemm", "kVectorOp", "Overwrites"), first, f"v_mov_b32 v{_D}, 0", _both(11))


_GROUPS = (_scalar, _vector, _stores_and_dots, _matrix_inputs, _after_xdl, _after_sgemm, _after_dgemm)
CASES = tuple(case for group in _GROUPS for case in group())
