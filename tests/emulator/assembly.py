"""Assembling many single instructions at once, each in a slot of its own, and decoding the result."""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rocade_emulator import _assembler, _native

SLOT = 32  # bytes; the longest instruction has 16
PAD = 0xBF800000.to_bytes(4, "little")  # s_nop 0
NUMBER = {"gfx942": 0, "gfx950": 1}

_ERROR = re.compile(r":(\d+):\d+: error: (.*)")


def _clang(source: str, target: str, folder: str) -> tuple[bytes, str]:
    text, made = Path(folder, "in.s"), Path(folder, "in.o")
    text.write_text(source)
    arch = ("-target", _assembler.TRIPLE, f"-mcpu={target}")
    command = [*_assembler.assembler().clang, "-x", "assembler", *arch, "-c", str(text), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return (made.read_bytes() if done.returncode == 0 else b""), done.stderr


def text_section(source: str, target: str) -> bytes:
    """The text section of assembly that must assemble."""
    with tempfile.TemporaryDirectory(prefix="rocade-emulator-test-") as folder:
        made, errors = _clang(source, target, folder)
    assert made, errors[:4000]
    return _section(made, b".text")


def _section(elf: bytes, wanted: bytes) -> bytes:
    """Content of a section of an ELF64 object file."""
    table, size, count, names = struct.unpack_from("<Q10xHHH", elf, 40)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + size * k) for k in range(count)]
    for name, _, _, _, offset, length in headers:
        start = headers[names][4] + name
        if elf[start : elf.index(b"\0", start)] == wanted:
            return elf[offset : offset + length]
    raise AssertionError(f"no section {wanted!r}")


def refused(lines: Sequence[str], target: str) -> dict[int, str]:
    """Indices of the lines that the assembler refuses, with what it says."""
    with tempfile.TemporaryDirectory(prefix="rocade-emulator-test-") as folder:
        _, errors = _clang("\n".join(lines) + "\n", target, folder)
    return {int(number) - 1: text for number, text in _ERROR.findall(errors)}


def encode(lines: Sequence[str], target: str) -> list[bytes]:
    """Each line's bytes, padded to a slot with s_nop."""
    body = "\n".join(f"{line}\n.p2align {SLOT.bit_length() - 1}" for line in lines)
    text = text_section(body + "\n", target)
    assert len(text) == SLOT * len(lines), "a line does not fit its slot"
    return [text[at : at + SLOT] for at in range(0, len(text), SLOT)]


def decode(slots: Sequence[bytes], target: str) -> list[tuple[str, int] | None]:
    """Our text and the size of the instruction at the start of each slot; None where it does not decode."""
    lib = _native.library()
    raw = b"".join(slots)
    handle, error = ctypes.c_void_p(), ctypes.create_string_buffer(1 << 12)
    code = lib.emu_program_create(NUMBER[target], raw, len(raw), 0, ctypes.byref(handle), error, len(error))
    assert code == 0, error.value
    text, pc, size = ctypes.create_string_buffer(512), ctypes.c_uint32(), ctypes.c_uint32()
    found: list[tuple[str, int] | None] = [None] * len(slots)
    for index in range(lib.emu_program_count(handle)):
        lib.emu_program_inst(handle, index, text, len(text), ctypes.byref(pc), ctypes.byref(size))
        if pc.value % SLOT == 0:
            found[pc.value // SLOT] = (text.value.decode(), size.value)
    lib.emu_program_destroy(handle)
    return found


def decode_error(raw: bytes, target: str) -> str:
    """What a strict decoder says of these bytes; empty when they decode."""
    lib = _native.library()
    handle, error = ctypes.c_void_p(), ctypes.create_string_buffer(1 << 12)
    code = lib.emu_program_create(NUMBER[target], raw, len(raw), 1, ctypes.byref(handle), error, len(error))
    if code == 0:
        lib.emu_program_destroy(handle)
        return ""
    return error.value.decode()
