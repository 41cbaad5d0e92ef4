"""Emulator counters of attention, side by side in one run: ours, AITER's hand-written forward, Triton's.

`python -m tests.kernels.hip.attention.counters` prints the table. All are bf16, rounded to nearest even, one
head, as many keys as queries. Cycles are issue cycles of the emulator's model, not time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from tests.emulator import aiter, triton_cases
from tests.kernels.hip.attention.problem import TARGETS, Launch, make

import rocade_emulator as emu
from rocade_emulator._bound import bound

TRITON_TILES = ((128, 64), (64, 32), (128, 32))  # query rows and keys; the best by matrix share counts
HEAD = (
    f"{'':36}{'VALU':>10}{'trans':>8}{'cycles/MFMA':>13}{'MFMA share':>12}{'bytes read':>12}{'conflicts':>11}"
    f"{'scratch':>9}{'vector regs':>13}"
)


@dataclass(frozen=True)
class Figures:
    """What a launch issued."""

    name: str
    valu: int
    trans: int
    ratio: float  # vector cycles per matrix cycle
    share: float  # of the matrix cores' peak, if all else overlaps
    bytes_read: int
    conflicts: int  # LDS cycles beyond the ideal
    scratch: int
    registers: int

    def line(self) -> str:
        return (
            f"{self.name:36}{self.valu:>10,}{self.trans:>8,}{self.ratio:>13.3f}{self.share:>12.3f}"
            f"{self.bytes_read:>12,}{self.conflicts:>11,}{self.scratch:>9}{self.registers:>13}"
        )


def figures(name: str, result: emu.Result) -> Figures:
    c = result.counters
    return Figures(
        name,
        c.by_unit["valu"],
        c.by_unit["trans"],
        (c.valu_cycles + c.trans_cycles) / c.mfma_cycles,
        bound(result.target, c).matrix_share,
        c.bytes_read,
        c.lds_cycles - c.lds_ideal_cycles,
        result.kernel.scratch_bytes,
        result.kernel.vgprs,
    )


def ours(target: str, n: int, dim: int, causal: bool) -> Figures:
    launch = Launch(make([n], [n], heads=(1, 1), dim=dim, dtype="bf16", causal=causal), target)
    return figures(f"ours D {dim}", launch.run(checks="none"))


def theirs(target: str, n: int, causal: bool) -> Figures:
    """AITER's; it has no head dim 64."""
    return figures(
        "AITER D 128", aiter.launch(target, aiter.make(1, (1, 1), (n, n), 128, causal), checks="none")
    )


def triton(target: str, n: int, dim: int, causal: bool) -> Figures:
    """The best of some tile sizes of a plain flash attention."""
    from tests.emulator import triton_kernels

    rng = np.random.default_rng(0)
    q, k, v = (triton_cases.tensor(rng.standard_normal((1, n, dim)), "bf16") for _ in range(3))
    out = np.zeros_like(q)
    types = ("*bf16",) * 4 + ("i32",) * 3 + ("fp32",)
    found = []
    for rows, keys in TRITON_TILES:
        constants = (("causal", causal), ("dim", dim), ("tile_m", rows), ("tile_n", keys))
        kernel = triton_kernels.compiled("attention", target, types, constants, 4)
        result = kernel.launch((-(-n // rows), 1), [q, k, v, out, n, n, 1, dim**-0.5], checks="none")
        found.append(figures(f"Triton D {dim}, {rows} x {keys}", result))
    return max(found, key=lambda f: f.share)


def table(lengths: tuple[int, ...]) -> Iterator[str]:
    for target in TARGETS:
        for n in lengths:
            for causal in (False, True):
                yield f"{target}, N {n}, {'causal' if causal else 'not causal'}"
                yield HEAD
                yield ours(target, n, 128, causal).line()
                yield theirs(target, n, causal).line()
                yield triton(target, n, 128, causal).line()
                yield ours(target, n, 64, causal).line()
                yield triton(target, n, 64, causal).line()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lengths", nargs="*", type=int, default=[512, 2048])
    for text in table(tuple(parser.parse_args().lengths)):
        print(text, flush=True)
