"""A plan of backend `aiter_asm`: where each request's rows and keys are, on the device, and its launches.

Letters: T query rows, n dense K/V rows, Hq and Hkv heads, D head dim, R requests of a launch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from arch_caps import ArchCapabilityError, CodeObject, Request, partial_state_reasons
from rocade._errors import invalid
from rocade._plan import RunArgs
from rocade._problem import Problem
from rocade.backends._gpu import Gpu, Launcher, gpu_of
from rocade.backends.aiter._finish import finish
from rocade.backends.aiter._gather import FlatGather
from rocade.backends.aiter._lse import natural_for
from rocade.backends.aiter._scale import positive_scale
from rocade.backends.aiter._unseen import unseen_rows
from rocade.backends.aiter.asm import _objects
from rocade.backends.aiter.asm._cut import Blocks, blocks_of, split
from rocade.backends.aiter.asm._tensors import keys_to_read, rows_to_read, rows_to_write
from rocade_kernels.aiter.kernarg import LIMIT, Forward, option_of

NAME = "aiter_asm"
MAX_REQUESTS = 65535  # of a launch: they are the grid's y


class _Launch(NamedTuple):
    """One launch, for at most `MAX_REQUESTS` requests."""

    launcher: Launcher
    code: CodeObject
    grid: tuple[int, int, int]
    max_rows: int
    max_keys: int
    arrays: tuple[int, int, int, int]  # addresses: row counts, key counts, first rows, first keys


class AsmPlan:
    """One launch for each code object that the batch needs, which is one, seldom two."""

    backend = NAME

    __slots__ = ("_arrays", "_gather", "_launches", "_unseen", "request", "workspace_bytes")

    def __init__(self, request: Request, problem: Problem) -> None:
        """Plan.

        Raises:
            AiterError: a code object is not here, or what is here is not known.
            DeviceError: the driver refused it.
        """
        self.request = request
        self.workspace_bytes = 0
        (level,) = problem.levels
        device = problem.device
        gpu = gpu_of(torch.empty(0, dtype=torch.uint8, device=device))
        self._gather = None if level.pages is None else FlatGather(level, device)
        kv_indptr = level.kv_indptr if self._gather is None else self._gather.kv_indptr
        assert kv_indptr is not None, "keys are dense or paged"
        pair = _objects.pair_of(request, gpu.target, _objects.product_of(gpu.target, gpu.facts.chip))
        assert pair is not None, "the table refuses other targets and head sizes"
        blocks = blocks_of(request, level, kv_indptr)
        parts = split(request, blocks, pair.causal.tile_rows, pair.plain.min_keys)
        self._arrays: list[torch.Tensor] = []
        self._launches: list[_Launch] = []
        for causal, part in parts.items():
            for first in range(0, part.rows.numel(), MAX_REQUESTS):
                some = Blocks(*(field[first : first + MAX_REQUESTS] for field in part))
                self._add(gpu, pair.causal if causal else pair.plain, some, device)
        unseen = unseen_rows(request, level)
        self._unseen = None if unseen is None else unseen.to(device)

    def _add(self, gpu: Gpu, code: CodeObject, blocks: Blocks, device: torch.device) -> None:
        """A launch for some requests."""
        count, longest = blocks.rows.numel(), int(blocks.rows.max())
        arrays = torch.cat([_sums(blocks.rows), _sums(blocks.keys), blocks.first_row, blocks.first_key])
        on_device = arrays.to(torch.int32).to(device)
        at, step = on_device.data_ptr(), on_device.itemsize
        key_counts, first_rows = at + step * (count + 1), at + 2 * step * (count + 1)
        launch = _Launch(
            _objects.launcher_of(gpu, code),
            code,
            (self.request.num_qo_heads, count, -(-longest // code.tile_rows)),
            longest,
            int(blocks.keys.max()),
            (at, key_counts, first_rows, first_rows + step * count),
        )
        self._arrays.append(on_device)
        self._launches.append(launch)

    @torch.no_grad()
    def run(self, args: RunArgs) -> None:
        """Compute attention into `args.out` and `args.lse`.

        Raises:
            ValueError: a tensor spans more memory than the kernels' 32-bit offsets reach, or the scale is 0
                to them and not to the caller.
            ArchCapabilityError: there is a partial state to merge in.
        """
        if args.partial is not None:
            raise ArchCapabilityError(self.request, {NAME: partial_state_reasons(self.request.op, NAME)})
        out = args.out
        natural = None if args.lse is None else natural_for(args.out)
        if self._launches:
            out = rows_to_write(args.out)
            self._attend(args, out, natural)
        finish(args, out, natural, self._unseen)

    def _attend(self, args: RunArgs, out: torch.Tensor, natural: torch.Tensor | None) -> None:
        (kv,) = args.kv
        if self._gather is not None:
            kv = self._gather.dense(kv)
        q, scale = positive_scale(args.q, args.sm_scale)
        q, (k, v) = rows_to_read(q), keys_to_read(kv)
        for name, tensor in (("q", q), ("k", k), ("v", v), ("out", out), ("lse", natural)):
            if tensor is not None:
                _check_span(name, tensor)
        for launch, arrays in zip(self._launches, self._arrays, strict=True):
            block = launch.launcher.arguments()
            block.fill(*self._arguments(launch, (q, k, v, out), natural, scale))
            writes = (out,) if natural is None else (out, natural)
            launch.launcher.launch(launch.grid, launch.code.threads, block, (q, k, v, arrays), writes)

    def _arguments(
        self,
        launch: _Launch,
        tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
        natural: torch.Tensor | None,
        scale: float,
    ) -> Forward:
        q, k, v, out = tensors
        request, code = self.request, launch.code
        row_counts, key_counts, first_rows, first_keys = launch.arrays
        return Forward(
            **_placed("q", q),
            **_placed("k", k),
            **_placed("v", v),
            **_placed("out", out),
            q_tile=q.stride(0) * q.itemsize * code.tile_rows,
            lse=0 if natural is None else natural.data_ptr(),
            lse_head=0 if natural is None else natural.stride(0) * natural.itemsize,
            has_lse=int(natural is not None),
            scale=scale,
            max_rows=launch.max_rows,
            max_keys=launch.max_keys,
            group=request.group_size,
            heads=request.num_qo_heads,
            head_dim_qk=request.head_dim_qk,
            head_dim_vo=request.head_dim_vo,
            option=option_of(request.num_qo_heads, q.shape[0], causal=code.causal),
            row_counts=row_counts,
            key_counts=key_counts,
            first_rows=first_rows,
            first_keys=first_keys,
        )


def _sums(counts: torch.Tensor) -> torch.Tensor:
    """0, and the sums of the first 1, 2, ... counts."""
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0))


def _placed(name: str, tensor: torch.Tensor) -> dict[str, int]:
    """The arguments of `[rows, heads, D]`: address, and strides in bytes. Row numbers stand for a batch."""
    row, head, _ = tensor.stride()
    size = tensor.itemsize
    return {
        name: tensor.data_ptr(),
        f"{name}_row": row * size,
        f"{name}_head": head * size,
        f"{name}_batch": 0,
    }


def _check_span(name: str, tensor: torch.Tensor) -> None:
    """Refuse a tensor with an element that 32 bits of offset do not reach."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    span = (reach + 1) * tensor.itemsize
    if span >= LIMIT:
        raise invalid(name, f"{span} bytes from first to last element", f"fewer than {LIMIT} for {NAME}")
