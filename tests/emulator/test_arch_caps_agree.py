"""The emulator and the capability table agree: what is native executes, what is not is refused."""

from __future__ import annotations

import functools
import struct

import numpy as np
import pytest
from tests.emulator import asm_kernels, assembly

import rocade_emulator as emu
from arch_caps import TARGETS, Feature, Level
from arch_caps._target import Fp8, Matrix
from rocade_emulator import _targets

NAMES = ("gfx942", "gfx950")

# One instruction that a feature stands for.
INSTRUCTIONS = {
    Feature.MATRIX_FP16: "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], 0",
    Feature.MATRIX_BF16: "v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], 0",
    Feature.MATRIX_FP32: "v_mfma_f32_16x16x4_f32 v[0:3], v4, v6, 0",
    Feature.MATRIX_REDUCED_FP32: "v_mfma_f32_16x16x8_xf32 v[0:3], v[4:5], v[6:7], 0",
    Feature.MATRIX_FP8: "v_mfma_f32_16x16x32_fp8_fp8 v[0:3], v[4:5], v[6:7], 0",
    Feature.MATRIX_SCALED: "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], 0, v20, v21",
    Feature.FP8_CONVERT: "v_cvt_pk_fp8_f32 v0, v1, v2",
    Feature.BF16_CONVERT: "v_cvt_pk_bf16_f32 v0, v1, v2",
    Feature.PACKED_FP32_FMA: "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]",
    Feature.DIRECT_TO_LDS_32: "global_load_lds_dword v[2:3], off",
    Feature.DIRECT_TO_LDS_128: "global_load_lds_dwordx4 v[2:3], off",
    Feature.LDS_TRANSPOSE_READ: "ds_read_b64_tr_b16 v[0:1], v2",
    Feature.LANE_SWAP: "v_permlane32_swap_b32 v0, v1",
}
WIDTHS = {8: "ubyte", 16: "ushort", 32: "dword", 96: "dwordx3", 128: "dwordx4"}


@functools.cache
def _encodings() -> dict[str, tuple[bytes, ...]]:
    """Each instruction's bytes by each target's assembler; a target that lacks it gives none."""
    texts = [*INSTRUCTIONS.values(), *(f"global_load_lds_{width} v[2:3], off" for width in WIDTHS.values())]
    found: dict[str, tuple[bytes, ...]] = dict.fromkeys(texts, ())
    for name in NAMES:
        bad = assembly.refused(texts, name)
        good = [text for k, text in enumerate(texts) if k not in bad]
        for text, raw in zip(good, assembly.encode(good, name), strict=True):
            found[text] += (raw,)
    return found


def _executes(name: str, text: str) -> bool:
    """Whether the emulator runs it, and not only decodes it; when not, the refusal must name the place."""
    raw = _encodings()[text][-1]
    error = assembly.decode_error(raw, name)
    if error:
        assert error.startswith("pc 0x0: "), error
        return False
    words = ", ".join(f"{word:#x}" for (word,) in struct.iter_unpack("<I", raw))
    program = asm_kernels.program(name, {"k": f".long {words}"}, asm_kernels.Resources(lds=1024))
    result = asm_kernels.launch(program, "k", "none")
    return result.counters.instructions > 1


@pytest.mark.parametrize("name", NAMES)
def test_native_features_execute_and_others_are_refused(name: str) -> None:
    wrong = []
    assert set(Feature) - set(INSTRUCTIONS) == {Feature.EARLY_START}, "which is about launches"
    for feature in INSTRUCTIONS:
        native = TARGETS[name].level(feature) is Level.NATIVE
        executes = _executes(name, INSTRUCTIONS[feature])
        if executes != native:
            wrong.append(f"{feature.name} is {TARGETS[name].level(feature)}, executes: {executes}")
    assert not wrong, wrong


def _matrix_text(matrix: Matrix) -> str:
    """The instruction with as many registers as its shape and types take."""
    bits = {"fp16": 16, "bf16": 16, "fp32": 32}.get(matrix.in_dtype.value, 8)
    inputs = matrix.m * matrix.k * bits // 32 // 64
    sums = matrix.m * matrix.n // 64

    def span(first: int, count: int) -> str:
        return f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"

    return f"{matrix.name} {span(32, sums)}, {span(0, inputs)}, {span(16, inputs)}, 0"


