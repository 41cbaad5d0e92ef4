"""From an attention case to the tensors of its call, and to the oracle's answer for those tensors.

Letters: B requests, T query rows, N pages, S page size, n dense rows, Hq and Hkv heads, D head dims.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch

from arch_caps import Op, PosEncoding
from rocade.conformance import lengths, memory, oracle, oracle_states
from rocade.conformance.cases import AttentionCase
from rocade.conformance.lengths import Lengths

CPU = torch.device("cpu")
OFFSET = 3  # entries before the first one in use, where indptr[0] > 0
GARBAGE_PAGES = (2**31 - 1, -1, -(2**31), 10**6, -7)  # page ids that lie outside what indptr names


@dataclass(frozen=True, slots=True)
class Table:
    """One level's page table or row ranges, as lists; `arrays` are the tensors of the same content."""

    qo_indptr: list[int]
    kv_indptr: list[int]
    indices: list[int]
    last_page_len: list[int]
    arrays: dict[str, torch.Tensor]


class Pool(NamedTuple):
    """K and V memory: `cache` as the caller passes it, one 5-D tensor or a tuple, and its two parts."""

    cache: torch.Tensor | tuple[torch.Tensor, torch.Tensor]
    k: memory.Placed
    v: memory.Placed


@dataclass(frozen=True, slots=True)
class Scales:
    """Factors as the caller gives them; None is not given."""

    sm: float | None
    q: float | None
    k: float | None
    v: float | None


@dataclass(frozen=True, slots=True)
class AttentionInputs:
    """What a call gets."""

    q: torch.Tensor
    pool: Pool
    tables: list[Table]
    lens: list[Lengths]
    masks: list[torch.Tensor] | None  # bool [qo_len, kv_len] of each request
    scales: Scales
    partial: tuple[torch.Tensor, torch.Tensor] | None


def level_lengths(case: AttentionCase) -> list[Lengths]:
    """Lengths of each level of a case; one level unless cascade."""
    if case.lengths == lengths.VERY_LONG:
        return [lengths.very_long(1 if case.op in (Op.SINGLE_DECODE, Op.BATCH_DECODE) else 40)]
    if case.op is Op.CASCADE:
        return lengths.cascade(case.lengths, case.levels, case.page_size)
    if case.op is Op.BATCH_DECODE:
        return [lengths.decode(case.lengths, case.page_size, case.q_len)]
    if case.op is Op.SINGLE_PREFILL:
        return [lengths.single_prefill(case.lengths)]
    if case.op is Op.SINGLE_DECODE:
        return [lengths.single_decode(case.lengths)]
    return [lengths.prefill(case.lengths, case.page_size)]


def _indptr(counts: tuple[int, ...], start: int = 0) -> list[int]:
    return list(accumulate(counts, initial=start))


def _offset(case: AttentionCase) -> int:
    return OFFSET if case.plan_arrays in ("offset", "all") else 0


