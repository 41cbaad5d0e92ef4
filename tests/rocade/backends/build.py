"""Builds attention calls below the wrappers: a request, a problem, poisoned caches, the oracle's answer.

Unused pages, slots past a request's end, and the result buffers hold NaN, so that reading one shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from arch_caps import DType, Layout, MaskKind, Op, PosEncoding, Request
from rocade._mask import PackedMask
from rocade._plan import KV, Plan, RunArgs, State
from rocade._problem import Level, PageTable, Problem
from rocade.conformance import oracle

NAN = float("nan")
TORCH = {
    DType.FP32: torch.float32,
    DType.FP16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.FP8_E4M3: torch.float8_e4m3fn,
    DType.FP8_E5M2: torch.float8_e5m2,
    DType.FP8_E4M3_FNUZ: torch.float8_e4m3fnuz,
    DType.FP8_E5M2_FNUZ: torch.float8_e5m2fnuz,
}


@dataclass(frozen=True)
class Spec:
    """What a test varies. `levels`: (rows of each request, keys of each request), widest shared first."""

    levels: list[tuple[list[int], list[int]]]
    heads: tuple[int, int] = (4, 2)
    dims: tuple[int, int] = (16, 16)
    page_size: int = 0
    layout: Layout = Layout.NHD
    packed_cache: bool = False  # K and V as halves of one 5-D tensor, so that pages lie apart
    dtype: DType = DType.FP32
    kv_dtype: DType | None = None
    mask: MaskKind = MaskKind.NONE
    window_left: int = -1
    cap: float = 0.0
    pos: PosEncoding = PosEncoding.NONE
    scale: float = 0.3
    v_scale: float = 1.0
    facts: dict[str, object] = field(default_factory=dict)  # further fields of Request
    seed: int = 0


@dataclass
class Call:
    """One built call: run it with `answer(plan)`, compare with `expected`."""

    request: Request
    problem: Problem
    q: torch.Tensor
    kv: tuple[KV, ...]
    spec: Spec
    expected: oracle.Reference

    def args(self, partial: State | None = None) -> RunArgs:
        shape = *self.q.shape[:2], self.request.head_dim_vo
        out = torch.full(shape, NAN, dtype=TORCH[self.request.o_dtype])
        lse = torch.full(shape[:2], NAN)
        return RunArgs(self.q, self.kv, out, lse, self.spec.scale, self.spec.v_scale, partial)

    def answer(self, plan: Plan, partial: State | None = None) -> State:
        args = self.args(partial)
        plan.run(args)
        assert args.lse is not None
        return State(args.out, args.lse)


def build(spec: Spec) -> Call:
    gen = torch.Generator().manual_seed(spec.seed)
    rows = sum(spec.levels[-1][0])
    q = torch.randn(rows, spec.heads[0], spec.dims[0], generator=gen).to(TORCH[spec.dtype])
    levels, pools, tokens = [], [], []
    for qo_lens, kv_lens in spec.levels:
        level, kv, per_request = (_paged if spec.page_size else _dense)(spec, qo_lens, kv_lens, gen)
        levels.append(level)
        pools.append(kv)
        tokens.append(oracle.CascadeLevel(level.qo_indptr.tolist(), *per_request))
    masks = _masks(spec, gen)
    packed = _pack(masks) if masks is not None else None
    problem = Problem(tuple(levels), rows, torch.device("cpu"), packed)
    return Call(_request(spec), problem, q, tuple(pools), spec, _reference(spec, q, tokens, masks))


def variant(spec: Spec, **changes: object) -> Spec:
    return replace(spec, **changes)  # type: ignore[arg-type]


def _request(spec: Spec) -> Request:
    op = Op.CASCADE if len(spec.levels) > 1 else Op.BATCH_PREFILL_RAGGED
    op = Op.BATCH_PREFILL_PAGED if spec.page_size and op is not Op.CASCADE else op
    return Request(
        op=op,
        q_dtype=spec.dtype,
        kv_dtype=spec.kv_dtype or spec.dtype,
        o_dtype=spec.dtype,
        num_qo_heads=spec.heads[0],
        num_kv_heads=spec.heads[1],
        head_dim_qk=spec.dims[0],
        head_dim_vo=spec.dims[1],
        kv_layout=spec.layout,
        page_size=spec.page_size,
        mask=spec.mask,
        window_left=spec.window_left,
        logits_soft_cap=spec.cap,
        pos_encoding=spec.pos,
        num_levels=len(spec.levels),
        **spec.facts,  # type: ignore[arg-type]
    )


def _indptr(lengths: list[int], start: int = 0) -> torch.Tensor:
    return torch.tensor([start, *(start + torch.tensor(lengths, dtype=torch.int64).cumsum(0)).tolist()]).int()


def _draw(spec: Spec, shape: tuple[int, ...], gen: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=gen).to(TORCH[spec.kv_dtype or spec.dtype])


def _dense(
    spec: Spec, qo_lens: list[int], kv_lens: list[int], gen: torch.Generator
) -> tuple[Level, KV, tuple[list[torch.Tensor], list[torch.Tensor]]]:
    lead = 3  # rows before the first request and after the last one belong to nobody
    indptr = _indptr(kv_lens, lead)
    pools, per_request = [], []
    for dim in spec.dims:
        pool = _draw(spec, (int(indptr[-1]) + 2, spec.heads[1], dim), gen)
        _poison(pool[:lead])
        _poison(pool[int(indptr[-1]) :])
        if spec.layout is Layout.HND:
            pool = pool.transpose(0, 1).contiguous().transpose(0, 1)
        pools.append(pool)
        per_request.append([pool[indptr[b] : indptr[b + 1]] for b in range(len(kv_lens))])
    level = Level(_indptr(qo_lens), torch.tensor(kv_lens).int(), kv_indptr=indptr)
    return level, KV(*pools), (per_request[0], per_request[1])


def _paged(
    spec: Spec, qo_lens: list[int], kv_lens: list[int], gen: torch.Generator
) -> tuple[Level, KV, tuple[list[torch.Tensor], list[torch.Tensor]]]:
    size = spec.page_size
    counts = [-(-n // size) for n in kv_lens]
    lead = 2  # table entries before the first request's
    pool_pages = sum(counts) + 3
    ids = torch.randperm(pool_pages, generator=gen)[: sum(counts)].int()
    table = torch.cat((torch.full((lead,), 1 << 30), ids, torch.full((2,), -7))).int()
    kv = _pool(spec, pool_pages, gen)
    last = torch.tensor([(n - 1) % size + 1 if n else 0 for n in kv_lens]).int()
    indptr = _indptr(counts, lead)
    per_request: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    for part, pool in zip(per_request, kv, strict=True):
        used = torch.zeros(pool.shape[:2], dtype=torch.bool)
        for b, n in enumerate(kv_lens):
            token = torch.arange(n)
            page, slot = table[indptr[b] + token // size].long(), token % size
            used[page, slot] = True
            part.append(_bits(pool)[page, slot].view(pool.dtype))
        _poison(pool, ~used)
    pages_of = PageTable(indptr, table, last, size, int(ids.max()) if ids.numel() else -1)
    return Level(_indptr(qo_lens), torch.tensor(kv_lens).int(), pages=pages_of), kv, per_request


def _bits(pool: torch.Tensor) -> torch.Tensor:
    """fp8 as bytes, since torch cannot index or fill every 8-bit float."""
    return pool.view(torch.uint8) if pool.dtype.itemsize == 1 else pool


def _poison(pool: torch.Tensor, where: torch.Tensor | slice = slice(None)) -> None:
    _bits(pool)[where] = _bits(torch.tensor([NAN]).to(pool.dtype))[0]


def _pool(spec: Spec, pages: int, gen: torch.Generator) -> KV:
    """NHD views of a NHD or HND pool, apart or as halves of one tensor."""
    heads, size = spec.heads[1], spec.page_size
    if spec.packed_cache:
        assert spec.dims[0] == spec.dims[1]
        both = _draw(spec, (pages, 2, size, heads, spec.dims[0]), gen)
        pools = [both[:, 0], both[:, 1]]
    else:
        pools = [_draw(spec, (pages, size, heads, dim), gen) for dim in spec.dims]
    if spec.layout is Layout.HND:
        pools = [pool.transpose(1, 2).contiguous().transpose(1, 2) for pool in pools]
    return KV(*pools)


def _masks(spec: Spec, gen: torch.Generator) -> list[torch.Tensor] | None:
    if spec.mask is not MaskKind.CUSTOM:
        return None
    return [torch.rand(n, m, generator=gen) < 0.6 for n, m in zip(*spec.levels[0], strict=True)]


def _pack(masks: list[torch.Tensor]) -> PackedMask:
    """Bits set one by one, independently of the library's own packing."""
    parts = []
    for mask in masks:
        flat = mask.flatten().tolist()
        part = bytearray(-(-len(flat) // 8))
        for i, bit in enumerate(flat):
            part[i // 8] |= int(bit) << (i % 8)
        parts.append(list(part))
    starts = torch.tensor([0, *(len(p) for p in parts)]).cumsum(0)
    return PackedMask(torch.tensor([b for part in parts for b in part], dtype=torch.uint8), starts)


def _reference(
    spec: Spec, q: torch.Tensor, tokens: list[oracle.CascadeLevel], masks: list[torch.Tensor] | None
) -> oracle.Reference:
    rules = oracle.Rules(
        scale=spec.scale,
        causal=spec.mask is MaskKind.CAUSAL,
        window_left=spec.window_left,
        soft_cap=spec.cap,
        pos_encoding=spec.pos.value,
        v_scale=spec.v_scale,
        **{k: v for k, v in spec.facts.items() if k.startswith("rope")},  # type: ignore[arg-type]
    )
    if len(tokens) == 1:
        one = tokens[0]
        return oracle.batch(q, one.qo_indptr, one.keys, one.values, rules, masks)
    return oracle.cascade(q, tokens, rules)
