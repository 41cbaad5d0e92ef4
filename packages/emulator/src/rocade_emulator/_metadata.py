"""What a code object says about its kernels: the 64-byte kernel descriptors and the metadata note."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from rocade_emulator._elf import Elf, ElfError, Symbol
from rocade_emulator._msgpack import MsgpackError, unpack

_DESCRIPTOR = struct.Struct("<IIIIq20xIIIHHI")
PRELOAD_PROLOGUE = 256  # bytes of code before the entry of hardware that preloads kernel arguments

# User SGPRs in hardware order: bit of kernel_code_properties and bit of the C ABI.
_USER_SGPRS = ((1, 1), (2, 2), (3, 4), (4, 8), (6, 16))
_REQUIRED = ".reqd_workgroup_size"
_POINTER_BYTES = 8
_MAX_KERNARG_BYTES = 1 << 20  # far beyond any kernel: a malformed file must not ask for all memory
_MAX_SCRATCH_BYTES = (1 << 13) * 1024 // 64  # of a lane; hardware sets 13 bits of KiB a wave
_SCRATCH_SGPRS = ((0, "private_segment_buffer"), (5, "flat_scratch_init"))


@dataclass(frozen=True, slots=True)
class Argument:
    """One kernel argument; `kind` is the metadata's ("by_value", "global_buffer", "hidden_...")."""

    name: str
    kind: str
    offset: int  # bytes into the kernel argument block
    size: int  # bytes
    access: str = ""  # "read_only", "write_only" or "read_write" where the compiler knows it

    @property
    def hidden(self) -> bool:
        """Whether the launcher fills it in, not the caller."""
        return self.kind.startswith("hidden_")

    @property
    def pointer(self) -> bool:
        """Whether it is an address of global memory."""
        return self.kind == "global_buffer"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a code object: where it starts, what it is given, and what it takes of a compute unit.

    `vgprs` counts the unified vector registers (VGPRs below `accum_offset`, AGPRs from there on; 0 is no
    AGPRs). `user_sgprs` and `workgroup_ids` are bit sets as in `core/abi.h`; `preload` is the number of
    kernel argument dwords that hardware puts in SGPRs.
    """

    name: str
    entry: int  # bytes into the text section
    args: tuple[Argument, ...]
    kernarg_bytes: int
    lds_bytes: int
    scratch_bytes: int  # of a lane
    vgprs: int
    sgprs: int
    accum_offset: int
    user_sgprs: int
    workgroup_ids: int
    workitem_ids: int
    preload: int
    max_block: int = 1024  # work items
    required_block: tuple[int, ...] = ()
    spills: int = 0  # vector registers spilled
    wave_size: int = field(default=64)

    @property
    def explicit_args(self) -> tuple[Argument, ...]:
        """The arguments that the caller gives."""
        return tuple(a for a in self.args if not a.hidden)


def kernels_of(elf: Elf) -> dict[str, Kernel]:
    """Every kernel of a code object by its name.

    Raises:
        ElfError: descriptor or metadata are missing, malformed or ask for what is not emulated.
    """
    symbols = elf.symbols()
    notes = {str(note.get(".name")): note for note in _kernel_notes(elf)}
    found = {}
    for name, symbol in symbols.items():
        if name.endswith(".kd"):
            note = notes.get(name.removesuffix(".kd"), {})
            kernel = _kernel(elf, symbol, note)
            found[kernel.name] = kernel
    if not found:
        raise ElfError("it holds no kernel descriptor (a symbol NAME.kd)")
    return dict(sorted(found.items(), key=lambda item: item[1].entry))


def _kernel_notes(elf: Elf) -> Iterator[dict[str, object]]:
    try:
        tree = unpack(elf.metadata())
    except MsgpackError as error:
        raise ElfError(f"its metadata note cannot be read: {error}") from error
    kernels = tree.get("amdhsa.kernels") if isinstance(tree, dict) else None
    if not isinstance(kernels, list) or not all(isinstance(kernel, dict) for kernel in kernels):
        raise ElfError("its metadata note has no list amdhsa.kernels")
    yield from kernels


def _kernel(elf: Elf, symbol: Symbol, note: dict[str, object]) -> Kernel:
    name = symbol.name.removesuffix(".kd")
    raw = _bytes_at(elf, symbol.address, _DESCRIPTOR.size, symbol.name)
    lds, scratch, kernarg, _, entry, rsrc3, rsrc1, rsrc2, properties, preload, _ = _DESCRIPTOR.unpack(raw)
    _refuse_unsupported(name, properties, preload)
    text = elf.section(".text")
    start = symbol.address + entry - text.address
    if not 0 <= start < text.size:
        raise ElfError(f"kernel {name} starts at byte {start} of .text, which has {text.size}")
    kernarg = kernarg or _number(note, ".kernarg_segment_size", 0)
    if not 0 <= kernarg <= _MAX_KERNARG_BYTES:
        raise ElfError(f"kernel {name} asks for an argument block of {kernarg} bytes")
    if scratch >= _MAX_SCRATCH_BYTES:
        raise ElfError(
            f"kernel {name} asks for {scratch} bytes of private memory a lane; at most {_MAX_SCRATCH_BYTES}"
        )
    vgprs, accum_offset = _vector_registers(rsrc1, rsrc3, note)
    return Kernel(
        name=name,
        entry=start,
        args=tuple(_argument(name, arg) for arg in _list(note.get(".args"))),
        kernarg_bytes=kernarg,
        lds_bytes=lds,
        scratch_bytes=scratch,
        vgprs=vgprs,
        sgprs=((rsrc1 >> 6 & 0xF) // 2 + 1) * 16,
        accum_offset=accum_offset,
        user_sgprs=sum(abi for bit, abi in _USER_SGPRS if properties >> bit & 1),
        workgroup_ids=rsrc2 >> 7 & 7,
        workitem_ids=rsrc2 >> 11 & 3,
        preload=preload & 0x7F,
        max_block=_number(note, ".max_flat_workgroup_size", 1024),
        required_block=tuple(_integer(n, _REQUIRED) for n in _list(note.get(_REQUIRED))),
        spills=_number(note, ".vgpr_spill_count", 0),
    )


def _refuse_unsupported(name: str, properties: int, preload: int) -> None:
    for bit, what in _SCRATCH_SGPRS:
        if properties >> bit & 1:
            raise ElfError(f"kernel {name} asks for the user SGPRs {what}, which these targets do not use")
    if properties >> 10 & 1:
        raise ElfError(f"kernel {name} is compiled for waves of 32 lanes")
    if preload >> 7:
        raise ElfError(f"kernel {name} preloads arguments from dword {preload >> 7} on; only 0 is emulated")


def _vector_registers(rsrc1: int, rsrc3: int, note: dict[str, object]) -> tuple[int, int]:
    """Unified registers and accum_offset; without AGPRs the offset is 0."""
    total = ((rsrc1 & 0x3F) + 1) * 8
    accum_offset = ((rsrc3 & 0x3F) + 1) * 4
    if note.get(".agpr_count") == 0 or accum_offset >= total:
        return total, 0
    return total, accum_offset


def _bytes_at(elf: Elf, address: int, size: int, what: str) -> bytes:
    for segment in elf.segments():
        offset = address - segment.address
        if offset >= 0 and offset + size <= segment.file_size:
            return elf.segment_bytes(segment)[offset : offset + size]
    raise ElfError(f"{what} at 0x{address:x} lies in no load segment")


def _argument(kernel: str, entry: object) -> Argument:
    if not isinstance(entry, dict) or ".value_kind" not in entry:
        raise ElfError(f"an argument of kernel {kernel} is no map with a .value_kind in the metadata")
    found = Argument(
        name=str(entry.get(".name", "")),
        kind=str(entry[".value_kind"]),
        offset=_number(entry, ".offset"),
        size=_number(entry, ".size"),
        access=str(entry.get(".actual_access", entry.get(".access", ""))),
    )
    wrong_size = found.size != _POINTER_BYTES if found.pointer else not 0 < found.size <= _MAX_KERNARG_BYTES
    if found.offset < 0 or wrong_size:
        raise ElfError(f"kernel {kernel} has a {found.kind} of {found.size} bytes at {found.offset}")
    return found


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _integer(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ElfError(f"{what} in the metadata is {value!r}, not a number")
    return value


def _number(note: dict[str, object], key: str, default: int | None = None) -> int:
    """An entry that is a number; without a default it must be there."""
    return _integer(note.get(key, default), key)
