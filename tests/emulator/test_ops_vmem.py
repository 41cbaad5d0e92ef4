"""Every FLAT, GLOBAL and MUBUF instruction against AMD's pseudo-code; the others against numpy."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass

import numpy as np
import pytest
from tests.emulator import asm_kernels, isa_memory, isa_run
from tests.emulator.isa_inputs import states
from tests.emulator.isa_run import LANES, State
from tests.emulator.isa_table import REGISTERS, TARGETS, Row, rows_of

import rocade_emulator as emu

REGION, MIDDLE = 12288, 4096  # bytes of memory for a case; lanes' addresses start in the middle
DATA, DST = 8, 16
SOME = 0x00FF_3C5A_8001_F00F
FULL = (1 << 64) - 1


@dataclass(slots=True)
class Case:
    """An instruction, its start state and what the oracle needs."""

    text: str
    state: State
    access: isa_memory.Access


def _range(first: int, kind: str) -> str:
    count = REGISTERS[kind]
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def _lane_offsets(row: Row, k: int) -> np.ndarray:
    """Bytes from the region's middle, unique but for the atomics of every other case."""
    lane = np.arange(LANES)
    atomic = "atomic" in row.mnemonic
    return (lane // 2 if atomic and k % 2 else lane * 29 % 64) * 16


def _data(row: Row, k: int) -> np.ndarray:
    """Data registers, of the instruction's type."""
    source = states()[k % 3].v
    if "f64" in row.mnemonic:
        return source[4:12]
    if "f16" in row.mnemonic:
        return source[[12, 13, 14, 15] * 2]
    if "bf16" in row.mnemonic:
        return source[[16, 17, 18, 19] * 2]
    return source[[0, 1, 2, 0] * 2] if "f32" in row.mnemonic else source[20:28]


def _form(row: Row, k: int, base: int, state: State, lanes: np.ndarray) -> tuple[str, str, list[int | None]]:
    """Address operands before and after the data, each lane's offset in the region; fills the registers."""
    rng = random.Random(zlib.crc32(row.mnemonic.encode()) + k)
    middle = base + MIDDLE
    if row.format == "mubuf":
        return _buffer_form(rng, k, base, state, lanes)
    flat = row.mnemonic.startswith("flat")
    offset = rng.choice((0, 8, 2040) if flat else (0, 8, 2040, -4096, -8))
    tail = f" offset:{offset}" if offset else ""
    if flat or k % 2:
        address = np.uint64(middle) + lanes.astype(np.uint64)
        state.v[2], state.v[3] = address & np.uint64(0xFFFFFFFF), address >> np.uint64(32)
        return "v[2:3]", ("" if flat else ", off") + tail, [MIDDLE + int(a) + offset for a in lanes]
    state.s[4], state.s[5] = middle & 0xFFFFFFFF, middle >> 32
    state.v[2] = lanes
    return "v2", f", s[4:5]{tail}", [MIDDLE + int(a) + offset for a in lanes]


def _buffer_form(
    rng: random.Random, k: int, base: int, state: State, lanes: np.ndarray
) -> tuple[str, str, list[int | None]]:
    """A raw buffer with an offset register or none, or one with an index; some lanes are out of range."""
    offset, soffset = rng.choice((0, 16, 2048)), rng.choice((0, 64))
    stride = 32 if k % 4 == 3 else 0
    records = MIDDLE if not stride else 40
    state.s[8], state.s[9] = base & 0xFFFFFFFF, base >> 32 | stride << 16
    state.s[10], state.s[11], state.s[12] = records, 0x00027000, soffset
    added = offset + soffset
    tail = f", s[8:11], s12{{}}{f' offset:{offset}' if offset else ''}"
    if stride:
        index = np.arange(LANES)
        state.v[2] = index
        return "v2", tail.format(" idxen"), [added + int(n) * stride if n < records else None for n in index]
    if k % 4 == 2:
        return "off", tail.format(""), [added] * LANES
    state.v[2] = lanes * 4
    return "v2", tail.format(" offen"), [added + int(n) * 4 for n in lanes]


def _case(row: Row, k: int, base: int) -> Case:
    source = states()[k % 3]
    mask = SOME if k % 4 == 1 else FULL
    state = State(source.v.copy(), source.s.copy(), 0, mask)
    state.v[DATA : DATA + 8] = _data(row, k)
    before, after, addresses = _form(row, k, base, state, _lane_offsets(row, k))
    atomic = "atomic" in row.mnemonic
    returns = bool(row.width) and (not atomic or k % 2 == 1)
    data = _range(DATA, row.src[1]) if len(row.src) > 1 else ""
    stored = row.format == "mubuf" and atomic  # the data register is the destination, too
    if row.format == "mubuf":
        operands = [data or _range(DST, row.dst), before]
    else:
        operands = [_range(DST, row.dst) if returns else "", before, data]
    text = (
        f"{row.mnemonic} {', '.join(o for o in operands if o)}{after}{' sc0' if atomic and returns else ''}"
    )
    size = isa_memory.access_bytes(row)
    if row.format == "mubuf" and not state.s[9] >> 16:
        addresses = [a if a is not None and a + size <= int(state.s[10]) else None for a in addresses]
    first = DATA if stored else DST
    old = [
        isa_memory.joined([int(x) for x in state.v[first : first + max(row.width, 1), ln]])
        for ln in range(LANES)
    ]
    values = [isa_memory.joined([int(x) for x in state.v[DATA : DATA + 4, ln]]) for ln in range(LANES)]
    shown = row if returns else isa_memory.without_result(row)
    return Case(text, state, isa_memory.Access(shown, addresses, 0, values, values, old, mask))


def _difference(case: Case, after: State, before: bytes, found: bytes, target: str) -> str:
    row, memory = case.access.row, bytearray(before)
    wanted = isa_memory.run(case.access, memory, target)
    first = DATA if row.format == "mubuf" and "atomic" in row.mnemonic else DST
    count = max(row.width, 1)
    for lane in range(LANES):
        got = isa_memory.joined([int(x) for x in after.v[first : first + count, lane]])
        a, b = (
            got.to_bytes(4 * count, "little"),
            (wanted[lane] & ((1 << 32 * count) - 1)).to_bytes(4 * count, "little"),
        )
        if not isa_memory.equal(row, a, b):
            at = case.access.addresses[lane]
            return f"lane {lane}: result {got:#x}, expected {wanted[lane]:#x} (address {at})"
    if not isa_memory.equal(row, found, bytes(memory)):
        at = next(k for k in range(REGION) if found[k] != memory[k])
        part = slice(at & ~7, at + 8)
        return f"memory differs at {at}: {found[part].hex()}, expected {memory[part].hex()}"
    return ""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["flat", "global", "buffer"])
