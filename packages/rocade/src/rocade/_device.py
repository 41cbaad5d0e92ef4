"""From a torch device to the capability table's names for it. The only reader of `gcnArchName`."""

from __future__ import annotations

import functools
from importlib import metadata

import torch

import arch_caps


@functools.lru_cache(maxsize=64)
def target(device: torch.device) -> str:
    """Target of `device`: this machine's CPU, a gfx name on ROCm, `sm_NN` on CUDA, else the device type.

    A device that the table does not know gets a name too; every row then refuses it with a reason.
    """
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
