"""`Row`: what one implementation of one operation accepts. Data; `_reasons.py` compares it with a request."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields

from arch_caps._code_object import CodeObject
from arch_caps._kernel import Kernel
from arch_caps._predicate import ANY, PREDICATES, Predicate
from arch_caps._target import Feature
from arch_caps._types import Op, Status


class Lse(enum.StrEnum):
    """What log-sum-exp an implementation computes. Callers get log2, whatever the kernel's own base."""

    LOG2 = "log2"
    NATURAL = "natural log, converted to log2"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepts:
    """One predicate for every field of a request that can refuse. No default: a new axis needs an answer."""

    q_dtype: Predicate
    kv_dtype: Predicate
    o_dtype: Predicate
    head_dim_qk: Predicate
    head_dim_vo: Predicate
    group_size: Predicate
    kv_layout: Predicate
    page_size: Predicate
    mask: Predicate
    window_left: Predicate
    logits_soft_cap: Predicate
    pos_encoding: Predicate
    num_levels: Predicate
    graph: Predicate
    fixed_split_size: Predicate
    disable_split_kv: Predicate
    # Sizes that only an implementation with narrow counters limits.
    num_qo_heads: Predicate = ANY
    max_kv_len: Predicate = ANY

    def __post_init__(self) -> None:
        wrong = [f.name for f in fields(self) if not isinstance(getattr(self, f.name), PREDICATES)]
        if wrong:
            raise TypeError(f"Accepts: not a predicate: {', '.join(wrong)}")


@dataclass(frozen=True, slots=True)
class Need:
    """A feature of the silicon that the code uses when `field` of the request matches `predicate`."""

    feature: Feature
    field: str
    predicate: Predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """(op, backend) and what that implementation accepts, computes and needs."""

    op: Op
    backend: str
    status: Status
    entry: str  # "module:attribute.attribute" of the code that does the work
    targets: Predicate  # over target names
    accepts: Accepts
    lse: Lse
    partial_state: bool  # merges a caller's (out, lse) into the result in the same run
    source: str  # where the limits come from
    native: tuple[str, ...] = ()  # files and directories of the checkout that hold its native sources
    kernels: tuple[Kernel, ...] = ()  # GPU kernels to compile ahead of time for `targets`
    objects: tuple[CodeObject, ...] = ()  # prebuilt GPU kernels of another project that it launches
    needs: tuple[Need, ...] = ()
    note: str = ""  # one plain sentence for the matrix

    def __post_init__(self) -> None:
        problems = []
        if self.entry.count(":") != 1 or not all(self.entry.split(":")):
            problems.append(f"entry {self.entry!r} is not 'module:attribute'")
        if not isinstance(self.targets, PREDICATES):
            problems.append(f"targets {self.targets!r} is not a predicate")
        if any(mark in self.note for mark in "|\n<"):
            problems.append("note holds a character that breaks a Markdown table")
        if problems:
            raise ValueError(f"row ({self.op}, {self.backend}): " + "; ".join(problems))
