"""A program: one code object, read, put in memory and decoded. Programs are not changed by launches."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from rocade_emulator import _assembler, _bundle, _native
from rocade_emulator._elf import MAGIC as ELF_MAGIC
from rocade_emulator._elf import Elf, ElfError
from rocade_emulator._image import Image
from rocade_emulator._metadata import Kernel, kernels_of
from rocade_emulator._targets import BY_MACH, Target

_MACH_MASK = 0xFF


class ProgramError(ValueError):
    """A file that cannot be run. The text names the file and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One decoded instruction: byte offset in the text, size in bytes, and its assembly text."""

    pc: int
    size: int
    text: str


class Program:
    """A code object for gfx942 or gfx950 and its kernels.

    Make one with `from_file` (code object, offload bundle or assembly), `from_bytes` or `from_assembly`.
    """

    def __init__(self, code_object: bytes, name: str = "<bytes>") -> None:
        self.name = name
        self._code_object = code_object
        elf = Elf(code_object)
        mach = elf.flags & _MACH_MASK
        if mach not in BY_MACH:
            known = ", ".join(f"{t.name} (0x{t.mach:x})" for t in BY_MACH.values())
            raise ElfError(f"it is for the GPU with machine number 0x{mach:x}; emulated are {known}")
        self.target: Target = BY_MACH[mach]
        section = elf.section(".text")
        self.text: bytes = elf.content(section)
        self.symbols: Mapping[str, int] = MappingProxyType(
            {s.name: s.address for s in elf.symbols().values()}
        )
        self.image = Image(elf)
        self._text = self.image.place(section.address, len(self.text))
        self.kernels: Mapping[str, Kernel] = MappingProxyType(kernels_of(elf))
        self.handle = self._decode()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], target: str | None = None) -> Program:
        """Read a code object (`.co`, `.hsaco`), an offload bundle of several, or assembly (`.s`).

        Args:
            path: The file. One that is neither ELF nor a bundle is taken as assembly when its name ends in
                `.s`.
            target: "gfx942" or "gfx950". Needed for a bundle of several targets and for assembly without an
                `.amdgcn_target` line; elsewhere it is checked against the file.

        Raises:
            ProgramError: the file cannot be run; the text says why.
            AssemblyError: there is no assembler, or it refused the file.
            OSError: the file cannot be read.
        """
        path = Path(path)
        data = path.read_bytes()
        if path.suffix.lower() != ".s" or data.startswith(
            (ELF_MAGIC, _bundle.MAGIC, _bundle.COMPRESSED_MAGIC)
        ):
            return cls.from_bytes(data, target, name=str(path))
        try:
            source = data.decode()
        except UnicodeDecodeError as error:
            raise ProgramError(f"{path}: it is named like assembly, but is no text: {error}") from error
        return cls.from_assembly(source, target, name=str(path))

    @classmethod
    def from_bytes(cls, data: bytes, target: str | None = None, *, name: str = "<bytes>") -> Program:
        """Read a code object or an offload bundle from memory; see `from_file`."""
        data = bytes(data)
        try:
            if _bundle.is_bundle(data):
                data = _bundle.code_object(data, target)
            program = cls(data, name)
        except (ElfError, _bundle.BundleError) as error:
            raise ProgramError(f"{name}: {error}") from error
        if target is not None and program.target.name != target:
            raise ProgramError(f"{name}: it is for {program.target.name}, the target given is {target}")
        return program

    @classmethod
    def from_assembly(cls, source: str, target: str | None = None, *, name: str = "<assembly>") -> Program:
        """Assemble and read; see `from_file`."""
        target = _assembler.target_of(source, target)
        return cls.from_bytes(_assembler.assemble(source, target), target, name=name)

    def _decode(self) -> int:
        lib = _native.library()
        handle = ctypes.c_void_p()
        error = ctypes.create_string_buffer(_native.ERROR_BYTES)
        # The image holds the text, too, at the address that pc-relative code computes with.
        size = len(self.text)
        if lib.emu_program_create(
            self.target.number, self._text, size, 0, ctypes.byref(handle), error, len(error)
        ):
            raise ProgramError(f"{self.name}: {error.value.decode(errors='replace')}")
        weakref.finalize(self, lib.emu_program_destroy, handle.value)
        return int(handle.value or 0)

    def kernel(self, name: str | None = None) -> Kernel:
        """A kernel by its name; without a name, the only one there is.

        Raises:
            KeyError: there is no such kernel, or no single one.
        """
        if name is None and len(self.kernels) == 1:
            return next(iter(self.kernels.values()))
        if name is None or name not in self.kernels:
            wanted = "a kernel must be named" if name is None else f"no kernel {name!r}"
            raise KeyError(f"{wanted}; {self.name} has {', '.join(self.kernels)}")
        return self.kernels[name]

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions of the text section that decode, in address order."""
        return tuple(self._read_instructions())

    def _read_instructions(self) -> Iterator[Instruction]:
        lib = _native.library()
        text = ctypes.create_string_buffer(_native.TEXT_BYTES)
        pc, size = ctypes.c_uint32(), ctypes.c_uint32()
        for index in range(lib.emu_program_count(self.handle)):
            if lib.emu_program_inst(
                self.handle, index, text, len(text), ctypes.byref(pc), ctypes.byref(size)
            ):
                raise ProgramError(f"{self.name}: instruction {index} has no text")
            yield Instruction(pc.value, size.value, text.value.decode(errors="replace"))

    def disassembly(self) -> str:
        """A listing: byte offset, encoding and text of every instruction, with kernels as labels."""
        labels = {kernel.entry: kernel.name for kernel in self.kernels.values()}
        lines = []
        for inst in self.instructions:
            if inst.pc in labels:
                lines.append(f"{labels[inst.pc]}:")
            words = (self.text[at : at + 4][::-1].hex() for at in range(inst.pc, inst.pc + inst.size, 4))
            lines.append(f"  {inst.pc:6x}:  {' '.join(words):26}  {inst.text}")
        return "\n".join(lines)

    def without(self, pcs: Iterable[int]) -> Program:
        """A copy in which the instructions at these byte offsets are `s_nop 0`: faults to test checks with.

        Raises:
            ValueError: no instruction starts at an offset.
        """
        copy = Program(self._code_object, self.name)
        for pc in pcs:
            if _native.library().emu_program_erase(copy.handle, pc):
                raise ValueError(f"no instruction starts at 0x{pc:x}")
        return copy
