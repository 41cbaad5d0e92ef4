"""The buffers of one run: parts of the caller's workspace when that is large enough, else allocated."""

from __future__ import annotations

from math import prod

import torch

from arch_caps import Request
from rocade.backends.torch._tiles import Batch

_ALIGN = 64  # bytes


class Layout:
    """Bytes of each named buffer: the most that any batch of a plan needs."""

    def __init__(self, request: Request, batches: list[Batch]) -> None:
        tokens = max((batch.size * batch.chunk for batch in batches), default=0)
        scores = max((b.size * b.chunk * b.rows for b in batches), default=0) * request.num_qo_heads
        widest = max(request.head_dim_qk, request.head_dim_vo)
        itemsize = 0 if request.kv_dtype.size == 4 else request.kv_dtype.size
        sizes = {
            "k": 4 * tokens * request.num_kv_heads * request.head_dim_qk,
            "v": 4 * tokens * request.num_kv_heads * request.head_dim_vo,
            "raw": itemsize * tokens * request.num_kv_heads * widest,
            "logits": 4 * scores,
        }
        self.offset: dict[str, int] = {}
        self.total = 0
        for name, size in sizes.items():
            self.offset[name] = self.total
            self.total += -(-size // _ALIGN) * _ALIGN


class Scratch:
    """Hands out the named buffers. Asking for a name again overwrites what it held."""

    def __init__(self, layout: Layout, workspace: torch.Tensor | None, device: torch.device) -> None:
        usable = (
            workspace is not None
            and workspace.device == device
            and workspace.numel() >= layout.total
            and workspace.is_contiguous()
            and workspace.data_ptr() % _ALIGN == 0
            and workspace.storage_offset() % _ALIGN == 0
        )
        self._offset = layout.offset
        self._bytes = workspace if usable else torch.empty(layout.total, dtype=torch.uint8, device=device)

    def like(self, name: str, shape: torch.Size, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The buffer `name` as a tensor of `shape` and `dtype`."""
        assert self._bytes is not None
        first = self._offset[name]
        return self._bytes[first : first + prod(shape) * dtype.itemsize].view(dtype).view(shape)