@pytest.mark.parametrize("name", NAMES)
def test_matrix_instructions_have_the_shape_and_clocks_of_the_table(name: str) -> None:
    rows = TARGETS[name].matrix
    assert rows
    program = asm_kernels.program(name, {matrix.name: _matrix_text(matrix) for matrix in rows})
    for matrix in rows:
        counters = asm_kernels.launch(program, matrix.name, "none").counters
        assert counters.by_unit["mfma"] == 1, matrix.name
        if matrix.clocks is not None:
            assert counters.mfma_cycles == matrix.clocks, matrix.name


@pytest.mark.parametrize("name", NAMES)
def test_widths_of_loads_to_lds(name: str) -> None:
    widths = {bits for bits, tail in WIDTHS.items() if _executes(name, f"global_load_lds_{tail} v[2:3], off")}
    assert widths == set(TARGETS[name].direct_to_lds_bits.value or ())


@pytest.mark.parametrize("name", NAMES)
def test_sizes(name: str) -> None:
    table, ours = TARGETS[name], _targets.target(name)
    assert ours.lds_bytes == table.lds_bytes.value
    assert table.wave_size.value == _targets.WAVE_LANES
    assert table.simds.value == _targets.SIMDS
    assert table.vector_registers.value == _targets.VECTOR_REGISTERS
    assert table.vector_granule.value == _targets.VECTOR_GRANULE
    assert table.waves_per_simd.value == _targets.MAX_WAVES
    products = {(sku.compute_units, sku.clock_mhz, sku.bandwidth_gbs) for sku in table.skus}
    assert (ours.compute_units, ours.clock_mhz, ours.memory_bytes_per_second / 1e9) in products


@pytest.mark.parametrize("name", NAMES)
def test_cache_lines(name: str) -> None:
    line = TARGETS[name].cache_line_bytes.value
    assert line == _targets.CACHE_LINE
    memory = np.zeros(64 * 256, np.uint8)
    # One dword a lane, `stride` bytes apart: 64 lanes share lines until each has its own.
    for stride, lines in ((4, 256 // line), (line // 2, 32), (line, 64), (2 * line, 64)):
        body = (
            f"s_load_dwordx2 s[2:3], s[0:1], 0x0\nv_mul_u32_u24 v1, {stride}, v0\n"
            "s_waitcnt lgkmcnt(0)\nglobal_load_dword v2, v1, s[2:3]"
        )
        counters = emu.launch(asm_kernels.program(name, {"k": body}), "k", 1, 64, [memory]).check().counters
        assert counters.cache_lines == lines, stride


@pytest.mark.parametrize("name", NAMES)
def test_lds_banks(name: str) -> None:
    """Lanes whose dwords lie in one bank are served one by one; in two banks, two by two."""
    banks = TARGETS[name].lds_banks.value
    for stride, clocks in ((4 * banks, 64), (2 * banks, 32), (4, 64 // banks)):
        body = f"v_mul_u32_u24 v1, {stride}, v0\nds_read_b32 v2, v1"
        program = asm_kernels.program(name, {"k": body}, asm_kernels.Resources(lds=64 * 4 * banks))
        counters = asm_kernels.launch(program, "k", "none").counters
        assert counters.lds_cycles == clocks, stride


@pytest.mark.parametrize("name", NAMES)
def test_the_8_bit_float_encoding(name: str) -> None:
    body = (
        "s_load_dwordx2 s[2:3], s[0:1], 0x0\nv_mov_b32 v0, 0x38\nv_cvt_f32_fp8 v1, v0\nv_mov_b32 v2, 0\n"
        "s_waitcnt lgkmcnt(0)\nglobal_store_dword v2, v1, s[2:3]"
    )
    out = np.zeros(1, np.float32)
    emu.launch(asm_kernels.program(name, {"k": body}), "k", 1, 64, [out]).check()
    # 0x38 has the exponent of 1 by OCP's bias of 7, of a half by FNUZ's bias of 8.
    assert out[0] == {Fp8.OCP: 1.0, Fp8.FNUZ: 0.5}[TARGETS[name].fp8.value]
