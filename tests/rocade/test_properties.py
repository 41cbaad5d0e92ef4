"""Properties that hold for any lengths, page tables and masks, drawn by hypothesis, on every backend."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rocade.paged import (
    BACKENDS,
    Pages,
    assert_matches,
    assert_state_close,
    indptr,
    int32,
    put,
    rand,
    workspace,
)

import rocade
from rocade import cascade
from rocade.conformance import oracle

pytestmark = pytest.mark.parametrize("backend", BACKENDS)
few = settings(max_examples=25, deadline=None, derandomize=True)


@dataclass(frozen=True)
class Batch:
    """A drawn batch: lengths per request, shapes, and what limits visibility."""

    qo: list[int]
    kv: list[int]
    page_size: int
    kv_heads: int
    group: int
    dim: int
    dtype: torch.dtype
    causal: bool
    window: int
    cap: float
    seed: int

    @property
    def q(self) -> torch.Tensor:
        return rand(sum(self.qo), self.kv_heads * self.group, self.dim, seed=self.seed, dtype=self.dtype)

    def tokens(self, offset: int) -> list[torch.Tensor]:
        shape = (self.kv_heads, self.dim)
        return [
            rand(n, *shape, seed=self.seed + offset + 7 * b, dtype=self.dtype) for b, n in enumerate(self.kv)
        ]

    @property
    def rules(self) -> oracle.Rules:
        return oracle.Rules(1 / math.sqrt(self.dim), self.causal, self.window, self.cap)


@st.composite
def batches(draw: st.DrawFn, *, min_size: int = 1) -> Batch:
    pairs = draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 40)), min_size=min_size, max_size=5))
    return Batch(
        qo=[qo for qo, _ in pairs],
        kv=[kv for _, kv in pairs],
        page_size=draw(st.integers(1, 9)),
        kv_heads=draw(st.integers(1, 3)),
        group=draw(st.integers(1, 9)),
        dim=draw(st.sampled_from((8, 16, 40, 64))),
        dtype=draw(st.sampled_from((torch.float32, torch.float16, torch.bfloat16))),
        causal=draw(st.booleans()),
        window=draw(st.integers(-1, 12)),
        cap=draw(st.sampled_from((0.0, 1.5))),
        seed=draw(st.integers(0, 10**6)),
    )


def run_paged(
    batch: Batch, pages: Pages, backend: str, masks: list[torch.Tensor] | None = None, **plan: object
) -> tuple[torch.Tensor, torch.Tensor]:
    wrapper = rocade.BatchPrefillWithPagedKVCacheWrapper(workspace(), backend=backend)
    if masks is not None:
        plan["custom_mask"] = torch.cat([mask.flatten() for mask in masks])
    wrapper.plan(
        indptr(batch.qo),
        *pages.table,
        batch.kv_heads * batch.group,
        batch.kv_heads,
        batch.dim,
        batch.page_size,
        causal=batch.causal,
        window_left=batch.window,
        logits_soft_cap=batch.cap,
        q_data_type=batch.dtype,
        **plan,
    )
    return wrapper.run(batch.q, pages.cache, return_lse=True)


@few
@given(batch=batches())
def test_paged_attention_of_any_batch_is_the_oracles(backend: str, batch: Batch) -> None:
    keys, values = batch.tokens(1), batch.tokens(2)
    result = run_paged(batch, put(keys, values, batch.page_size, batch.seed), backend)
    ref = oracle.batch(batch.q, indptr(batch.qo).tolist(), keys, values, batch.rules)
    assert_matches(result, ref, batch.dtype)


@few
@given(batch=batches(), share=st.floats(0, 1))
def test_any_custom_mask_is_honoured(backend: str, batch: Batch, share: float) -> None:
    generator = torch.Generator().manual_seed(batch.seed)
    masks = [
        torch.rand(qo, kv, generator=generator) < share for qo, kv in zip(batch.qo, batch.kv, strict=True)
    ]
    keys, values = batch.tokens(1), batch.tokens(2)
    result = run_paged(batch, put(keys, values, batch.page_size, batch.seed), backend, masks)
    ref = oracle.batch(batch.q, indptr(batch.qo).tolist(), keys, values, batch.rules, masks)
    assert_matches(result, ref, batch.dtype)


@few
@given(batch=batches(), other=st.integers(0, 10**6))
def test_where_pages_lie_does_not_matter_to_the_bit(backend: str, batch: Batch, other: int) -> None:
    keys, values = batch.tokens(1), batch.tokens(2)
    one = run_paged(batch, put(keys, values, batch.page_size, batch.seed), backend)
    two = run_paged(batch, put(keys, values, batch.page_size, other), backend)
    assert one[0].equal(two[0])
    assert one[1].equal(two[1])


@few
@given(batch=batches(min_size=2))
def test_a_request_alone_has_the_bits_it_has_in_a_batch_without_split(backend: str, batch: Batch) -> None:
    """`disable_split_kv` makes results batch-invariant."""
    keys, values = batch.tokens(1), batch.tokens(2)
    together = run_paged(batch, put(keys, values, batch.page_size), backend, disable_split_kv=True)
    start = batch.qo[0]
    alone = rocade.BatchPrefillWithPagedKVCacheWrapper(workspace(), backend=backend)
    pages = put(keys[1:2], values[1:2], batch.page_size)
    alone.plan(
        indptr(batch.qo[1:2]),
        *pages.table,
        batch.kv_heads * batch.group,
        batch.kv_heads,
        batch.dim,
        batch.page_size,
        causal=batch.causal,
        window_left=batch.window,
        logits_soft_cap=batch.cap,
        q_data_type=batch.dtype,
        disable_split_kv=True,
    )
    rows = slice(start, start + batch.qo[1])
    out, lse = alone.run(batch.q[rows].contiguous(), pages.cache, return_lse=True)
    assert out.equal(together[0][rows])
    assert lse.equal(together[1][rows])


@few
@given(n=st.integers(1, 5), m=st.integers(0, 60), cut=st.floats(0, 1), cap=st.sampled_from((0.0, 2.0)))
def test_splitting_the_keys_and_merging_changes_nothing(
    backend: str, n: int, m: int, cut: float, cap: float
) -> None:
    q, k, v = rand(n, 6, 32), rand(m, 2, 32, seed=1), rand(m, 2, 32, seed=2)
    at = int(cut * m)
    whole, left, right = (
        rocade.single_prefill_with_kv_cache(
            q, k[part], v[part], logits_soft_cap=cap, backend=backend, return_lse=True
        )
        for part in (slice(None), slice(at), slice(at, None))
    )
    assert_state_close(cascade.merge_state(*left, *right, backend=backend), whole)


@few
@given(lengths=st.lists(st.integers(0, 30), min_size=1, max_size=5), split=st.integers(1, 4))
def test_a_partial_state_counts_as_more_keys(backend: str, lengths: list[int], split: int) -> None:
    q = rand(len(lengths), 4, 16)
    keys = [rand(n, 2, 16, seed=b) for b, n in enumerate(lengths)]
    heads = [k[: k.shape[0] // split] for k in keys]
    tails = [k[k.shape[0] // split :] for k in keys]

    def run(
        parts: list[torch.Tensor], state: tuple[torch.Tensor, torch.Tensor] | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        pages = put(parts, parts, 4)
        wrapper = rocade.BatchPrefillWithPagedKVCacheWrapper(workspace(), backend=backend)
        wrapper.plan(indptr([1] * len(parts)), *pages.table, 4, 2, 16, 4, q_data_type="float32")
        return wrapper.run(q, pages.cache, return_lse=True, partial_state=state)

    assert_state_close(run(tails, run(heads, None)), run(keys, None))


states = st.integers(0, 2**31)


def drawn_state(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A state of 6 rows; some of them have seen no key."""
    generator = torch.Generator().manual_seed(seed)
    v, s = torch.randn(6, 3, 16, generator=generator), 9 * torch.randn(6, 3, generator=generator)
    empty = torch.rand(6, 3, generator=generator) < 0.3
    return v.masked_fill(empty[..., None], 0.0), s.masked_fill(empty, float("-inf"))


