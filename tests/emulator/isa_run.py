"""Runs many short instruction sequences in one launch, one a workgroup: load a state, run, store it.

A state is vector registers of 64 lanes, s0..s31, VCC, EXEC, M0 and SCC. Sequences may use nothing else but
LDS, and memory whose address is in a register; v200.. and s64.. belong to the harness.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from tests.emulator import assembly

from rocade_emulator import _native

LANES = 64
SCALARS = 40  # s0..s31, vcc, exec, m0, scc, two spare
ALL_CHECKS = 0x3F
MAX_REPORTS = 32


@dataclass(slots=True)
class State:
    """Registers before or after a sequence."""

    v: np.ndarray  # uint32 [vectors, 64]
    s: np.ndarray = field(default_factory=lambda: np.zeros(32, np.uint32))
    vcc: int = 0
    exec: int = (1 << 64) - 1
    m0: int = 0
    scc: int = 0

    def words(self) -> np.ndarray:
        """As the harness has it in memory: vectors in quads of registers, then scalars in a row of 64."""
        quads = self.v.reshape(-1, 4, LANES).transpose(0, 2, 1).reshape(-1)
        mask = (1 << 32) - 1
        tail = [self.vcc & mask, self.vcc >> 32, self.exec & mask, self.exec >> 32, self.m0, self.scc]
        row = np.zeros(LANES, np.uint32)
        row[:32] = self.s
        row[32:38] = tail
        return np.concatenate([quads, row]).astype(np.uint32)

    @classmethod
    def of(cls, words: np.ndarray) -> State:
        """The reverse of `words`."""
        v = words[:-LANES].reshape(-1, LANES, 4).transpose(0, 2, 1).reshape(-1, LANES)
        row = [int(x) for x in words[-LANES:]]
        return cls(
            v, words[-LANES : -LANES + 32], row[32] | row[33] << 32, row[34] | row[35] << 32, row[36], row[37]
        )


def _moves(kind: str, count: int, offset: int) -> list[str]:
    """Loads or stores of `count` registers in quads; s[92:93] walks on because offsets are short."""
    out = []
    for quad in range(count // 4):
        if quad and quad % 3 == 0:
            out += ["s_add_u32 s92, s92, 0xc00", "s_addc_u32 s93, s93, 0"]
        at = quad % 3 * 1024
        registers = f"v[{4 * quad}:{4 * quad + 3}]"
        where = f"v200, {registers}" if kind == "store" else f"{registers}, v200"
        out.append(f"global_{kind}_dwordx4 {where}, s[92:93] offset:{at}")
    left = (count // 4 - 1) // 3 * 0xC00
    rest = count * 256 - left + offset
    return [*out, f"s_add_u32 s92, s92, {rest:#x}", "s_addc_u32 s93, s93, 0"]


def _prologue(vectors: int) -> str:
    return "\n".join(
        [
            "s_load_dwordx2 s[96:97], s[0:1], 0x0",
            "s_waitcnt lgkmcnt(0)",
            "s_lshl_b32 s98, s2, 5",
            "s_add_u32 s96, s96, s98",
            "s_addc_u32 s97, s97, 0",
            "s_load_dwordx4 s[92:95], s[96:97], 0x0",
            "s_load_dwordx2 s[90:91], s[96:97], 0x10",
            "s_waitcnt lgkmcnt(0)",
            "v_lshlrev_b32 v200, 4, v0",
            "v_lshlrev_b32 v201, 2, v0",
            *_moves("load", vectors, 0),
            "s_load_dwordx16 s[0:15], s[92:93], 0x0",
            "s_load_dwordx16 s[16:31], s[92:93], 0x40",
            "s_load_dwordx2 vcc, s[92:93], 0x80",
            "s_load_dwordx4 s[84:87], s[92:93], 0x88",
            "s_waitcnt vmcnt(0) lgkmcnt(0)",
            "s_mov_b32 m0, s86",
            "s_cmp_lg_u32 s87, 0",
            "s_mov_b64 exec, s[84:85]",
            "s_setpc_b64 s[90:91]",
        ]
    )


def _epilogue(vectors: int) -> str:
    lanes = [f"v_writelane_b32 v202, s{k}, {k}" for k in range(32)]
    tail = ("vcc_lo", "vcc_hi", "s84", "s85", "s86", "s87")
    lanes += [f"v_writelane_b32 v202, {name}, {32 + k}" for k, name in enumerate(tail)]
    return "\n".join(
        [
            "epilogue:",
            "s_mov_b64 s[84:85], exec",
            "s_cselect_b32 s87, 1, 0",
            "s_mov_b32 s86, m0",
            "s_mov_b64 exec, -1",
            "s_waitcnt vmcnt(0) lgkmcnt(0)",
            "v_mov_b32 v202, 0",
            *lanes,
            "s_mov_b32 s92, s94",
            "s_mov_b32 s93, s95",
            *_moves("store", vectors, 0),
            "global_store_dword v201, v202, s[92:93]",
            "s_endpgm",
        ]
    )


@dataclass(slots=True)
class Outcome:
    """What a batch left: one State per sequence, and the findings of the checks."""

    states: list[State]
    reports: list[str]


def run(
    target: str,
    sequences: Sequence[str],
    inputs: Sequence[State],
    which: Sequence[tuple[int, int]],
    *,
    lds_bytes: int = 0,
    scratch_bytes: int = 0,
    memory: Sequence[np.ndarray] = (),
    checks: int = ALL_CHECKS,
) -> Outcome:
    """Run pairs (sequence, input), one workgroup of one wave each.

    Args:
        target: "gfx942" or "gfx950".
        sequences: Assembly, one or more lines each.
        inputs: Start states, all with the same number of vector registers.
        which: Pairs of indices into those two.
        lds_bytes: LDS of each workgroup.
        scratch_bytes: Private memory of each lane.
        memory: Arrays that sequences may read and write.
        checks: EMU_CHECK_* bits.
    """
    vectors = inputs[0].v.shape[0]
    source = [_prologue(vectors)]
    source += [f".p2align 4\nt{k}:\n{text}\ns_branch epilogue" for k, text in enumerate(sequences)]
    body = "\n".join([*source, _epilogue(vectors), ".p2align 4"])
    # Entry points come with the text: a table of 32-bit offsets behind the code, found by its length.
    body += "\n" + "\n".join(f".long t{k}-base" for k in range(len(sequences)))
    text = assembly.text_section("base:\n" + body + "\n", target)
    entries = np.frombuffer(text[len(text) - 4 * len(sequences) :], np.uint32)
    return _launch(target, text, entries, inputs, which, (lds_bytes, scratch_bytes), memory, checks)


def _range(array: np.ndarray, writable: bool) -> _native.RangeStruct:
    return _native.RangeStruct(array.ctypes.data, array.nbytes, writable, 0, 0, 0)


def _launch(
    target: str,
    text: bytes,
    entries: np.ndarray,
    inputs: Sequence[State],
    which: Sequence[tuple[int, int]],
    private: tuple[int, int],
    memory: Sequence[np.ndarray],
    checks: int,
) -> Outcome:
    given = np.stack([state.words() for state in inputs])
    out = np.zeros((len(which), given.shape[1]), np.uint32)
    code = np.frombuffer(text, np.uint8).copy()
    table = np.zeros((len(which), 4), np.uint64)
    for k, (sequence, state) in enumerate(which):
        table[k, :3] = given[state].ctypes.data, out[k].ctypes.data, code.ctypes.data + int(entries[sequence])
    kernarg = np.array([table.ctypes.data], np.uint64)
    lib, launch = _native.library(), ctypes.c_void_p()
    program = _program(target, code, len(text) - 4 * len(entries))
    lib.emu_launch_create(program, ctypes.byref(launch))
    ranges = [_range(array, False) for array in (given, table, kernarg)]
    for known in (*ranges, *(_range(array, True) for array in (out, *memory))):
        lib.emu_launch_add_range(launch, ctypes.byref(known))
    try:
        reports = _reports(launch, _config(kernarg.ctypes.data, len(which), private, checks))
    finally:
        lib.emu_launch_destroy(launch)
        lib.emu_program_destroy(program)
    return Outcome([State.of(row) for row in out], reports)


def _program(target: str, code: np.ndarray, size: int) -> ctypes.c_void_p:
    error, program = ctypes.create_string_buffer(1 << 12), ctypes.c_void_p()
    number, at = assembly.NUMBER[target], code.ctypes.data
    made = _native.library().emu_program_create(number, at, size, 0, ctypes.byref(program), error, len(error))
    assert made == 0, error.value
    return program


def _config(kernarg: int, groups: int, private: tuple[int, int], checks: int) -> _native.ConfigStruct:
    config = _native.ConfigStruct(kernarg=kernarg, entry=0, vgprs=512, sgprs=104, accum_offset=256)
    config.lds_bytes, config.scratch_bytes = private
    config.user_sgprs, config.workgroup_ids = 4, 1  # the kernel argument pointer, and x
    config.checks, config.quantum, config.resident, config.threads = checks, 1000, 1, 1
    config.max_reports = MAX_REPORTS
    config.grid[:] = (groups, 1, 1)
    config.block[:] = (LANES, 1, 1)
    return config


def _reports(launch: ctypes.c_void_p, config: _native.ConfigStruct) -> list[str]:
    """Run to the end; what the checks found."""
    lib, error = _native.library(), ctypes.create_string_buffer(1 << 14)
    assert lib.emu_launch_run(launch, ctypes.byref(config), error, len(error)) == 0, error.value.decode()
    raw = (_native.ReportStruct * MAX_REPORTS)()
    count = min(lib.emu_launch_reports(launch, raw, MAX_REPORTS), MAX_REPORTS)
    return [f"pc {r.pc:#x} lane {r.lane} {r.address:#x}: {r.text.decode()}" for r in raw[:count]]
