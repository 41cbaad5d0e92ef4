"""Rotary position encoding inside attention: half-split (Llama) rotation over the whole head dimension."""

from __future__ import annotations

import torch

from arch_caps import Request


class Rope:
    """Rotates queries and keys by their global position."""

    def __init__(self, request: Request, device: torch.device) -> None:
        dim = request.head_dim_qk
        exponent = torch.arange(0, dim, 2, dtype=torch.float64, device=device) / dim
        # Angles stay in fp64: at position 1e5 an fp32 angle is already off by 4e-3 radian.
        self._frequency = request.rope_theta**-exponent / request.rope_scale

    def rotate(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Rotated copy of fp32 `x [..., heads, D]`; `position [...]` is that of its token."""
        angle = position.to(torch.float64)[..., None, None] * self._frequency
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        low, high = x.chunk(2, dim=-1)
        return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)