@few
@given(seeds=st.tuples(states, states, states))
def test_merging_is_associative_and_commutative(backend: str, seeds: tuple[int, int, int]) -> None:
    a, b, c = map(drawn_state, seeds)

    def merge(
        x: tuple[torch.Tensor, torch.Tensor], y: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return cascade.merge_state(*x, *y, backend=backend)

    assert_state_close(merge(merge(a, b), c), merge(a, merge(b, c)))
    assert_state_close(merge(a, b), merge(b, a))
    stacked = cascade.merge_states(
        *(torch.stack(column, dim=1) for column in zip(a, b, c, strict=True)), backend=backend
    )
    assert_state_close(stacked, merge(merge(a, b), c))


@few
@given(seed=states, first=st.booleans())
def test_the_empty_state_is_the_identity_to_the_bit(backend: str, seed: int, first: bool) -> None:
    a = drawn_state(seed)
    nothing = (torch.zeros_like(a[0]), torch.full_like(a[1], float("-inf")))
    merged = cascade.merge_state(*(nothing + a if first else a + nothing), backend=backend)
    assert merged[0].equal(a[0])
    assert merged[1].equal(a[1])


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    """Rows of each request, and for each level the requests that each of its ranges spans."""
    rows = draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
    levels = [[1] * len(rows)]
    for _ in range(draw(st.integers(0, 3))):
        finer = levels[0]
        coarser: list[int] = []
        while sum(coarser) < len(rows):
            taken, ends = sum(coarser), [sum(finer[:i]) for i in range(1, len(finer) + 1)]
            coarser.append(draw(st.sampled_from([e for e in ends if e > taken])) - taken)
        levels.insert(0, coarser)
    return rows, levels


@few
@given(tree=trees(), lengths=st.lists(st.integers(0, 20), min_size=24, max_size=24), facts=st.integers(0, 99))
def test_any_tree_of_shared_prefixes_is_the_concatenation(
    backend: str, tree: tuple[list[int], list[list[int]]], lengths: list[int], facts: int
) -> None:
    rows, spans = tree
    causal, window, page_size = bool(facts % 2), facts % 23 - 1, 1 + facts % 5
    sizes = iter(lengths)
    q = rand(sum(rows), 4, 16, seed=facts)
    keys = [[rand(next(sizes), 2, 16, seed=i + 31 * j) for j, _ in enumerate(s)] for i, s in enumerate(spans)]
    flat = [k for level in keys for k in level]
    pages = put(flat, flat, page_size)
    ends = [[sum(rows[: sum(s[:i])]) for i in range(len(s) + 1)] for s in spans]
    tables, first = [], 0
    for level in keys:
        last = first + len(level)
        tables.append((pages.indptr[first : last + 1], pages.indices, pages.last_page_len[first:last]))
        first = last
    wrapper = cascade.MultiLevelCascadeAttentionWrapper(len(spans), workspace(), backend=backend)
    wrapper.plan(
        [int32(e) for e in ends],
        *([table[i] for table in tables] for i in range(3)),
        4,
        2,
        16,
        page_size,
        causal=causal,
        window_left=window,
        q_data_type="float32",
    )
    result = wrapper.run(q, pages.cache, return_lse=True)
    levels = [oracle.CascadeLevel(e, k, k) for e, k in zip(ends, keys, strict=True)]
    assert_matches(result, oracle.cascade(q, levels, oracle.Rules(0.25, causal, window)), torch.float32)


@few
@given(lengths=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=5))
def test_appending_step_by_step_then_decoding_sees_every_token(
    backend: str, lengths: list[tuple[int, int]]
) -> None:
    """What is appended in two steps is what a decode reads."""
    old, new = zip(*lengths, strict=True)
    total = [a + b for a, b in lengths]
    keys = [rand(n, 2, 16, seed=b) for b, n in enumerate(total)]
    pages = put([torch.full_like(k, float("nan")) for k in keys], keys, 4)
    pages.cache[1].fill_(float("nan"))
    for count, seq in ((old, old), (new, tuple(total))):
        rows = torch.cat([k[s - c : s] for k, c, s in zip(keys, count, seq, strict=True)])
        where = rocade.get_batch_indices_positions(indptr(count), int32(seq), rows.shape[0])
        rocade.append_paged_kv_cache(rows, rows, *where, pages.cache, *_csr(pages), backend=backend)
    q = rand(len(keys), 4, 16)
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace(), backend=backend)
    wrapper.plan(*pages.table, 4, 2, 16, 4, q_data_type="float32")
    result = wrapper.run(q, pages.cache, return_lse=True)
    ends = list(range(len(keys) + 1))
    assert_matches(result, oracle.batch(q, ends, keys, keys, oracle.Rules(0.25)), torch.float32)


def _csr(pages: Pages) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The table in the order that append takes it."""
    return pages.indices, pages.indptr, pages.last_page_len
