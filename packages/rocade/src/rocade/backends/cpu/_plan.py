"""A plan of the native CPU kernels: a work list in the library, and the addresses that a run hands to it.

Letters: T query rows, Hq and Hkv heads, D head dims, N pages of the pool, S page size, n dense K/V rows.
"""

from __future__ import annotations

import ctypes

import torch

from arch_caps import DType, MaskKind, PosEncoding, Request
from rocade._plan import KV, RunArgs
from rocade._problem import Level, Problem
from rocade_kernels import _abi
from rocade_kernels.cpu_plans import (
    LevelArrays,
    NativePlan,
    PlanArgs,
    chosen_isa,
)

NATIVE_DTYPE = {DType.FP32: _abi.FP32, DType.FP16: _abi.FP16, DType.BF16: _abi.BF16}
NATIVE_TORCH = {torch.float32: _abi.FP32, torch.float16: _abi.FP16, torch.bfloat16: _abi.BF16}
_MASK = {MaskKind.NONE: _abi.MASK_NONE, MaskKind.CAUSAL: _abi.MASK_CAUSAL, MaskKind.CUSTOM: _abi.MASK_CUSTOM}


def address(tensor: torch.Tensor) -> int:
    """Where a tensor's elements start; ValueError when its storage was freed (`resize_(0)`)."""
    at = tensor.data_ptr()
    if at == 0 and tensor.numel():
        raise ValueError(f"a tensor of shape {list(tensor.shape)} has no memory: its storage was freed")
    return at


class CpuPlan:
    """One work list for all levels; the library's cost model has decided what to share and where to cut."""

    backend = "cpu"

    __slots__ = ("_native", "_problem", "request", "workspace_bytes")

    def __init__(self, request: Request, problem: Problem) -> None:
        self.request = request
        self._problem = problem
        self._native = NativePlan(
            [_level_arrays(level) for level in problem.levels], _plan_args(request, problem)
        )
        self.workspace_bytes = self._native.workspace_bytes

    def run(self, args: RunArgs) -> None:
        """Compute attention into `args.out` and `args.lse`."""
        levels = b"".join(
            [_level_tensors(level, kv) for level, kv in zip(self._problem.levels, args.kv, strict=True)]
        )
        buffer = ctypes.create_string_buffer(levels, len(levels))
        workspace = self._workspace()
        q, out = args.q, args.out
        self._native.run(
            _abi.RUN.pack(
                ctypes.addressof(buffer),
                len(self._problem.levels),
                q.shape[0],
                address(q),
                NATIVE_TORCH[q.dtype],
                q.stride(0),
                q.stride(1),
                address(out),
                NATIVE_TORCH[out.dtype],
                out.stride(0),
                out.stride(1),
                *_lse(args.lse),
                *_partial(args),
                *self._mask(),
                args.sm_scale,
                args.v_scale,
                self.request.logits_soft_cap,
                address(workspace),
                workspace.numel(),
                torch.get_num_threads(),
            )
        )

    def _workspace(self) -> torch.Tensor:
        """The caller's when it is large enough and aligned, memory of this run otherwise."""
        given, need = self._problem.workspace, self.workspace_bytes
        if given is not None and given.numel() >= need and given.data_ptr() % _ALIGN == 0:
            return given
        return torch.empty(need, dtype=torch.uint8, device="cpu")

    def _mask(self) -> tuple[int, int]:
        mask = self._problem.mask
        return (0, 0) if mask is None else (address(mask.bits), mask.bits.numel())


_ALIGN = 4  # bytes; the workspace holds fp32


def _level_arrays(level: Level) -> LevelArrays:
    page_size = 0 if level.pages is None else level.pages.page_size
    return LevelArrays(*level.addresses(), level.num_requests, page_size)


def _plan_args(request: Request, problem: Problem) -> PlanArgs:
    return PlanArgs(
        num_rows=problem.num_rows,
        num_qo_heads=request.num_qo_heads,
        num_kv_heads=request.num_kv_heads,
        head_dim_qk=request.head_dim_qk,
        head_dim_vo=request.head_dim_vo,
        kv_dtype=NATIVE_DTYPE[request.kv_dtype],
        mask=_MASK[request.mask],
        mask_indptr=0 if problem.mask is None else problem.mask.indptr.data_ptr(),
        window_left=request.window_left,
        alibi=int(request.pos_encoding is PosEncoding.ALIBI),
        fixed_split_size=request.fixed_split_size or 0,
        disable_split=int(request.disable_split_kv),
        threads=torch.get_num_threads(),
        isa=chosen_isa(),
    )


def _level_tensors(level: Level, kv: KV) -> bytes:
    k, v = kv
    pages = level.pages
    if pages is None:
        strides = (0, k.stride(0), k.stride(1), 0, v.stride(0), v.stride(1))
        return _abi.LEVEL_TENSORS.pack(address(k), address(v), *strides, min(k.shape[0], v.shape[0]), 0, 0)
    return _abi.LEVEL_TENSORS.pack(
        address(k),
        address(v),
        *k.stride()[:3],
        *v.stride()[:3],
        min(k.shape[0], v.shape[0]),
        address(pages.indices),
        pages.indices.numel(),
    )


def _lse(lse: torch.Tensor | None) -> tuple[int, int, int]:
    return (0, 0, 0) if lse is None else (address(lse), lse.stride(0), lse.stride(1))


def _partial(args: RunArgs) -> tuple[int, ...]:
    if args.partial is None:
        return (0,) * 7
    out, lse = args.partial
    return (
        address(out),
        NATIVE_TORCH[out.dtype],
        out.stride(0),
        out.stride(1),
        address(lse),
        lse.stride(0),
        lse.stride(1),
    )