def test_loads_stores_and_atomics(target: str, kind: str) -> None:
    """Destination and memory of each instruction, through each kind of address, in and out of range."""
    rows = [
        row
        for row in rows_of(target, "flat", "mubuf")
        if row.mnemonic.startswith(f"{kind}_")
        and "_lds_" not in row.mnemonic
        and (row.width or len(row.src) > 1)
    ]
    memory = np.zeros((4 * len(rows), REGION), np.uint8)
    cases = []
    for n, row in enumerate(rows):
        for k in range(4):
            words = np.resize(_data(row, k + 1), REGION // 4).astype("<u4")
            if "cmpswap" in row.mnemonic:  # let some lanes find what they compare with
                words = np.resize(states()[k % 3].v[22:24].T, REGION // 4).astype("<u4")
            memory[4 * n + k] = words.view(np.uint8)
            cases.append(_case(row, k, memory[4 * n + k].ctypes.data))
    before = memory.copy()
    which = [(k, k) for k in range(len(cases))]
    outcome = isa_run.run(target, [c.text for c in cases], [c.state for c in cases], which, memory=[memory])
    wrong = []
    for k, (case, after) in enumerate(zip(cases, outcome.states, strict=True)):
        if text := _difference(case, after, before[k].tobytes(), memory[k].tobytes(), target):
            wrong.append(f"{case.text}: {text}")
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:40])
    assert not outcome.reports, outcome.reports
    assert len(rows) > 45


