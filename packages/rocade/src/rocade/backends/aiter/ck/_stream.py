"""The stream that AITER's kernels are queued on: torch's current one of the tensors' device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def stream_of(device: torch.device) -> Iterator[int]:
    """Make `device` current, since AITER launches on the current one; gives the handle of its stream."""
    with torch.cuda.device(device):
        yield int(torch.cuda.current_stream(device).cuda_stream)
