"""`Target`: facts about one kind of silicon, each with its source, and the names that devices go by.

What the silicon can do, not what rocade supports: that is computed from rows.
"""

from __future__ import annotations

import enum
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from arch_caps._types import DType, Level

T = TypeVar("T")
_SM = re.compile(r"sm_?(\d+)[a-z]?$")


class Vendor(enum.StrEnum):
    """Who made the device; `cpu` stands for any host processor."""

    AMD = "amd"
    NVIDIA = "nvidia"
    CPU = "cpu"


class Fp8(enum.StrEnum):
    """Which 8-bit float encoding the silicon's own instructions speak."""

    FNUZ = "FNUZ"
    OCP = "OCP"
    NONE = "none"


class Feature(enum.StrEnum):
    """A capability of silicon that a kernel may depend on. Every target gives it a level."""

    MATRIX_FP16 = "matrix instructions, fp16 in, fp32 out"
    MATRIX_BF16 = "matrix instructions, bf16 in, fp32 out"
    MATRIX_FP32 = "matrix instructions, fp32 in and out"
    MATRIX_REDUCED_FP32 = "matrix instructions on fp32 of reduced precision (xf32, tf32)"
    MATRIX_FP8 = "matrix instructions, fp8 in, fp32 out"
    MATRIX_SCALED = "matrix instructions with block scales (fp8, fp6, fp4)"
    FP8_CONVERT = "conversion between fp8 and fp32"
    BF16_CONVERT = "rounding fp32 to bf16"
    PACKED_FP32_FMA = "two fp32 multiply-adds per lane and instruction"
    DIRECT_TO_LDS_32 = "32-bit loads from memory to LDS, past the registers"
    DIRECT_TO_LDS_128 = "128-bit loads from memory to LDS, past the registers"
    LDS_TRANSPOSE_READ = "transposing LDS reads of 16-bit elements"
    LANE_SWAP = "exchange of half waves between two registers"
    EARLY_START = "a kernel may start before the one in front of it has ended"


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    """A value and where it comes from. None means not known, or that there is no such thing."""

    value: T | None
    source: str


