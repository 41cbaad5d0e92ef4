"""Programs of small kernels in assembly: each a name and a body, with the descriptor that they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import rocade_emulator as emu


@dataclass(frozen=True)
class Resources:
    """What the descriptor of every kernel says."""

    vgprs: int = 512  # with AGPRs
    accum_offset: int = 256
    sgprs: int = 96
    scratch: int = 0  # bytes a lane
    lds: int = 0  # bytes


_DESCRIPTOR = """
.section .rodata,"a"
.p2align 6
.amdhsa_kernel {name}
  .amdhsa_next_free_vgpr {r.vgprs}
  .amdhsa_accum_offset {r.accum_offset}
  .amdhsa_next_free_sgpr {r.sgprs}
  .amdhsa_reserve_vcc 0
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_private_segment_fixed_size {r.scratch}
  .amdhsa_enable_private_segment {private}
  .amdhsa_group_segment_fixed_size {r.lds}
.end_amdhsa_kernel
.text
"""

_METADATA = """\
  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {r.lds}
    .private_segment_fixed_size: {r.scratch}
    .wavefront_size: 64
    .sgpr_count: {r.sgprs}
    .vgpr_count: {r.vgprs}
    .max_flat_workgroup_size: 1024
    .args:
      - .size: 8
        .offset: 0
        .value_kind: global_buffer
        .address_space: global
"""


def program(target: str, bodies: Mapping[str, str], resources: Resources | None = None) -> emu.Program:
    """A program with these kernels. Each takes one pointer; s[0:1] is the address of it."""
    has = resources or Resources()
    lines = [f'.amdgcn_target "amdgcn-amd-amdhsa--{target}"', ".text"]
    for name, body in bodies.items():
        lines += [f".globl {name}", ".p2align 8", f".type {name},@function", f"{name}:", body, "s_endpgm"]
        lines.append(_DESCRIPTOR.format(name=name, r=has, private=int(has.scratch > 0)))
    kernels = "".join(_METADATA.format(name=name, r=has) for name in bodies)
    lines.append(
        f".amdgpu_metadata\n---\namdhsa.version: [1, 2]\namdhsa.kernels:\n{kernels}.end_amdgpu_metadata"
    )
    return emu.Program.from_assembly("\n".join(lines) + "\n", target)


def launch(
    found: emu.Program, name: str, checks: str | tuple[str, ...] = "all", **options: object
) -> emu.Result:
    """Run a kernel with one wave and a null pointer."""
    return emu.launch(found, name, 1, 64, [None], checks=checks, **options)  # type: ignore[arg-type]
