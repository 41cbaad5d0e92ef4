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


def check_not_capturing(device: torch.device) -> None:
    """A plan waits for its tables to arrive, and may have libraries loaded or built: not inside a graph.

    Raises:
        RuntimeError: the current stream is being captured.
    """
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "backend aiter_ck cannot plan while a graph is captured, and a single call plans each time: "
            "plan a wrapper before the capture, or leave the choice to backend='auto'"
        )
