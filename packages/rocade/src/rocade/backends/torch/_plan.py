"""A plan of the plain backend: batches of row tiles, each an online softmax over chunks of keys.

Products in fp32, sums over keys in fp64; on a GPU, `torch.set_float32_matmul_precision` says what a product
in fp32 means (TF32 or not).
Memory: results of all rows in fp32, and one chunk of keys with its logits.
Letters: T query rows, b tiles, m rows of a tile, n keys, H KV heads, G query heads per KV head, D head dim.
"""

from __future__ import annotations

import torch

from arch_caps import PosEncoding, Request
from rocade._mask import Visibility
from rocade._plan import RunArgs
from rocade._problem import Problem
from rocade.backends.torch._gather import Chunk, Gather
from rocade.backends.torch._logits import Logits
from rocade.backends.torch._rope import Rope
from rocade.backends.torch._scratch import Layout, Scratch
from rocade.backends.torch._softmax import NO_KEYS, OnlineSoftmax
from rocade.backends.torch._states import merge_pair, merge_pair_into
from rocade.backends.torch._tiles import Batch, Sizes, cut


class TorchPlan:
    """Serves any request. With a fixed split or none, a request's bits are the same in any batch."""

    backend = "torch"

    def __init__(self, request: Request, problem: Problem) -> None:
        self.request = request
        self._problem, device = problem, problem.device
        visibility = Visibility(request.mask, request.window_left)
        self._sizes = Sizes.of(request, device)
        self._batches, position = cut(request, problem, visibility, self._sizes)
        self._position = position.to(device)
        self._logits = Logits(request, visibility, problem.mask, device)
        self._rope = Rope(request, device) if request.pos_encoding is PosEncoding.ROPE_LLAMA else None
        self._layout = Layout(request, self._batches)
        self.workspace_bytes = self._layout.total

    @torch.no_grad()
    def run(self, args: RunArgs) -> None:
        """Compute attention into `args.out` and `args.lse`."""
        shape = args.q.shape[0], self.request.num_qo_heads, self.request.head_dim_vo
        out = torch.zeros(shape, dtype=torch.float32, device=args.q.device)
        lse = out.new_full(shape[:2], NO_KEYS)
        scratch = Scratch(self._layout, self._problem.workspace, args.q.device)
        for batch in self._batches:
            if args.kv[batch.level].k.shape[0]:  # an empty pool holds no page of any id
                self._run_batch(batch, args, scratch, out, lse)
        _store(args, out, lse)

    def _run_batch(
        self, batch: Batch, args: RunArgs, scratch: Scratch, out: torch.Tensor, lse: torch.Tensor
    ) -> None:
        """Attend one batch's rows to its level's keys and merge the result into `out`, `lse`."""
        rows = _row_index(batch)
        row_pos = self._position[rows]
        q = self._queries(args, rows, row_pos)
        softmax = OnlineSoftmax()
        gather = Gather(self._problem.levels[batch.level], args.kv[batch.level], self._sizes.keys, scratch)
        for start in range(0, batch.keys, batch.chunk):
            chunk = gather.chunk(batch, start)
            if self._rope is not None:
                key_pos = chunk.key + batch.tiles.offset[:, None]
                chunk = chunk._replace(k=self._rope.rotate(chunk.k, key_pos))
            raw = _products(q, chunk.k, scratch)
            used = self._logits.finish(raw, batch, chunk, row_pos)
            v = chunk.v if used is None else _without_unused(chunk, used)
            softmax.add(raw.flatten(2, 3), v, some_hidden=used is not None and batch.rows > 1)
        _merge_rows(*softmax.result(), rows, batch, out, lse)

    def _queries(self, args: RunArgs, rows: torch.Tensor, row_pos: torch.Tensor) -> torch.Tensor:
        """fp32 `[b, H, G, m, D]`, rotated and scaled."""
        q = args.q[rows].float()
        if self._rope is not None:
            q = self._rope.rotate(q, row_pos)
        q = q.view(*rows.shape, self.request.num_kv_heads, self.request.group_size, q.shape[-1])
        return q.permute(0, 2, 3, 1, 4).mul(args.sm_scale * self._logits.factor).contiguous()


def _row_index(batch: Batch) -> torch.Tensor:
    """int64 `[b, m]` query rows; short tiles repeat their last one."""
    nth = torch.arange(batch.rows, device=batch.tiles.row.device)
    return batch.tiles.row[:, None] + torch.minimum(nth, batch.tiles.rows[:, None] - 1)


def _products(q: torch.Tensor, k: torch.Tensor, scratch: Scratch) -> torch.Tensor:
    """`q [b, H, G, m, D]` times `k [b, n, H, D]`: `[b, H, G, m, n]`. One call a tile: K is not copied."""
    b, heads, group, m, _ = q.shape
    raw = scratch.like("logits", torch.Size((b, heads, group * m, k.shape[1])))
    for products, query, key in zip(raw, q.flatten(2, 3), k.permute(0, 2, 3, 1), strict=True):
        torch.bmm(query, key, out=products)
    return raw.view(b, heads, group, m, k.shape[1])


def _without_unused(chunk: Chunk, used: torch.Tensor) -> torch.Tensor:
    """Values with 0 for keys that no row sees: such a value may be anything, and 0 * NaN is NaN."""
    unused = ~used[:, :, None, None]
    return chunk.v.masked_fill_(unused, 0.0) if chunk.writable else chunk.v.masked_fill(unused, 0.0)


def _merge_rows(
    new_out: torch.Tensor,
    new_lse: torch.Tensor,
    rows: torch.Tensor,
    batch: Batch,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> None:
    """Merge `[b, H, G * m, D]`, `[b, H, G * m]` into the rows `[b, m]` of `out [T, Hq, D]`, `lse [T, Hq]`."""
    b, m = rows.shape
    heads = new_lse.shape[1]
    new_out = (
        new_out.view(b, heads, -1, m, out.shape[2]).permute(0, 3, 1, 2, 4).reshape(b * m, *out.shape[1:])
    )
    new_lse = new_lse.view(b, heads, -1, m).permute(0, 3, 1, 2).reshape(b * m, lse.shape[1])
    rows = rows.flatten()
    if batch.keep is not None:
        rows, new_out, new_lse = rows[batch.keep], new_out[batch.keep], new_lse[batch.keep]
    if batch.level:
        new_out, new_lse = merge_pair(out[rows], lse[rows], new_out, new_lse)
    out[rows] = new_out
    lse[rows] = new_lse


def _store(args: RunArgs, out: torch.Tensor, lse: torch.Tensor) -> None:
    """Scale, merge the caller's partial state, and convert into the results."""
    if args.v_scale != 1.0:
        out.mul_(args.v_scale)
    if args.partial is not None:
        merge_pair_into(out, lse, args.partial.out, args.partial.lse, out, lse)
    args.out.copy_(out)
    if args.lse is not None:
        args.lse.copy_(lse)
