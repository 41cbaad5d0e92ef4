"""What compiled code says about itself: for which target it is, which kernel it holds, and what that uses."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rocade_kernels.build._code_object import ImageError, kernel_notes
from rocade_kernels.devices import Device
from rocade_kernels.instances import Instance


@dataclass(frozen=True)
class Resources:
    """What a kernel takes of the device. None: the target does not tell (PTX has no real registers yet)."""

    kernarg_bytes: int
    lds_bytes: int  # static; a launch may ask for more
    scratch_bytes: int  # per lane
    max_block: int | None  # work items of a workgroup
    vgprs: int | None = None  # vector registers of a lane, AGPRs among them
    agprs: int | None = None
    sgprs: int | None = None
    spills: int | None = None  # registers, vector and scalar


def waves_per_simd(used: Resources, device: Device) -> int | None:
    """How many waves a SIMD holds, by registers and static local memory; None where registers are not known.

    Local memory counts for workgroups of the largest size that the kernel allows.
    """
    if used.vgprs is None:
        return None
    blocks = max(1, -(-used.vgprs // device.vector_granule))
    limits = [device.waves_per_simd, device.vector_registers // (blocks * device.vector_granule)]
    if used.lds_bytes and used.max_block:
        groups = device.lds_bytes // used.lds_bytes
        limits.append(groups * -(-used.max_block // device.wave_size) // device.simds)
    return min(limits)


def check(image: bytes, instance: Instance) -> Resources:
    """Read `image`, and refuse it unless it is this instance's and keeps everything in registers.

    Raises:
        ImageError: it is torn, of another kernel or target, or spills.
    """
    used = read(image, instance)
    if used.scratch_bytes or used.spills:
        raise ImageError(
            f"{instance.name} spills: {used.spills or 0} registers, {used.scratch_bytes} bytes of scratch "
            "memory a lane; kernels here must not"
        )
    return used


def read(image: bytes, instance: Instance) -> Resources:
    """What the image says; `ImageError` when it is torn, or of another kernel or target."""
    return _of_ptx(image, instance) if instance.is_ptx else _of_code_object(image, instance)


def _of_code_object(image: bytes, instance: Instance) -> Resources:
    target, kernels = kernel_notes(image)
    if target.rpartition("--")[2].split(":")[0] != instance.target:
        raise ImageError(f"it is for {target}, not for {instance.target}")
    notes = next((notes for notes in kernels if notes.get(".name") == instance.entry), None)
    if notes is None:
        raise ImageError(f"it holds {', '.join(str(n.get('.name')) for n in kernels)}, not {instance.entry}")

    def number(key: str) -> int:
        value = notes.get(key, 0)
        if type(value) is not int or value < 0:
            raise ImageError(f"{key} is {value!r}")
        return value

    return Resources(
        kernarg_bytes=number(".kernarg_segment_size"),
        lds_bytes=number(".group_segment_fixed_size"),
        scratch_bytes=number(".private_segment_fixed_size"),
        max_block=number(".max_flat_workgroup_size") or None,
        vgprs=number(".vgpr_count"),
        agprs=number(".agpr_count"),
        sgprs=number(".sgpr_count"),
        spills=number(".vgpr_spill_count") + number(".sgpr_spill_count"),
    )


_PTX_TARGET = re.compile(r"^\.target\s+(\w+)", re.MULTILINE)
_PTX_SHARED = re.compile(r"^\s*\.shared\s+(?:\.align\s+\d+\s+)?\.b8\s+[\w$]+\[(\d+)\]", re.MULTILINE)
_PTX_LOCAL = re.compile(r"^\s*\.local\s+(?:\.align\s+\d+\s+)?\.b8\s+[\w$]+\[(\d+)\]", re.MULTILINE)
_PTX_PARAM = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(b8|b32|u32|b64|u64)\s+[\w$]+(?:\[(\d+)\])?")
_PTX_BLOCK = re.compile(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_PARAM_BYTES = {"b8": 1, "b32": 4, "u32": 4, "b64": 8, "u64": 8}


def _of_ptx(image: bytes, instance: Instance) -> Resources:
    try:
        text = image.decode("ascii")
    except UnicodeDecodeError as error:
        raise ImageError(f"it is no PTX: {error}") from error
    target = _PTX_TARGET.search(text)
    if target is None or target[1] != instance.target:
        raise ImageError(f"it is for {target[1] if target else 'no target'}, not for {instance.target}")
    entry = re.search(rf"\.entry\s+{instance.entry}\(([^)]*)\)([^{{]*)\{{(.*)\n\}}\s", text, re.DOTALL)
    if entry is None:
        raise ImageError(f"it holds no whole kernel {instance.entry}")
    parameters, directives, _ = entry.groups()
    block = _PTX_BLOCK.search(directives)
    sizes = [int(size) for size in block.groups() if size] if block else []
    max_block = 1
    for size in sizes:
        max_block *= size
    return Resources(
        kernarg_bytes=sum(_PARAM_BYTES[kind] * int(n or 1) for kind, n in _PTX_PARAM.findall(parameters)),
        lds_bytes=sum(map(int, _PTX_SHARED.findall(text))),
        scratch_bytes=sum(map(int, _PTX_LOCAL.findall(text))),
        max_block=max_block if sizes else None,
    )
