"""rocade's capability table: what each backend accepts on each target, and every reason for a refusal.

Standard library only: reading the table needs neither torch nor a GPU, and importing it never fails.
"""

from arch_caps._defects import Defect
from arch_caps._reasons import ArchCapabilityError, Reason, reasons
from arch_caps._request import Request
from arch_caps._row import Row
from arch_caps._table import ROWS, TARGETS, preference, row
from arch_caps._target import Target, target_of
from arch_caps._types import (
    DType,
    EvidenceKind,
    Layout,
    Level,
    MaskKind,
    Op,
    PosEncoding,
    Status,
)
from arch_caps._versions import Toolchain

__all__ = [
    "ROWS",
    "TARGETS",
    "ArchCapabilityError",
    "DType",
    "Defect",
    "EvidenceKind",
    "Layout",
    "Level",
    "MaskKind",
    "Op",
    "PosEncoding",
    "Reason",
    "Request",
    "Row",
    "Status",
    "Target",
    "Toolchain",
    "preference",
    "reasons",
    "row",
    "target_of",
]