@pytest.mark.parametrize("target", TARGETS)
def test_private_memory(target: str) -> None:
    """Each lane has bytes of its own, reached by a register, a scalar, both or neither."""
    rng = np.random.default_rng(9)
    v = rng.integers(0, 1 << 32, (32, LANES), dtype=np.uint32)
    v[2] = np.arange(LANES) % 4 * 16
    s = np.zeros(32, np.uint32)
    s[4] = 64
    text = "\n".join(
        [
            "scratch_store_dwordx4 v2, v[4:7], off",
            "scratch_store_dwordx3 v2, v[8:10], s4",
            "scratch_store_dwordx2 off, v[12:13], s4 offset:100",
            "scratch_store_byte off, v14, off offset:200",
            "scratch_store_short off, v15, off offset:202",
            "scratch_store_short_d16_hi off, v15, off offset:204",
            "s_waitcnt vmcnt(0)",
            "scratch_load_dwordx4 v[16:19], v2, off",
            "scratch_load_dwordx3 v[20:22], v2, s4",
            "scratch_load_dwordx2 v[24:25], off, s4 offset:100",
            "scratch_load_sbyte v26, off, off offset:200",
            "scratch_load_ushort v27, off, off offset:202",
            "scratch_load_sshort v28, off, off offset:204",
            "scratch_load_short_d16_hi v29, off, off offset:202",
            "scratch_load_ubyte_d16 v30, off, off offset:200",
        ]
    )
    outcome = isa_run.run(target, [text], [State(v, s)], [(0, 0)], scratch_bytes=256)
    after = outcome.states[0].v
    assert not outcome.reports, outcome.reports
    assert (after[16:20] == v[4:8]).all()
    assert (after[20:23] == v[8:11]).all()
    assert (after[24:26] == v[12:14]).all()
    assert (after[26] == (v[14] & 255).astype(np.int8).astype(np.int32).view(np.uint32)).all()
    assert (after[27] == (v[15] & 0xFFFF)).all()
    assert (after[28] == (v[15] >> 16).astype(np.int16).astype(np.int32).view(np.uint32)).all()
    assert (after[29] == (v[29] & 0xFFFF | v[15] << 16)).all()
    assert (after[30] == (v[30] & 0xFFFF0000 | v[14] & 255)).all()


LDS_LOADS = {
    "buffer_load_dword off, s[8:11], 0 offset:16 lds": (4, 4, 0),
    "buffer_load_dword v2, s[8:11], s12 offen lds": (4, 4, 0),
    "buffer_load_ubyte v2, s[8:11], 0 offen lds": (1, 4, 0),
    "buffer_load_sshort v2, s[8:11], 0 offen lds": (2, 4, 1),
    "global_load_lds_dword v[4:5], off offset:32": (4, 4, 0),
    "global_load_lds_dword v2, s[8:9]": (4, 4, 0),
    "global_load_lds_sbyte v[4:5], off": (1, 4, 1),
    "global_load_lds_ushort v[4:5], off": (2, 4, 0),
    "buffer_load_dwordx4 v2, s[8:11], 0 offen lds": (16, 16, 0),
    "buffer_load_dwordx3 v2, s[8:11], 0 offen lds": (12, 12, 0),
    "global_load_lds_dwordx4 v[4:5], off": (16, 16, 0),
    "global_load_lds_dwordx3 v2, s[8:9]": (12, 12, 0),
}


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (t, x)
        for t in TARGETS
        for x in LDS_LOADS
        if t == "gfx950" or not x.partition(" ")[0].endswith(("x3", "x4"))
    ],
)
def test_loads_to_lds_land_when_they_are_waited_for(target: str, text: str) -> None:
    """Lane after lane from M0 plus the offset, and not before vmcnt retires the load."""
    size, step, is_signed = LDS_LOADS[text]
    memory = np.random.default_rng(10).integers(0, 256, 4096, dtype=np.uint8)
    base = memory.ctypes.data
    v = np.zeros((32, LANES), np.uint32)
    lane = np.arange(LANES)
    place = lane * 7 % 64 * 16
    v[2], v[6], v[7] = place, lane * 4, 0xAAAAAAAA
    address = np.uint64(base) + place.astype(np.uint64)
    v[4], v[5] = address & np.uint64(0xFFFFFFFF), address >> np.uint64(32)
    s = np.zeros(32, np.uint32)
    s[8], s[9], s[10], s[11], s[12] = base & 0xFFFFFFFF, base >> 32, 4096, 0x27000, 48
    fill = [f"ds_write_b32 v6, v7 offset:{256 * q}" for q in range(6)]
    read = [f"ds_read_b32 v{8 + q}, v6 offset:{256 * q}" for q in range(6)]
    late = [f"ds_read_b32 v{16 + q}, v6 offset:{256 * q}" for q in range(6)]
    lines = [*fill, "s_waitcnt lgkmcnt(0)", "s_mov_b32 m0, 128", text, *read, "s_waitcnt lgkmcnt(0)"]
    lines += ["s_waitcnt vmcnt(0)", *late]
    # The early reads race with the load on purpose, so the checks are off.
    outcome = isa_run.run(
        target, ["\n".join(lines)], [State(v, s)], [(0, 0)], lds_bytes=1536, memory=[memory], checks=0
    )
    after = outcome.states[0].v
    assert (after[8:14] == 0xAAAAAAAA).all()
    offset = int(text.partition("offset:")[2].split()[0]) if "offset:" in text else 0
    soffset = 48 if "s12" in text else 0
    source = (
        offset + soffset + (np.zeros(LANES, int) if " off," in text.replace("v[4:5], off", "") else place)
    )
    lds = np.full(1536, 0xAA, np.uint8)
    for k in range(LANES):
        data = memory[source[k] : source[k] + size]
        extension = np.full(max(4 - size, 0), 255 if is_signed and data[-1] >> 7 else 0, np.uint8)
        start = 128 + offset + k * step
        lds[start : start + step] = np.concatenate([data, extension])
    assert (after[16:22].reshape(-1) == lds.view(np.uint32)).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("count", [62, 63, 64, 65, 150])