def _table(case: AttentionCase, lens: Lengths, free: list[int]) -> Table:
    """A page table over pages popped from `free`, or row ranges of dense K and V."""
    start, page = _offset(case), case.page_size
    counts = tuple(-(-n // page) for n in lens.kv) if page else lens.kv
    kv_indptr = _indptr(counts, start)
    indices = [GARBAGE_PAGES[j % 5] for j in range(start)] if page else []
    indices += [free.pop() for _ in range(sum(counts))] if page else []
    indices += GARBAGE_PAGES if page and case.plan_arrays in ("long", "all") else ()
    last = [(n - 1) % page + 1 if n else (0, page, 99)[b % 3] for b, n in enumerate(lens.kv)] if page else []
    lists = {"qo_indptr": _indptr(lens.qo), "kv_indptr": kv_indptr, "indices": indices, "last_page_len": last}
    strided = case.plan_arrays in ("strided", "all")
    arrays = {name: memory.int_array(numbers, strided, CPU) for name, numbers in lists.items()}
    return Table(**lists, arrays=arrays)


def _pool(case: AttentionCase, fill: torch.Tensor, pages: int, rows: int) -> Pool:
    """Poisoned memory for K and V; a 5-D cache is one tensor with K and V in its second dimension."""
    heads, dims = case.kv_heads, case.head_dims
    if case.page_size and case.cache == "5d":
        both = memory.place((pages, 2), case.page_size, heads, dims[0], case.layout, case.storage, fill)
        k, v = (memory.Placed(both.given[:, i], both.nhd[:, i]) for i in (0, 1))
        return Pool(both.given, k, v)
    outer, tokens = ((pages,), case.page_size) if case.page_size else ((), rows)
    k, v = (memory.place(outer, tokens, heads, dim, case.layout, case.storage, fill) for dim in dims)
    return Pool((k.given, v.given), k, v)


def _write_tokens(nhd: torch.Tensor, table: Table, lens: Lengths, page: int, source: torch.Tensor) -> None:
    """Put `source [tokens, Hkv, D]` where the table says the level's tokens are."""
    taken = 0
    for b, count in enumerate(lens.kv):
        rows = source[taken : taken + count].to(nhd.device)
        taken += count
        first = table.kv_indptr[b]
        if not page:
            nhd[first : first + count] = rows
            continue
        for j in range(0, count, page):
            part = rows[j : j + page]
            nhd[table.indices[first + j // page], : part.shape[0]] = part


def _queries(
    case: AttentionCase, rows: int, generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    """Q `[T, Hq, Dk]`: contiguous, head-major in memory, or a slice of fused QKV rows."""
    heads, dim = case.qo_heads, case.head_dims[0]
    scale = 0.0 if case.terms == "equal" else 2.0  # logits that are exact leave the sum as the only error
    x = memory.values((rows, heads, dim), case.dtypes.q, scale, generator).to(device)
    if case.storage == "permuted":
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    if case.storage == "padded":
        fused = memory.full((rows, heads + 2 * case.kv_heads, dim), float("nan"), case.dtypes.q, device)
        fused[:, :heads] = x
        return fused[:, :heads]
    return x


def _masks(case: AttentionCase, lens: Lengths, rng: random.Random) -> list[torch.Tensor] | None:
    """Random masks with some rows all hidden and some all visible."""
    if case.mask not in ("custom", "packed"):
        return None
    masks = []
    for qo, kv in zip(*lens, strict=True):
        share = [rng.choice((0.0, 0.5, 0.8, 1.0)) for _ in range(qo)]
        bits = [[rng.random() < p for _ in range(kv)] for p in share]
        masks.append(torch.tensor(bits, dtype=torch.bool).reshape(qo, kv))
    return masks


def _scales(case: AttentionCase) -> Scales:
    if case.scales == "default":
        return Scales(None, None, None, None)
    if case.scales == "sm":
        return Scales(1.3 / math.sqrt(case.head_dims[0]), None, None, None)
    return Scales(0.8 / math.sqrt(case.head_dims[0]), 0.5, 1.75, 0.3)


def build(case: AttentionCase, device: torch.device = CPU) -> AttentionInputs:
    """The tensors of a case; the same ones on every call."""
    rng, generator = random.Random(case.index), torch.Generator().manual_seed(case.index)
    lens = level_lengths(case)
    total = sum(-(-n // case.page_size) if case.page_size else n for level in lens for n in level.kv)
    pages = total + 3  # some pages belong to nobody
    free = list(range(pages))
    rng.shuffle(free)
    tables = [_table(case, level, free) for level in lens]
    fill = memory.full((), memory.poison_value(case.poison, case.dtypes.kv), case.dtypes.kv, device)
    extra = _offset(case) + (5 if case.plan_arrays in ("long", "all") else 0)
    pool = _pool(case, fill, pages, total + extra)
    for placed, dim in zip((pool.k, pool.v), case.head_dims, strict=True):
        for table, level in zip(tables, lens, strict=True):
            tokens = memory.values((sum(level.kv), case.kv_heads, dim), case.dtypes.kv, 1.0, generator)
            if case.terms == "equal":
                tokens = tokens[:1].expand_as(tokens)
            _write_tokens(placed.nhd, table, level, case.page_size, tokens)
    rows = sum(lens[-1].qo)
    return AttentionInputs(
        q=_queries(case, rows, generator, device),
        pool=pool,
        tables=tables,
        lens=lens,
        masks=_masks(case, lens[0], rng),
        scales=_scales(case),
        partial=_partial(case, rows, generator, device),
    )


def _partial(
    case: AttentionCase, rows: int, generator: torch.Generator, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """An earlier partial state; every third row of it has seen no key."""
    if not case.partial:
        return None
    out = memory.values((rows, case.qo_heads, case.head_dims[1]), case.dtypes.o, 1.0, generator)
    lse = 3.0 * torch.randn(rows, case.qo_heads, generator=generator) + 4.0
    lse[::3] = float("-inf")
    out[::3] = 0.0
    return out.to(device), lse.to(device)


def rules(case: AttentionCase, scales: Scales) -> oracle.Rules:
    """The oracle's view of a case."""
    sm = 1.0 / math.sqrt(case.head_dims[0]) if scales.sm is None else scales.sm
    return oracle.Rules(
        scale=sm * (scales.q or 1.0) * (scales.k or 1.0),
        causal=case.mask == "causal" or (case.op is Op.BATCH_DECODE and case.q_len > 1),
        window_left=case.window_left,
        soft_cap=case.soft_cap,
        pos_encoding=case.pos_encoding.value,
        rope_scale=case.rope[0],
        rope_theta=case.rope[1],
        v_scale=scales.v or 1.0,
    )


def _tokens(
    case: AttentionCase, inputs: AttentionInputs, level: int, nhd: torch.Tensor
) -> list[torch.Tensor]:
    """Keys (or values) of each request of a level, found through its plan arrays."""
    table = inputs.tables[level]
    if case.page_size:
        return [
            oracle.gather_pages(nhd, table.kv_indptr, table.indices, table.last_page_len, b)
            for b in range(len(inputs.lens[level].kv))
        ]
    return [nhd[a:b] for a, b in zip(table.kv_indptr, table.kv_indptr[1:], strict=False)]


def reference(case: AttentionCase, inputs: AttentionInputs) -> oracle.Reference | None:
    """The answer, or None for an empty batch. A partial state is merged as the contract says."""
    k_nhd, v_nhd = inputs.pool.k.nhd.cpu(), inputs.pool.v.nhd.cpu()
    per_level = [
        oracle.CascadeLevel(
            inputs.tables[level].qo_indptr,
            _tokens(case, inputs, level, k_nhd),
            _tokens(case, inputs, level, v_nhd),
        )
        for level in range(len(inputs.tables))
    ]
    if not per_level[-1].keys:
        return None
    shape = rules(case, inputs.scales)
    q = inputs.q.cpu()
    if case.op is Op.CASCADE:
        ref = oracle.cascade(q, per_level, shape)
    else:
        last = per_level[-1]
        ref = oracle.batch(q, last.qo_indptr, last.keys, last.values, shape, inputs.masks)
    return ref if inputs.partial is None else _merged(ref, inputs.partial)


def _merged(ref: oracle.Reference, partial: tuple[torch.Tensor, torch.Tensor]) -> oracle.Reference:
    """The reference after a partial state is merged in, its error magnitudes merged alike."""
    out, lse = (t.cpu() for t in partial)
    merged = oracle_states.merge_state(ref.out, ref.lse, out, lse)
    mass = oracle_states.merge_state(ref.out_mass, ref.lse, out.abs(), lse)
    rms = oracle_states.merge_state(ref.out_rms, ref.lse, torch.zeros_like(out), lse)
    return oracle.Reference(merged.v, merged.s, mass.v, rms.v, ref.logit_mass)


def largest_position(case: AttentionCase, inputs: AttentionInputs) -> float:
    """The largest position that an angle is computed for; 0 without RoPE."""
    if case.pos_encoding is not PosEncoding.ROPE_LLAMA:
        return 0.0
    return float(sum(max(level.kv, default=0) for level in inputs.lens))
