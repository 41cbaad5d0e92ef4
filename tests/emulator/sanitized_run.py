"""Run in a process whose core is built with sanitizers: damaged files, random text and random programs.

Nothing here has to be right. What must not happen is an access outside of an object, or undefined
behaviour: the sanitizers end the process then.
Usage: python -m tests.emulator.sanitized_run TARGET CODE_OBJECT SEED SECONDS
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rocade_emulator import Program, _native

NUMBER = {"gfx942": 0, "gfx950": 1}
ALL_CHECKS = 63
ENDPGM = 0xBF810000
STEPS = 2000
# (bits that name a format, how many, words of its shortest form): SOP1, SOPC, SOPP, SOP2, SOPK, SMEM, VOP1,
# VOPC, VOP2, VOP3, VOP3P, DS, FLAT, MUBUF.
FORMATS = (
    *((0xBE800000, 9, 1), (0xBF000000, 9, 1), (0xBF800000, 9, 1), (0x80000000, 2, 1), (0xB0000000, 4, 1)),
    *((0xC0000000, 6, 2), (0x7E000000, 7, 1), (0x7C000000, 7, 1), (0x00000000, 1, 1), (0xD0000000, 6, 2)),
    *((0xD3800000, 9, 2), (0xD8000000, 6, 2), (0xDC000000, 6, 2), (0xE0000000, 6, 2)),
)


def random_instruction(rng: random.Random) -> list[int]:
    """Words of one format with all else random; small register numbers and few modifiers half of the time."""
    prefix, bits, words = rng.choice(FORMATS)
    head = prefix | rng.getrandbits(32 - bits)
    if rng.random() < 0.5:
        tail = rng.getrandbits(8) | rng.getrandbits(4) << 8 | rng.getrandbits(5) << 16
    else:
        tail = rng.getrandbits(32)
    return [head, tail][:words] if rng.random() < 0.9 else [head, tail]


class Text:
    """Decoded words; the memory stays where it is, as the core asks."""

    def __init__(self, words: list[int], target: int, strict: bool) -> None:
        self.data = (ctypes.c_uint32 * len(words))(*words)
        self.handle, self.error = ctypes.c_void_p(), ctypes.create_string_buffer(1024)
        size = ctypes.sizeof(self.data)
        arguments = (target, self.data, size, int(strict), ctypes.byref(self.handle), self.error, 1024)
        self.ok = _native.library().emu_program_create(*arguments) == 0

    def close(self) -> None:
        if self.ok:
            _native.library().emu_program_destroy(self.handle)

    def instructions(self) -> list[list[int]]:
        """Words of everything that decoded; its text is made, too."""
        lib = _native.library()
        text, pc, size = ctypes.create_string_buffer(256), ctypes.c_uint32(), ctypes.c_uint32()
        found = []
        for k in range(lib.emu_program_count(self.handle)):
            assert lib.emu_program_inst(self.handle, k, text, 256, ctypes.byref(pc), ctypes.byref(size)) == 0
            assert text.value
            found.append(list(self.data[pc.value // 4 : (pc.value + size.value) // 4]))
        return found


def decode_noise(rng: random.Random, target: int) -> list[list[int]]:
    """Random words through the decoder; returns what decoded."""
    words = [word for _ in range(2000) for word in random_instruction(rng)] + [
        rng.getrandbits(32) for _ in range(500)
    ]
    text = Text(words, target, strict=False)
    found = text.instructions()
    text.close()
    return found


def run_words(rng: random.Random, words: list[int], target: int) -> int:
    """Run a program: two workgroups of 96 work items, a small buffer. Returns how many instructions ran."""
    lib = _native.library()
    text = Text([*words, ENDPGM], target, strict=True)
    assert text.ok, text.error.value
    buffer = (ctypes.c_uint8 * 4096)()
    ctypes.memmove(buffer, struct.pack("<QQ", ctypes.addressof(buffer), 4096), 16)
    launch = ctypes.c_void_p()
    assert lib.emu_launch_create(text.handle, ctypes.byref(launch)) == 0
    whole = _native.RangeStruct(ctypes.addressof(buffer), 4096, 1, 0, 0, 0)
    assert lib.emu_launch_add_range(launch, ctypes.byref(whole)) == 0
    config = _native.ConfigStruct(kernarg=ctypes.addressof(buffer), seed=1, step_limit=STEPS, max_reports=8)
    config.vgprs, config.sgprs, config.accum_offset = 512, 102, 256
    config.user_sgprs, config.workgroup_ids, config.workitem_ids = 4, 7, 2
    config.lds_bytes, config.scratch_bytes = rng.choice((0, 64, 1024)), rng.choice((0, 16))
    config.checks, config.schedule = rng.choice((0, ALL_CHECKS)), rng.randrange(3)
    config.quantum, config.resident, config.threads = rng.randrange(1, 9), 2, rng.randrange(1, 3)
    config.grid[:] = (2, 1, 1)
    config.block[:] = (96, 1, 1)
    error = ctypes.create_string_buffer(4096)
    lib.emu_launch_run(launch, ctypes.byref(config), error, 4096)
    reports = (_native.ReportStruct * 8)()
    assert lib.emu_launch_reports(launch, reports, 8) <= 8
    counters = _native.CountersStruct()
    lib.emu_launch_counters(launch, ctypes.byref(counters))
    lib.emu_launch_destroy(launch)
    text.close()
    return int(counters.instructions)


def random_program(rng: random.Random, pool: list[list[int]], target: int) -> int:
    chosen = [rng.choice(pool) for _ in range(rng.randrange(1, 40))]
    return run_words(rng, [word for instruction in chosen for word in instruction], target)


def damaged_file(rng: random.Random, whole: bytes, target: str) -> bool:
    """Cut or change a code object and read all of it; whether it could still be read."""
    data = bytearray(whole)
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    for _ in range(rng.randrange(1, 12)):
        if data:
            data[rng.randrange(min(len(data), rng.choice((64, 1024, len(data)))))] = rng.getrandbits(8)
    try:
        program = Program.from_bytes(bytes(data), target)
        return bool(program.disassembly())
    except (ValueError, KeyError):
        return False


def repeat(seconds: float, action: Callable[[], int]) -> tuple[int, int]:
    """Call until the processor time is over; returns calls and the sum of their results."""
    end, calls, total = time.process_time() + seconds, 0, 0
    while time.process_time() < end:
        total += action()
        calls += 1
    return calls, total


def overrun() -> None:
    """Read behind a buffer: the proof that the core is watched."""
    words = (ctypes.c_uint32 * 1024)(*[ENDPGM] * 1024)
    handle, error = ctypes.c_void_p(), ctypes.create_string_buffer(64)
    size = ctypes.sizeof(words) + 64
    _native.library().emu_program_create(0, words, size, 0, ctypes.byref(handle), error, 64)


def main(target: str, path: str, seed: str, seconds: str) -> None:
    if target == "overrun":
        return overrun()
    rng, share, number = random.Random(int(seed)), float(seconds) / 4, NUMBER[target]
    whole = Path(path).read_bytes()
    pool: list[list[int]] = []
    texts, decoded = repeat(share, lambda: add(pool, decode_noise(rng, number)))
    programs, instructions = repeat(2 * share, lambda: random_program(rng, pool, number))
    files, readable = repeat(share, lambda: damaged_file(rng, whole, target))
    print(texts, decoded, programs, instructions, files, readable)
    return None


def add(pool: list[list[int]], found: list[list[int]]) -> int:
    """Keep what decoded; returns how many that is."""
    pool += found
    return len(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
