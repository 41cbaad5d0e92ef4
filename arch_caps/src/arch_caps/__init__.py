"""rocade's capability table: what each backend accepts on each target, and every reason for a refusal.

Standard library only: reading the table needs neither torch nor a GPU, and importing it never fails.
"""

from arch_caps._code_object import CodeObject, Product
from arch_caps._defects import Defect
from arch_caps._evidence import (
    Evidence,
    evidence_dir,
    gather_evidence,
    is_fresh,
    pack_evidence,
    read_evidence,
    source_hashes,
    unpack_evidence,
    write_evidence,
)
from arch_caps._kernel import Kernel
from arch_caps._preference import FAMILIES, members, preference
from arch_caps._reasons import (
    ArchCapabilityError,
    KnownBadWarning,
    Reason,
    ignores_lengths,
    partial_state_reasons,
    reasons,
)
from arch_caps._request import Request
from arch_caps._row import Row
from arch_caps._sources import source_hash
from arch_caps._table import DEFECTS, ROWS, TARGETS, row
from arch_caps._target import Feature, Target, Vendor, target_of
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
from arch_caps.code_objects.aiter import OBJECTS as AITER_OBJECTS
from arch_caps.code_objects.aiter import PRODUCTS as AITER_PRODUCTS

__all__ = [
    "AITER_OBJECTS",
    "AITER_PRODUCTS",
    "DEFECTS",
    "FAMILIES",
    "ROWS",
    "TARGETS",
    "ArchCapabilityError",
    "CodeObject",
    "DType",
    "Defect",
    "Evidence",
    "EvidenceKind",
    "Feature",
    "Kernel",
    "KnownBadWarning",
    "Layout",
    "Level",
    "MaskKind",
    "Op",
    "PosEncoding",
    "Product",
    "Reason",
    "Request",
    "Row",
    "Status",
    "Target",
    "Toolchain",
    "Vendor",
    "evidence_dir",
    "gather_evidence",
    "ignores_lengths",
    "is_fresh",
    "members",
    "pack_evidence",
    "partial_state_reasons",
    "preference",
    "read_evidence",
    "reasons",
    "row",
    "source_hash",
    "source_hashes",
    "target_of",
    "unpack_evidence",
    "write_evidence",
]
