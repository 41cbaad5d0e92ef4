"""The C ABI of the core (`core/abi.h`) in ctypes: structures, prototypes, and the loaded library."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, c_char, c_char_p, c_int, c_int32, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path

from rocade_emulator import _build

ABI_VERSION = 4
MAX_DIMS = 8
ERROR_BYTES = 1 << 16
TEXT_BYTES = 256


class RangeStruct(ctypes.Structure):
    """`emu_range`: a piece of memory that a kernel may touch."""

    _fields_ = (
        ("address", c_uint64),
        ("bytes", c_uint64),
        ("writable", c_uint32),
        ("undefined", c_uint32),
        ("element", c_uint32),
        ("dims", c_uint32),
        ("sizes", c_uint64 * MAX_DIMS),
        ("strides", c_uint64 * MAX_DIMS),
        ("origin", c_uint64),
    )


class ConfigStruct(ctypes.Structure):
    """`emu_config`: how to run a kernel."""

    _fields_ = (
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("kernarg", c_uint64),
        *(
            (name, c_uint32)
            for name in ("entry", "lds_bytes", "scratch_bytes", "vgprs", "sgprs", "accum_offset")
        ),
        *((name, c_uint32) for name in ("user_sgprs", "kernarg_preload", "workgroup_ids", "workitem_ids")),
        ("dispatch_packet", c_uint64),
        *((name, c_uint32) for name in ("checks", "schedule", "quantum")),
        ("seed", c_uint64),
        ("resident", c_uint32),
        ("threads", c_uint32),
        ("step_limit", c_uint64),
        ("max_reports", c_uint32),
    )


class ReportStruct(ctypes.Structure):
    """`emu_report`: one finding."""

    _fields_ = (
        ("check", c_uint32),
        ("severity", c_uint32),
        ("pc", c_uint32),
        ("group", c_uint32 * 3),
        ("wave", c_uint32),
        ("lane", c_int32),
        ("address", c_uint64),
        ("count", c_uint64),
        ("text", c_char * 160),
    )


class TraceStruct(ctypes.Structure):
    """`emu_trace`: one executed instruction."""

    _fields_ = (
        ("group", c_uint32 * 3),
        *((name, c_uint32) for name in ("wave", "pc", "kind", "first", "count")),
        ("exec", c_uint64),
        ("values", POINTER(c_uint32)),
    )


TRACE_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p, POINTER(TraceStruct))

UNITS = ("salu", "smem", "valu", "trans", "mfma", "lds", "vmem", "branch", "message", "other")
COUNTER_FIELDS = (
    "mfma_cycles",
    "valu_cycles",
    "trans_cycles",
    "salu_cycles",
    "lds_cycles",
    "lds_ideal_cycles",
    "bytes_read",
    "bytes_written",
    "bytes_arguments",
    "cache_lines",
    "cache_lines_ideal",
    "waves",
    "groups",
)


class CountersStruct(ctypes.Structure):
    """`emu_counters`: totals of a launch."""

    _fields_ = (
        ("instructions", c_uint64),
        ("by_unit", c_uint64 * len(UNITS)),
        *((name, c_uint64) for name in COUNTER_FIELDS),
    )


_PROTOTYPES: dict[str, tuple[object, list[object]]] = {
    "emu_abi_version": (c_int, []),
    "emu_program_create": (
        c_int,
        [c_int, c_void_p, c_size_t, c_int, POINTER(c_void_p), c_char_p, c_size_t],
    ),
    "emu_program_destroy": (None, [c_void_p]),
    "emu_program_count": (c_size_t, [c_void_p]),
    "emu_program_inst": (
        c_int,
        [c_void_p, c_size_t, c_char_p, c_size_t, POINTER(c_uint32), POINTER(c_uint32)],
    ),
    "emu_program_erase": (c_int, [c_void_p, c_uint32]),
    "emu_table_row": (c_int, [c_size_t, POINTER(c_char_p), POINTER(c_int), POINTER(c_int), POINTER(c_int)]),
    "emu_table_types": (c_int, [c_size_t, POINTER(c_uint8)]),
    "emu_launch_create": (c_int, [c_void_p, POINTER(c_void_p)]),
    "emu_launch_destroy": (None, [c_void_p]),
    "emu_launch_add_range": (c_int, [c_void_p, POINTER(RangeStruct)]),
    "emu_launch_run": (c_int, [c_void_p, POINTER(ConfigStruct), c_char_p, c_size_t]),
    "emu_launch_reports": (c_size_t, [c_void_p, POINTER(ReportStruct), c_size_t]),
    "emu_launch_counters": (None, [c_void_p, POINTER(CountersStruct)]),
    "emu_launch_steps": (c_uint64, [c_void_p]),
    "emu_launch_stop": (None, [c_void_p]),
    "emu_launch_trace": (None, [c_void_p, TRACE_FUNCTION, c_void_p]),
    "emu_yardstick": (c_uint64, [c_uint64]),
}


def load(path: Path) -> ctypes.CDLL:
    """Load a library and check that it speaks this package's ABI.

    Raises:
        OSError: it cannot be loaded, or is of another version.
        AttributeError: it lacks a function.
    """
    lib = ctypes.CDLL(str(path))
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    if lib.emu_abi_version() != ABI_VERSION:
        raise OSError(f"{path} has ABI version {lib.emu_abi_version()}; expected {ABI_VERSION}")
    return lib


@functools.cache
def library() -> ctypes.CDLL:
    """The core.

    Raises:
        BuildError: there is none and none could be built, or it cannot be loaded.
    """
    path = _build.library_path()
    try:
        return load(path)
    except (OSError, AttributeError) as error:
        raise _build.BuildError(f"{path} cannot be loaded: {error}") from error
