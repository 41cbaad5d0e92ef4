"""From a torch device to the capability table's names for it. The only reader of `gcnArchName`."""

from __future__ import annotations

import functools
from importlib import metadata

import torch

import arch_caps
from rocade import _emulation
from rocade._place import Place


def place(device: torch.device) -> Place:
    """Place of `device`: this machine's CPU, a gfx name on ROCm, `sm_NN` on CUDA, else the device type.

    Inside `rocade.emulate`, a CPU tensor is on the GPU that is emulated. A device that the table does not
    know gets a name too; every row then refuses it with a reason.
    """
    emulation = _emulation.current()
    if emulation is not None and device.type == "cpu":
        return Place(emulation.target, True)
    return _real(device)


def target(device: torch.device) -> str:
    """The target of a device's place."""
    return place(device).target


@functools.lru_cache(maxsize=64)
def _real(device: torch.device) -> Place:
    return Place(_target(device), False)


def _target(device: torch.device) -> str:
    if device.type != "cuda":
        return arch_caps.target_of(device.type)
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip is not None:
        return arch_caps.target_of(properties.gcnArchName)
    return arch_caps.target_of(f"sm_{properties.major}{properties.minor}")


@functools.cache
def toolchain() -> arch_caps.Toolchain:
    """Versions in this process that known defects depend on."""
    return arch_caps.Toolchain(rocm=torch.version.hip, aiter=_installed("amd-aiter"))


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