def test_more_loads_to_lds_than_the_counter_holds(target: str, count: int) -> None:
    """The counter stalls at 63: the oldest load lands, with its own data, before the next one begins."""
    memory = np.arange(64 * count, dtype=np.uint32)
    out = np.zeros(64 * count, np.uint32)
    lines = [
        "s_load_dwordx2 s[2:3], s[0:1], 0x0",
        "v_lshlrev_b32 v1, 2, v0",
        "s_waitcnt lgkmcnt(0)",
        "s_load_dwordx4 s[4:7], s[2:3], 0x0",
        "s_mov_b32 m0, 0",
        "s_waitcnt lgkmcnt(0)",
    ]
    for _ in range(count):
        lines += ["global_load_lds_dword v1, s[4:5]", "s_add_u32 m0, m0, 0x100", "s_add_u32 s4, s4, 0x100"]
        lines += ["s_addc_u32 s5, s5, 0"]
    lines += ["s_waitcnt vmcnt(0)"]
    for _ in range(count):
        lines += ["ds_read_b32 v2, v1", "s_waitcnt lgkmcnt(0)", "global_store_dword v1, v2, s[6:7]"]
        lines += ["v_add_u32 v1, 0x100, v1"]
    program = asm_kernels.program(target, {"k": "\n".join(lines)}, asm_kernels.Resources(lds=256 * count))
    pointers = np.array([memory.ctypes.data, out.ctypes.data], np.uint64)
    emu.launch(program, "k", 1, 64, [pointers], buffers=[emu.ReadOnly(memory), out]).check()
    assert (out == memory).all()


@pytest.mark.parametrize("target", TARGETS)
def test_scalar_loads(target: str) -> None:
    """Immediate, register and both offsets; buffer descriptors cut off what lies past their end."""
    memory = np.random.default_rng(11).integers(0, 1 << 32, 256, dtype=np.uint32)
    base = memory.ctypes.data
    s = np.zeros(32, np.uint32)
    s[4], s[5], s[6], s[7] = base & 0xFFFFFFFF, base >> 32, 72, 0x27000
    s[8] = 20
    forms = {
        "s_load_dword s16, s[4:5], 0x8": (2, 1),
        "s_load_dwordx2 s[16:17], s[4:5], 0x10": (4, 2),
        "s_load_dwordx4 s[16:19], s[4:5], s8": (5, 4),
        "s_load_dwordx8 s[16:23], s[4:5], s8 offset:0x4": (6, 8),
        "s_load_dwordx16 s[16:31], s[4:5], 0x40": (16, 16),
        "s_buffer_load_dword s16, s[4:7], 0x8": (2, 1),
        "s_buffer_load_dwordx2 s[16:17], s[4:7], s8": (5, 2),
        "s_buffer_load_dwordx4 s[16:19], s[4:7], 0x40": (16, 2),
        "s_buffer_load_dwordx8 s[16:23], s[4:7], 0x0": (0, 8),
        "s_buffer_load_dwordx16 s[16:31], s[4:7], 0x20": (8, 10),
    }
    state = State(np.zeros((32, LANES), np.uint32), s)
    outcome = isa_run.run(
        target,
        [f"{text}\ns_waitcnt lgkmcnt(0)" for text in forms],
        [state],
        [(k, 0) for k in range(len(forms))],
        memory=[memory],
    )
    assert not outcome.reports, outcome.reports
    for (text, (first, valid)), after in zip(forms.items(), outcome.states, strict=True):
        count = int("".join(c for c in text.split()[0].partition("dwordx")[2]) or 1)
        wanted = np.concatenate([memory[first : first + valid], np.zeros(count - valid, np.uint32)])
        assert (after.s[16 : 16 + count] == wanted).all(), text
