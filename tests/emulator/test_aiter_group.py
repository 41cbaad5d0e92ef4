"""AITER's forward kernels for requests of several lengths: what the checks find in them, and where.

Backend `aiter_asm` steers around these findings. When one is gone, so is the reason for its detour.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.emulator import aiter
from tests.emulator.aiter import Array

import rocade_emulator as emu
from rocade_kernels.aiter.kernarg import Forward, ForwardBlocks, option_of

HEADS = 2
VALUE_DIM = 128
Lengths = list[tuple[int, int]]


def sums(counts: list[int]) -> Array:
    return np.array(list(itertools.accumulate(counts, initial=0)), np.int32)


def placed(**tensors: Array) -> dict[str, int]:
    """The arguments that place tensors `[rows, heads, dim]`."""
    found = {}
    for key, tensor in tensors.items():
        row, head, _ = tensor.strides
        found |= {key: tensor.ctypes.data, f"{key}_row": row, f"{key}_head": head, f"{key}_batch": 0}
    return found


def launch(target: str, name: str, lens: Lengths, dim: int = 128) -> tuple[float, emu.Result]:
    """Run a kernel for requests of (rows, keys) and one KV head; the largest error, and the findings."""
    rng = np.random.default_rng(0)
    rows, keys = sums([q for q, _ in lens]), sums([k for _, k in lens])

    def some(*shape: int) -> Array:
        return aiter.to_bf16(rng.standard_normal(shape, dtype=np.float32))

    q, k, v = some(rows[-1], HEADS, dim), some(keys[-1], 1, dim), some(keys[-1], 1, VALUE_DIM)
    out, lse = np.zeros((rows[-1], HEADS, VALUE_DIM), np.uint16), np.zeros((HEADS, rows[-1]), np.float32)
    causal, tile, threads = "causal" in name, 256 if dim == 128 else 128, 512 if dim == 128 else 256
    longest = max(n for n, _ in lens)
    values = Forward(
        **placed(q=q, k=k, v=v, out=out),
        q_tile=tile * q.strides[0],
        lse=lse.ctypes.data,
        lse_head=lse.strides[0],
        has_lse=1,
        scale=dim**-0.5,
        max_rows=longest,
        max_keys=max(n for _, n in lens),
        group=HEADS,
        heads=HEADS,
        head_dim_qk=dim,
        head_dim_vo=VALUE_DIM,
        option=option_of(HEADS, int(rows[-1]), causal=causal),
        row_counts=rows.ctypes.data,
        key_counts=keys.ctypes.data,
        first_rows=rows.ctypes.data,
        first_keys=keys.ctypes.data,
    )
    program = aiter.program(target, name)
    block = ForwardBlocks(aiter.image(target, name)).make()
    block.fill(*values)
    tiles = -(-longest // tile)
    grid = (HEADS, len(lens), -(-tiles // 2) if causal else tiles)
    buffers = [*map(emu.ReadOnly, (q, k, v, rows, keys)), out, lse]
    result = emu.launch(program, None, grid, threads, bytes(block), buffers=buffers)
    return error(lens, (q, k, v, out), causal), result


def error(lens: Lengths, tensors: tuple[Array, Array, Array, Array], causal: bool) -> float:
    q, k, v, out = tensors
    worst, row, key = 0.0, 0, 0
    for rows, keys in lens:
        mine = (q[row:][:rows], k[key:][:keys], v[key:][:keys], out[row:][:rows])
        one = aiter.Forward(*(x[None] for x in mine), np.zeros(0), causal)
        expected, _ = aiter.reference(one)
        worst = max(worst, np.abs(aiter.from_bf16(one.out) - expected).max())
        row, key = row + rows, key + keys
    return worst


def findings(result: emu.Result) -> set[tuple[str, str]]:
    return {(r.check, r.instruction.split()[0]) for r in result.reports}


PLAIN = {"gfx942": "fwd_hd128_bf16_rtne_group", "gfx950": "fwd_hd128_bf16_group"}
CAUSAL = {"gfx942": "fwd_hd128_bf16_causal_rtne_group", "gfx950": "fwd_hd128_bf16_causal_group"}


@pytest.mark.parametrize("target", PLAIN)
def test_without_a_mask(target: str) -> None:
    """gfx942 uses the first product of a request with fewer keys than a tile too early to mask it."""
    wrong, result = launch(target, PLAIN[target], [(5, 40), (300, 333)])
    assert wrong < 0.016
    assert not result.reports, result.describe()
    wrong, result = launch(target, PLAIN[target], [(5, 31)])
    assert wrong < 0.016, "the emulator has no stale results; a GPU may"
    assert findings(result) == ({("hazards", "v_cndmask_b32_e64")} if target == "gfx942" else set())


@pytest.mark.parametrize("target", CAUSAL)
def test_causal(target: str) -> None:
    """gfx950 loads the second tile of a request over memory that slower waves read."""
    wrong, result = launch(target, CAUSAL[target], [(5, 9), (256, 300), (40, 70)])
    assert wrong < 0.016
    assert not result.reports, result.describe()
    _, result = launch(target, CAUSAL[target], [(300, 333)])
    assert {check for check, _ in findings(result)} == ({"races"} if target == "gfx950" else set())


@pytest.mark.parametrize("name", ["fwd_hd192_hd128_bf16_group", "fwd_hd192_hd128_bf16_causal_group"])
def test_head_size_192_reads_what_has_not_arrived(name: str) -> None:
    """`s_waitcnt lgkmcnt(8)` where the 8 reads of these registers are the last ones; so it is not used."""
    _, result = launch("gfx950", name, [(130, 300)], dim=192)
    waits = [report for report in result.errors if report.check == "waits"]
    assert waits, result.describe()
    assert all("missing s_waitcnt lgkmcnt" in str(report) for report in waits)
