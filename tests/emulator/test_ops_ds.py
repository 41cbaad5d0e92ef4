"""Every LDS instruction against AMD's pseudo-code: destination, all of LDS afterwards, some lanes and all of them."""

from __future__ import annotations

import random
import re
import zlib
from dataclasses import dataclass

import numpy as np
import pytest

from tests.emulator import isa_memory, isa_run
from tests.emulator.isa_inputs import states
from tests.emulator.isa_run import LANES, State
from tests.emulator.isa_table import REGISTERS, TARGETS, Row, rows_of

LDS_BYTES = 4096
ADDRESS, LANE16, DATA, DATA2, DST, FILL = 0, 1, 4, 8, 12, 16
SOME = 0x00FF_3C5A_8001_F00F
# Lane moves and transposing reads: further down.
ELSEWHERE = ("ds_swizzle", "ds_permute", "ds_bpermute", "ds_read_b64_tr", "ds_read_b96_tr")


@dataclass(slots=True)
class Case:
    """An instruction, its start state and what the oracle needs."""

    text: str
    state: State
    access: isa_memory.Access
    lds: bytearray


def _range(first: int, kind: str) -> str:
    count = REGISTERS[kind]
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def element_bytes(mnemonic: str) -> int:
    """Bytes of one element; addresses are multiples of it."""
    bits = re.findall(r"[a-z](\d+)", mnemonic.removesuffix("_d16").removesuffix("_d16_hi").removesuffix("_hi"))
    return 4 if "pk_" in mnemonic else {8: 1, 16: 2, 64: 8, 96: 4, 128: 8}.get(int(bits[-1]), 4)


def has_two_addresses(row: Row) -> bool:
    """ds_read2, ds_write2 and ds_wrxchg2 with their strided forms."""
    return bool(re.search(r"2st64|[deg]2_", row.mnemonic))


def _offset(row: Row, rng: random.Random) -> tuple[int, str]:
    if has_two_addresses(row):
        unit = 1 if "st64" in row.mnemonic else 64  # far enough apart that lanes do not overlap
        first, second = rng.randrange(0, 2) * unit, rng.randrange(2, 4) * unit
        return first | second << 8, f" offset0:{first} offset1:{second}"
    offset = rng.choice((0, 8, 256, 2040))
    return offset, f" offset:{offset}" if offset else ""


def _case(row: Row, k: int) -> Case:
    rng = random.Random(zlib.crc32(row.mnemonic.encode()) + k)
    state = states()[k % 3]
    v, s = state.v.copy(), state.s.copy()
    floats = row.mnemonic.endswith(("f32", "f64"))
    if floats:
        v[DATA : DATA + 16] = states()[k % 3].v[[0, 1, 2, 0] * 4 if "f32" in row.mnemonic else [4, 5, 6, 7] * 4]
    else:
        v[DATA : DATA + 12] = states()[(k + 1) % 3].v[[20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31]]
    source = states()[(k + 2) % 3].v
    pool = source[[0, 1, 2, 3]] if "f32" in row.mnemonic else source[[4, 5, 6, 7]] if floats else source[20:24]
    v[FILL : FILL + 16] = np.concatenate([np.roll(pool, q, axis=1) for q in range(4)])
    if "cmpst" in row.mnemonic:  # let half of the lanes find what they compare with
        v[FILL : FILL + 16] = v[[DATA, DATA + 1] * 8]
    step = 8 if k % 2 else 16  # lanes share an address in one run
    lane = np.arange(LANES)
    v[ADDRESS] = (lane * 37 % 64 if step == 16 else lane // 2) * step + element_bytes(row.mnemonic) * (k % 2)
    if has_two_addresses(row):
        v[ADDRESS] = lane * element_bytes(row.mnemonic)
    v[LANE16] = lane * 16
    mask = (1 << 64) - 1 if k % 2 else SOME
    s[20], s[21] = mask & 0xFFFFFFFF, mask >> 32
    offset, tail = _offset(row, rng)
    operands = [_range(DST, row.dst)] if row.width else []
    operands += ["v0", *(_range(first, kind) for first, kind in zip((DATA, DATA2), row.src[1:], strict=False))]
    lds = bytearray(v[FILL : FILL + 16].reshape(4, 4, LANES).transpose(0, 2, 1).astype("<u4").tobytes())
    access = isa_memory.Access(
        row,
        [int(a) for a in v[ADDRESS]],
        offset,
        *([isa_memory.joined([int(x) for x in v[first : first + 4, ln]]) for ln in range(LANES)] for first in (4, 8)),
        [isa_memory.joined([int(x) for x in v[DST : DST + max(row.width, 1), ln]]) for ln in range(LANES)],
        mask,
    )
    text = f"{row.mnemonic} {', '.join(operands)}{tail}"
    return Case(text, State(v, s), access, lds)


def _sequence(text: str) -> str:
    quads = [f"v[{FILL + 4 * q}:{FILL + 4 * q + 3}]" for q in range(4)]
    return "\n".join(
        [
            *(f"ds_write_b128 v1, {registers} offset:{1024 * q}" for q, registers in enumerate(quads)),
            "s_waitcnt lgkmcnt(0)",
            "s_mov_b64 exec, s[20:21]",
            text,
            "s_waitcnt lgkmcnt(0)",
            "s_mov_b64 exec, -1",
            *(f"ds_read_b128 {registers}, v1 offset:{1024 * q}" for q, registers in enumerate(quads)),
            "s_waitcnt lgkmcnt(0)",
        ]
    )


def _difference(case: Case, after: State, target: str) -> str:
    row, lds = case.access.row, bytearray(case.lds)
    wanted = isa_memory.run(case.access, lds, target)
    count = max(row.width, 1)
    for lane in range(LANES):
        got = isa_memory.joined([int(x) for x in after.v[DST : DST + count, lane]])
        a, b = got.to_bytes(4 * count, "little"), (wanted[lane] & ((1 << 32 * count) - 1)).to_bytes(4 * count, "little")
        if not isa_memory.equal(row, a, b):
            return f"lane {lane}: result {got:#x}, expected {wanted[lane]:#x}"
    found = after.v[FILL : FILL + 16].reshape(4, 4, LANES).transpose(0, 2, 1).astype("<u4").tobytes()
    if not isa_memory.equal(row, found, bytes(lds)):
        at = next(k for k in range(LDS_BYTES) if found[k] != lds[k])
        return f"LDS differs at {at}: {found[at & ~7 : at + 8].hex()}, expected {lds[at & ~7 : at + 8].hex()}"
    return ""


@pytest.mark.parametrize("target", TARGETS)
def test_reads_writes_and_atomics(target: str) -> None:
    """Destination and memory of each instruction, with lanes that share an address and inactive lanes."""
    rows = [row for row in rows_of(target, "ds") if not row.mnemonic.startswith(ELSEWHERE)]
    cases = [_case(row, k) for row in rows for k in range(4)]
    outcome = isa_run.run(
        target,
        [_sequence(case.text) for case in cases],
        [case.state for case in cases],
        [(k, k) for k in range(len(cases))],
        lds_bytes=LDS_BYTES,
    )
    wrong = []
    for case, after in zip(cases, outcome.states, strict=True):
        if text := _difference(case, after, target):
            wrong.append(f"{case.text}: {text}")
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:40])
    assert not outcome.reports, outcome.reports
    assert len(rows) > 100
