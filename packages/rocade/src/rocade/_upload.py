"""From host memory to a GPU without waiting for it.

A plain `.to(device)` of host memory waits until the GPU has done everything that was queued before. What
goes through pinned memory of our own is queued instead: later work on the stream finds it, and the caller may
change its memory at once. PyTorch gives the pinned memory to nobody else before it has been read.
"""

from __future__ import annotations

import torch

CPU = torch.device("cpu")


def upload(given: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The tensor on a device: itself if it is there, else a copy."""
    if given.device == device:
        return given
    if device.type != "cuda" or not given.is_cpu:
        return given.to(device)
    return _pinned(given).to(device, non_blocking=True)


def write(to: torch.Tensor, values: torch.Tensor) -> None:
    """Copy values of the same shape into a tensor."""
    if to.is_cuda and values.is_cpu:
        to.copy_(_pinned(values), non_blocking=True)
    else:
        to.copy_(values)


def _pinned(given: torch.Tensor) -> torch.Tensor:
    """A copy in pinned memory, also of what the caller has pinned, who may change it."""
    return torch.empty(given.shape, dtype=given.dtype, device=CPU, pin_memory=True).copy_(given)