@dataclass(frozen=True, slots=True)
class Has:
    """How a target has a feature, and where that comes from."""

    feature: Feature
    level: Level
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """One dense matrix instruction of a wave, `[m, k] x [k, n]`; it busies the unit for `clocks`."""

    name: str
    m: int
    n: int
    k: int
    in_dtype: DType
    out_dtype: DType
    clocks: int | None  # None: not known
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sku:
    """One product with this silicon. None means not known."""

    name: str
    compute_units: int | None
    clock_mhz: int | None  # highest engine clock
    bandwidth_gbs: int | None  # peak, 1e9 bytes a second
    last_level_cache_mib: int | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Facts of one kind of silicon. Checks itself when it is made, and reports all problems at once."""

    name: str
    vendor: Vendor
    title: str  # column heading of the matrix
    wave_size: Fact[int]  # lanes that run in lock step
    lds_bytes: Fact[int]  # local (shared) memory that one workgroup may use
    lds_banks: Fact[int]  # of 32 bits
    simds: Fact[int]  # per compute unit
    vector_registers: Fact[int]  # 32-bit registers per lane, for all waves of a SIMD together
    vector_granule: Fact[int]  # registers per lane are given to a wave in blocks of so many
    waves_per_simd: Fact[int]  # at most, however few registers they use
    cache_line_bytes: Fact[int]
    fp8: Fact[Fp8]
    direct_to_lds_bits: Fact[tuple[int, ...]]  # widths per lane
    skus: tuple[Sku, ...]
    matrix: tuple[Matrix, ...]
    features: tuple[Has, ...]

    def __post_init__(self) -> None:
        problems = [
            *_fact_problems(self),
            *_feature_problems(self),
            *_matrix_problems(self),
            *_sku_problems(self),
        ]
        if problems:
            raise ValueError(f"target {self.name}: " + "; ".join(problems))

    def level(self, feature: Feature) -> Level:
        """How this target has a feature."""
        return self.fact(feature).level

    def fact(self, feature: Feature) -> Has:
        """Level and source of a feature."""
        return next(has for has in self.features if has.feature is feature)


def target_of(name: str) -> str:
    """Normalise a device name to a target name, whether the table knows that target or not.

    `"gfx942:sramecc+:xnack-"` -> `"gfx942"`; `"sm90a"` -> `"sm_90"`; `"cpu"` -> this machine's CPU target.
    """
    base = name.strip().split(":")[0].lower()
    if base == "cpu":
        return "cpu-x86_64" if platform.machine().lower() in ("x86_64", "amd64") else "cpu-generic"
    match = _SM.match(base)
    return f"sm_{match.group(1)}" if match else base


def _fact_problems(target: Target) -> Iterator[str]:
    for field in fields(target):
        fact = getattr(target, field.name)
        if field.name in ("name", "title"):
            if not isinstance(fact, str) or not fact:
                yield f"{field.name} is empty"
        elif isinstance(fact, Fact):
            yield from (f"{field.name}: {text}" for text in _value_problems(field.name, fact))
        elif field.name in ("vendor", "skus", "matrix", "features"):
            wanted = Vendor if field.name == "vendor" else tuple
            if not isinstance(fact, wanted):
                yield f"{field.name} is no {wanted.__name__}"
        else:
            yield f"{field.name} is not a Fact"


def _value_problems(name: str, fact: Fact[Any]) -> Iterator[str]:
    if not fact.source:
        yield "no source"
    if fact.value is None:
        return
    if name == "fp8":
        if not isinstance(fact.value, Fp8):
            yield f"{fact.value!r} is no Fp8"
    elif name == "direct_to_lds_bits":
        if not isinstance(fact.value, tuple) or any(
            bits not in (8, 16, 32, 64, 96, 128) for bits in fact.value
        ):
            yield f"{fact.value!r} is no tuple of load widths"
    elif type(fact.value) is not int or fact.value < 0:
        yield f"{fact.value!r} is no count"


def _feature_problems(target: Target) -> Iterator[str]:
    named = [has.feature for has in target.features]
    for feature in Feature:
        if named.count(feature) != 1:
            yield f"{feature.name} is given {named.count(feature)} times"
    for has in target.features:
        if not isinstance(has.level, Level):
            yield f"{has.feature} has no level"
        if not has.source:
            yield f"{has.feature} has no source"


_MATRIX_INPUT = {
    Feature.MATRIX_FP16: (DType.FP16,),
    Feature.MATRIX_BF16: (DType.BF16,),
}


def _matrix_problems(target: Target) -> Iterator[str]:
    names = [matrix.name for matrix in target.matrix]
    yield from (f"{name} is given twice" for name in {n for n in names if names.count(n) > 1})
    for matrix in target.matrix:
        if min(matrix.m, matrix.n, matrix.k) < 1 or (matrix.clocks is not None and matrix.clocks < 1):
            yield f"{matrix.name}: sizes and clocks are positive"
        if not matrix.source:
            yield f"{matrix.name}: no source"
    inputs = {matrix.in_dtype for matrix in target.matrix}
    for has in target.features:
        wanted = _MATRIX_INPUT.get(has.feature)
        if wanted and (has.level is Level.NATIVE) != bool(inputs.intersection(wanted)):
            yield f"{has.feature.name} is {has.level}, which the matrix instructions contradict"


def _sku_problems(target: Target) -> Iterator[str]:
    for sku in target.skus:
        numbers = (sku.compute_units, sku.clock_mhz, sku.bandwidth_gbs, sku.last_level_cache_mib)
        if not sku.name or not sku.source or any(n is not None and n < 1 for n in numbers):
            yield f"product {sku.name!r} lacks a name or a source, or has a number below 1"
