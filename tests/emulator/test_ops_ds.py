"""Every LDS instruction against AMD's pseudo-code: destination and all of LDS afterwards."""

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
    bits = re.findall(
        r"[a-z](\d+)", mnemonic.removesuffix("_d16").removesuffix("_d16_hi").removesuffix("_hi")
    )
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


def _values(row: Row, k: int) -> np.ndarray:
    """Registers with data, old destination and the content of LDS, of the instruction's type."""
    first, second, third = (states()[(k + n) % 3].v for n in range(3))
    v = first.copy()
    pool = third[20:24]
    if row.mnemonic.endswith(("f32", "f64")):
        kind = slice(0, 4) if "f32" in row.mnemonic else slice(4, 8)
        v[DATA : DATA + 16] = np.tile(first[kind], (4, 1))
        pool = third[kind]
    else:
        v[DATA : DATA + 12] = second[20:32]
    v[FILL : FILL + 16] = np.concatenate([np.roll(pool, q, axis=1) for q in range(4)])
    if "cmpst" in row.mnemonic:  # let half of the lanes find what they compare with
        v[FILL : FILL + 16] = v[[DATA, DATA + 1] * 8]
    return v


def _addresses(row: Row, k: int) -> np.ndarray:
    """Scattered, or shared by two lanes in every other run; far apart where there are two in one."""
    lane, size = np.arange(LANES), element_bytes(row.mnemonic)
    if has_two_addresses(row):
        return lane * size
    return lane // 2 * 8 + size if k % 2 else lane * 37 % 64 * 16


def _lanes(v: np.ndarray, first: int, count: int) -> list[int]:
    return [isa_memory.joined([int(x) for x in v[first : first + count, lane]]) for lane in range(LANES)]


def _case(row: Row, k: int) -> Case:
    v, s = _values(row, k), states()[k % 3].s.copy()
    v[ADDRESS], v[LANE16] = _addresses(row, k), np.arange(LANES) * 16
    mask = (1 << 64) - 1 if k % 2 else SOME
    s[20], s[21] = mask & 0xFFFFFFFF, mask >> 32
    offset, tail = _offset(row, random.Random(zlib.crc32(row.mnemonic.encode()) + k))
    operands = [_range(DST, row.dst)] if row.width else []
    operands += ["v0", *(_range(*pair) for pair in zip((DATA, DATA2), row.src[1:], strict=False))]
    lds = bytearray(v[FILL : FILL + 16].reshape(4, 4, LANES).transpose(0, 2, 1).astype("<u4").tobytes())
    data, data2, old = _lanes(v, DATA, 4), _lanes(v, DATA2, 4), _lanes(v, DST, max(row.width, 1))
    access = isa_memory.Access(row, [int(a) for a in v[ADDRESS]], offset, data, data2, old, mask)
    return Case(f"{row.mnemonic} {', '.join(operands)}{tail}", State(v, s), access, lds)


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
        a, b = (
            got.to_bytes(4 * count, "little"),
            (wanted[lane] & ((1 << 32 * count) - 1)).to_bytes(4 * count, "little"),
        )
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
