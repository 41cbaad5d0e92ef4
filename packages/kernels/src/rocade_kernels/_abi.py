"""The structs of cpu/rocade_cpu.h as packed bytes.

8 bytes a field: q for integers and addresses, d for doubles. Packing a tuple is several times faster than
filling a `ctypes.Structure`, and a plan has few microseconds to spend. Fields are in the header's order;
sizes are compared when the library is loaded.
"""

from __future__ import annotations

from struct import Struct

LEVEL_ARRAYS = Struct("@7q")
LEVEL = Struct("@5q")
PLAN = Struct("@17q")
LEVEL_TENSORS = Struct("@11q")
RUN = Struct("@23q3d3q")
MERGE = Struct("@22q")
MERGE_PAIR = Struct("@27q")
APPEND = Struct("@28q")
STRUCTS = (LEVEL_ARRAYS, LEVEL, PLAN, LEVEL_TENSORS, RUN, MERGE, MERGE_PAIR, APPEND)
PLAN_FACTS = 6
UNIT_FIELDS = 9

FP32, FP16, BF16 = 0, 1, 2
MASK_NONE, MASK_CAUSAL, MASK_CUSTOM = 0, 1, 2

STATUS = {
    1: "an argument is out of range, or an array disagrees with another",
    2: "out of memory",
    3: "cascade levels do not nest: each level's rows must lie within a request of the level before",
    4: "the custom mask has fewer bits than rows times keys",
    5: "a row has more keys than the kernels can number (2^31)",
}
