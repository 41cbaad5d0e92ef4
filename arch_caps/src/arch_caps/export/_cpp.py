"""The C++ header: facts of the silicon as constexpr values, for kernels and planners."""

from __future__ import annotations

from collections.abc import Mapping

from arch_caps._target import Fact, Fp8, Target

PROLOGUE = """\
#pragma once

namespace rocade::arch_caps {

enum class Fp8 { none, fnuz, ocp };

/// Facts of one kind of silicon. Numbers that are not known are 0.
struct Target {
  const char* name;
  /// Lanes that run in lock step.
  int wave_size;
  /// Local memory that one workgroup may use.
  int lds_bytes;
  /// Of 32 bits.
  int lds_banks;
  /// Per compute unit.
  int simds;
  /// 32-bit registers per lane, for all waves of a SIMD together.
  int vector_registers;
  int cache_line_bytes;
  /// Widest load per lane from memory to LDS, 0 if there is none.
  int max_direct_to_lds_bits;
  /// Encoding of the silicon's own fp8 instructions.
  Fp8 fp8;
};
"""


def cpp_header(targets: Mapping[str, Target]) -> str:
    """The header's text, below its first line."""
    values = "\n".join(_definition(target) for target in targets.values())
    return f"{PROLOGUE}\n{values}\n\n}} // namespace rocade::arch_caps\n"


def _definition(target: Target) -> str:
    widths = target.direct_to_lds_bits.value or (0,)
    numbers = (
        _number(target.wave_size),
        _number(target.lds_bytes),
        _number(target.lds_banks),
        _number(target.simds),
        _number(target.vector_registers),
        _number(target.cache_line_bytes),
        max(widths),
    )
    fp8 = (target.fp8.value or Fp8.NONE).lower()
    listed = ", ".join(map(str, numbers))
    return f'inline constexpr Target {_identifier(target.name)}{{"{target.name}", {listed}, Fp8::{fp8}}};'


def _number(fact: Fact[int]) -> int:
    return fact.value or 0


def _identifier(name: str) -> str:
    return name.replace("-", "_")
