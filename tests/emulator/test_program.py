"""Reading code objects: kernels and their resources, bundles, assembly, and files that are none."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.emulator.hip_kernels import TARGETS, assembly, program

import rocade_emulator as emu
from rocade_emulator._elf import Elf, ElfError
from rocade_emulator._metadata import kernels_of


def code_object(target: str = "gfx942") -> bytes:
    return program(target)._code_object


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_and_resources(target: str) -> None:
    kernels = program(target).kernels
    assert next(iter(kernels)) == "integers", "in the order of the text"
    transpose = kernels["transpose"]
    assert transpose.lds_bytes == 32 * 33 * 4
    assert [(a.kind, a.offset, a.size) for a in transpose.args] == [
        ("global_buffer", 0, 8),
        ("global_buffer", 8, 8),
        ("by_value", 16, 4),
    ]
    assert kernels["scratch"].scratch_bytes >= 37 * 4
    assert kernels["launch_shape"].user_sgprs & 1, "it reads the dispatch packet"
    assert any(arg.kind == "hidden_block_count_x" for arg in kernels["launch_shape"].args)
    assert not any(arg.hidden for arg in kernels["launch_shape"].explicit_args)


def test_program_facts() -> None:
    found = program("gfx950")
    assert found.target.name == "gfx950"
    assert found.kernel("relay").name == "relay"
    with pytest.raises(KeyError, match=r"no kernel 'relais'; kernels\.hip has integers"):
        found.kernel("relais")
    with pytest.raises(KeyError, match="must be named"):
        found.kernel()


@pytest.mark.parametrize("target", TARGETS)
def test_listing_names_every_kernel_and_covers_the_text(target: str) -> None:
    found = program(target)
    listing = found.disassembly()
    for name in found.kernels:
        assert f"\n{name}:\n" in f"\n{listing}"
    ends = [inst.pc + inst.size for inst in found.instructions]
    starts = [inst.pc for inst in found.instructions]
    assert ends[:-1] == starts[1:], "no word of this text is undecoded"
    assert "s_endpgm" in listing


def test_files(tmp_path: Path) -> None:
    binary, text = tmp_path / "k.hsaco", tmp_path / "k.s"
    binary.write_bytes(code_object())
    text.write_text(assembly("gfx942"))
    for path in (binary, text):
        assert list(emu.Program.from_file(path).kernels) == list(program("gfx942").kernels)
        with pytest.raises((emu.ProgramError, emu.AssemblyError), match="gfx942, the target given is gfx950"):
            emu.Program.from_file(path, "gfx950")
    with pytest.raises(FileNotFoundError):
        emu.Program.from_file(tmp_path / "absent.co")


def bundle(parts: dict[str, bytes]) -> bytes:
    header = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(parts))
    size = len(header) + sum(24 + len(name) for name in parts)
    content = b""
    for name, part in parts.items():
        header += struct.pack("<QQQ", size + len(content), len(part), len(name)) + name.encode()
        content += part
    return header + content


def test_bundles() -> None:
    parts = {f"hipv4-amdgcn-amd-amdhsa--{t}:sramecc+": code_object(t) for t in TARGETS}
    both = bundle({"host-x86_64-unknown-linux--": b"", **parts})
    for target in TARGETS:
        assert emu.Program.from_bytes(both, target).target.name == target
    with pytest.raises(emu.ProgramError, match="name a target"):
        emu.Program.from_bytes(both)
    single = bundle({"hip-amdgcn-amd-amdhsa--gfx950": code_object("gfx950")})
    assert emu.Program.from_bytes(single).target.name == "gfx950"
    with pytest.raises(emu.ProgramError, match="wanted one for gfx942"):
        emu.Program.from_bytes(single, "gfx942")
    with pytest.raises(emu.ProgramError, match="compressed"):
        emu.Program.from_bytes(b"CCOB" + bytes(40))
    with pytest.raises(emu.ProgramError, match="ends"):
        emu.Program.from_bytes(single[: len(single) // 2])


def test_what_is_no_code_object() -> None:
    with pytest.raises(emu.ProgramError, match="ELF magic"):
        emu.Program.from_bytes(b"#!/bin/sh\n")
    host = bytearray(code_object())
    struct.pack_into("<H", host, 18, 62)  # x86-64
    with pytest.raises(emu.ProgramError, match="machine is 62"):
        emu.Program.from_bytes(bytes(host))
    other = bytearray(code_object())
    struct.pack_into("<I", other, 48, 0x541)  # gfx1100
    with pytest.raises(emu.ProgramError, match="machine number 0x41"):
        emu.Program.from_bytes(bytes(other))
    unlinked = bytearray(code_object())
    struct.pack_into("<H", unlinked, 16, 1)
    with pytest.raises(emu.ProgramError, match="link it first"):
        emu.Program.from_bytes(bytes(unlinked))


def test_text_outside_of_the_load_segments() -> None:
    """The core decodes text where the image has it: a wrong address must not reach it."""
    data = bytearray(code_object())
    table = struct.unpack_from("<Q", data, 40)[0]
    index = [section.name for section in Elf(bytes(data)).sections].index(".text")
    for address in (1 << 40, (1 << 64) - 4):
        struct.pack_into("<Q", data, table + 64 * index + 16, address)
        with pytest.raises(emu.ProgramError, match="lie outside its load segments"):
            emu.Program.from_bytes(bytes(data))


def read_all(data: bytes) -> None:
    elf = Elf(data)
    kernels_of(elf)
    elf.relocations()
    for section in elf.sections:
        elf.content(section)


@settings(max_examples=200)
@given(st.data())
def test_damaged_files_raise_their_own_error(data: st.DataObject) -> None:
    damaged = bytearray(code_object())
    cut = data.draw(st.integers(0, len(damaged)))
    # Headers and tables are where a wrong byte matters: at the start, and behind the text.
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, 0x2400) | st.integers(len(damaged) - 0xA00, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    for broken in (bytes(damaged), bytes(damaged[:cut])):
        try:
            read_all(broken)
        except ElfError:
            continue


def test_erasing_instructions_leaves_the_original_alone() -> None:
    original = program("gfx942")
    barriers = [inst.pc for inst in original.instructions if inst.text == "s_barrier"]
    assert barriers
    copy = original.without(barriers)
    assert not any(inst.text == "s_barrier" for inst in copy.instructions)
    assert any(inst.text == "s_barrier" for inst in original.instructions)
    with pytest.raises(ValueError, match="no instruction starts at 0x2"):
        original.without([2])


def test_metadata_and_descriptors_that_no_kernel_has() -> None:
    """Each would make the launcher write beside the block, start elsewhere, or ask for all memory."""
    data = code_object()
    elf = Elf(data)
    kernel = next(name for name in elf.symbols() if name.endswith(".kd"))
    segment = next(s for s in elf.segments() if 0 <= elf.symbols()[kernel].address - s.address < s.file_size)
    at = elf.symbols()[kernel].address - segment.address + segment.offset
    for offset, form, value, text in (
        (4, "<I", 1 << 31, "2147483648 bytes of private memory"),
        (8, "<I", 1 << 31, "argument block of 2147483648 bytes"),
        (16, "<q", 1 << 33, "starts at byte"),
        (16, "<q", -(1 << 40), "starts at byte"),
    ):
        broken = bytearray(data)
        struct.pack_into(form, broken, at + offset, value)
        with pytest.raises(emu.ProgramError, match=text):
            emu.Program.from_bytes(bytes(broken))
    pointer = data.index(b".size\x08")
    with pytest.raises(emu.ProgramError, match="global_buffer of 0 bytes"):
        emu.Program.from_bytes(data[: pointer + 5] + b"\0" + data[pointer + 6 :])


def test_what_a_file_holds_counts_more_than_its_name(tmp_path: Path) -> None:
    path = tmp_path / "k.s"
    path.write_bytes(code_object())
    assert emu.Program.from_file(path).kernels
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(emu.ProgramError, match="named like assembly, but is no text"):
        emu.Program.from_file(path)
