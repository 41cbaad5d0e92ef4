"""Plans of the native CPU kernels: made from host addresses, run on addresses, with no tensor library."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from rocade_kernels import _abi, _native, _settings

AUTO_SHARE, NEVER_SHARE, ALWAYS_SHARE = -1, 0, 1
BEST_ISA = -1


class LevelArrays(NamedTuple):
    """One level's plan arrays as addresses of contiguous int32; `page_size` 0 means dense K and V."""

    qo_indptr: int
    kv_indptr: int
    kv_len: int
    batch: int
    page_size: int


class PlanArgs(NamedTuple):
    """Everything a plan depends on, in the order of `rk_plan_args` (cpu/rocade_cpu.h), after the levels."""

    num_rows: int
    num_qo_heads: int
    num_kv_heads: int
    head_dim_qk: int
    head_dim_vo: int
    kv_dtype: int
    mask: int = _abi.MASK_NONE
    mask_indptr: int = 0  # address of int64 [batch + 1]
    window_left: int = -1
    alibi: int = 0
    fixed_split_size: int = 0
    disable_split: int = 0
    share: int = AUTO_SHARE
    threads: int = 1
    isa: int = BEST_ISA


class Unit(NamedTuple):
    """One entry of a work list: a block of rows against a range of keys, by global key position."""

    row_begin: int
    row_end: int
    key_begin: int
    key_end: int
    level: int
    request: int
    heads: int  # KV heads one item takes
    part: int  # first partial row, -1 when the unit writes the result
    packed: int


class NativeError(ValueError):
    """The library refused arguments; the text says what kind of fault it found."""


def check(status: int, what: str) -> None:
    """Raise `NativeError`, or `MemoryError`, unless the library's status is 0."""
    if status == 2:
        raise MemoryError(f"{what}: {_abi.STATUS[status]}")
    if status:
        raise NativeError(f"{what}: {_abi.STATUS.get(status, f'status {status}')}")


def isa_names() -> list[str]:
    """Instruction sets this library and this CPU have, worst first."""
    lib = _native.library()
    return [lib.rk_isa_name(i).decode() for i in range(lib.rk_isa_count())]


def chosen_isa() -> int:
    """The instruction set that `ROCADE_CPU_ISA` asks for, as a number; -1 (the best) when it is not set."""
    name = _settings.CPU_ISA.read()
    if not name:
        return BEST_ISA
    names = isa_names()
    if name not in names:
        raise ValueError(f"{_settings.CPU_ISA.name} is {name!r}; this machine has {', '.join(names)}")
    return names.index(name)


class NativePlan:
    """A work list held by the library; freed with this object."""

    __slots__ = ("_handle", "_lib", "num_items", "partial_rows", "shared_nodes", "workspace_bytes")

    def __init__(self, levels: list[LevelArrays], args: PlanArgs) -> None:
        """Plan; the arrays are copied. `NativeError` when they contradict each other."""
        self._handle = 0
        self._lib = _native.library()
        packed = b"".join([_abi.LEVEL.pack(*level) for level in levels])
        buffer = ctypes.create_string_buffer(packed, len(packed))
        handle = ctypes.c_void_p()
        facts = (ctypes.c_int64 * _abi.PLAN_FACTS)()
        plan = _abi.PLAN.pack(ctypes.addressof(buffer), len(levels), *args)
        check(self._lib.rk_plan_create(plan, ctypes.byref(handle), facts), "plan")
        self._handle = handle.value or 0
        self.workspace_bytes, self.num_items, self.shared_nodes, self.partial_rows = facts[:4]

    def __del__(self) -> None:
        if self._handle:
            self._lib.rk_plan_free(self._handle)

    def run(self, packed: bytes) -> None:
        """Run on `rk_run_args` as packed by `_abi.RUN`; the caller keeps every tensor alive."""
        check(self._lib.rk_plan_run(self._handle, packed), "run")

    def units(self) -> list[Unit]:
        """The work list, for tests and for explaining a plan."""
        count = self._lib.rk_plan_units(self._handle, None, 0)
        values = (ctypes.c_int64 * (_abi.UNIT_FIELDS * count))()
        self._lib.rk_plan_units(self._handle, values, count)
        width = _abi.UNIT_FIELDS
        return [Unit(*values[i * width : (i + 1) * width]) for i in range(count)]
