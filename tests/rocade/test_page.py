"""append_paged_kv_cache against a loop, its index helpers, and their refusals."""

from __future__ import annotations

import math

import pytest
import torch

from rocade.page import append_paged_kv_cache, get_batch_indices_positions, get_seq_lens

PAGES, SIZE, HEADS, DIM = 9, 4, 2, 16
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2fnuz]


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


# Requests of 7, 0, 12 and 1 tokens; the table starts at entry 2 and has a spare entry at the end.
INDPTR, INDICES, LAST = ints(2, 4, 4, 7, 8), ints(99, 99, 5, 0, 3, 8, 1, 7, 99), ints(3, 0, 4, 1)
BATCH, POSITIONS = ints(0, -1, 2, 2, 3, 0), ints(6, 50, 3, 4, 0, 5)


def caches(kind: str, dtype: torch.dtype) -> tuple[object, torch.Tensor, torch.Tensor, str]:
    """A cache full of NaN in one of the accepted forms, with NHD views of its K and V, and its layout."""
    nan = torch.full((PAGES, 2, SIZE, HEADS, DIM), math.nan).to(dtype)
    if kind == "5d NHD":
        return nan, nan[:, 0], nan[:, 1], "NHD"
    if kind == "5d HND":
        hnd = nan.transpose(2, 3).contiguous()
        return hnd, hnd[:, 0].transpose(1, 2), hnd[:, 1].transpose(1, 2), "HND"
    if kind == "5d HND as a permuted NHD view":
        return nan.transpose(2, 3), nan[:, 0], nan[:, 1], "HND"
    k = torch.full((PAGES * 3, SIZE, HEADS + 1, DIM + 8), math.nan).to(dtype)[::3, :, :HEADS, :DIM]
    return (k, nan[:, 1]), k, nan[:, 1], "NHD"


def tokens(dtype: torch.dtype, count: int = 6) -> torch.Tensor:
    """Random tokens, as a slice of a wider projection."""
    return torch.randn(count, HEADS + 2, DIM).to(dtype)[:, 1 : HEADS + 1]


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("kind", ["5d NHD", "5d HND", "5d HND as a permuted NHD view", "strided tuple"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_append_writes_these_slots_and_no_others(dtype: torch.dtype, kind: str, backend: str) -> None:
    cache, k, v, layout = caches(kind, dtype)
    key, value = tokens(dtype), tokens(dtype)
    expected_k, expected_v = k.float().clone(), v.float().clone()
    for i, (b, p) in enumerate(zip(BATCH.tolist(), POSITIONS.tolist(), strict=True)):
        if b >= 0:
            page = int(INDICES[int(INDPTR[b]) + p // SIZE])
            expected_k[page, p % SIZE], expected_v[page, p % SIZE] = key[i].float(), value[i].float()
    append_paged_kv_cache(key, value, BATCH, POSITIONS, cache, INDICES, INDPTR, LAST, layout, backend=backend)
    torch.testing.assert_close(k.float(), expected_k, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(v.float(), expected_v, rtol=0, atol=0, equal_nan=True)


def test_keywords_of_serving_engines() -> None:
    cache, k, _, _ = caches("5d NHD", torch.float16)
    append_paged_kv_cache(
        append_key=tokens(torch.float16),
        append_value=tokens(torch.float16),
        batch_indices=BATCH,
        positions=POSITIONS,
        paged_kv_cache=cache,
        kv_indices=INDICES,
        kv_indptr=INDPTR,
        kv_last_page_len=LAST,
        kv_layout="NHD",
    )
    assert not k[7, 0].isnan().any()


def test_value_heads_of_another_size_and_no_tokens() -> None:
    k, v = torch.zeros(PAGES, SIZE, HEADS, DIM), torch.zeros(PAGES, SIZE, HEADS, 24)
    key, value = torch.ones(1, HEADS, DIM), torch.ones(1, HEADS, 24)
    append_paged_kv_cache(key, value, ints(3), ints(0), (k, v), INDICES, INDPTR, LAST)
    assert k.sum() == HEADS * DIM
    assert v.sum() == HEADS * 24
    append_paged_kv_cache(key[:0], value[:0], ints(), ints(), (k, v), INDICES, INDPTR, LAST)


def call(**changed: object) -> None:
    cache = torch.zeros(PAGES, 2, SIZE, HEADS, DIM)
    arguments = {
        "append_key": torch.ones(6, HEADS, DIM),
        "append_value": torch.ones(6, HEADS, DIM),
        "batch_indices": BATCH,
        "positions": POSITIONS,
        "paged_kv_cache": cache,
        "kv_indices": INDICES,
        "kv_indptr": INDPTR,
        "kv_last_page_len": LAST,
    }
    try:
        append_paged_kv_cache(**(arguments | changed))
    finally:
        assert not cache.any(), "a refused call wrote to the cache"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"append_key": torch.ones(6, HEADS, DIM).half()}, "append_key: got torch.float16"),
        ({"append_key": torch.ones(6, HEADS + 1, DIM)}, r"append_key: got shape \[6, 3, 16\]"),
        ({"append_value": torch.ones(5, HEADS, DIM)}, "append_value: got 5 tokens"),
        ({"append_value": torch.ones(DIM, HEADS, 6).transpose(0, 2)}, "append_value: got stride"),
        ({"batch_indices": ints(0, 1)}, "batch_indices: got 2 entries"),
        ({"batch_indices": ints(0, -1, 2, 4, 3, 0)}, "batch_indices: got 4, expected -1 to skip, or 0 to 3"),
        ({"batch_indices": ints(0, -2, 2, 2, 3, 0)}, "batch_indices: got -2"),
        ({"batch_indices": BATCH.float()}, "batch_indices: got torch.float32"),
        (
            {"positions": ints(8, 50, 3, 4, 0, 5)},
            "positions: got 8, expected 0 to 7, in the pages of request 0",
        ),
        ({"positions": ints(6, 50, -1, 4, 0, 5)}, "positions: got -1, expected 0 to 11"),
        (
            {"batch_indices": ints(1, -1, 2, 2, 3, 0)},
            "positions: got 6, expected 0 to -1, in the pages of request 1",
        ),
        ({"kv_indices": ints(99, 99, 5, 0, 3, 9, 1, 7)}, "kv_indices: got page 9, expected 0 to 8"),
        ({"kv_indices": ints(0, 1)}, "kv_indices: got 2 page indices"),
        ({"kv_indptr": ints(2, 4, 3, 7, 8)}, r"kv_indptr\[2\]: got 3"),
        ({"kv_last_page_len": ints(5, 0, 4, 1)}, r"kv_last_page_len\[0\]: got 5"),
        ({"kv_last_page_len": ints(3, 0, 4)}, "kv_indptr: got 5 entries"),
        ({"kv_layout": "DNH"}, "kv_layout: got 'DNH'"),
        ({"backend": "cuda"}, "backend: got 'cuda'"),
    ],
)
def test_malformed_input_is_named_and_writes_nothing(changed: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        call(**changed)


def test_malformed_caches_are_named() -> None:
    for cache in (torch.ones(2, 3), (torch.ones(2, SIZE, HEADS, DIM),), torch.ones(2, 3, SIZE, HEADS, DIM)):
        with pytest.raises(ValueError, match=r"^paged_kv_cache: got"):
            call(paged_kv_cache=cache)
    k = torch.ones(2, SIZE, HEADS, DIM)
    with pytest.raises(ValueError, match=r"expected K and V alike"):
        call(paged_kv_cache=(k, k.half()))


def test_memory_that_is_shared_or_wanted_by_autograd_is_named() -> None:
    pages = torch.zeros(9, 2, SIZE, HEADS, DIM)
    k, v = pages.unbind(1)
    one_page, sliding = pages[:1].expand(9, -1, -1, -1, -1), torch.zeros(9 * SIZE * HEADS * DIM)
    overlapping = sliding.as_strided(k.shape, (SIZE * HEADS * DIM, DIM, DIM, 1))
    tokens = torch.ones(6, HEADS, DIM)
    for changed, message in (
        ({"paged_kv_cache": one_page}, r"paged_kv_cache \(K\): got strides \[0, "),
        ({"paged_kv_cache": (k, overlapping)}, r"paged_kv_cache \(V\): got strides"),
        ({"paged_kv_cache": (k, k)}, "paged_kv_cache: got K and V at the same address"),
        (
            {"paged_kv_cache": pages, "append_key": k[1, :1].expand(6, -1, -1)},
            "append_key: got memory",
        ),
        ({"paged_kv_cache": (k, v), "append_value": v[3, :1].expand(6, -1, -1)}, "append_value: got memory"),
        ({"append_key": tokens.clone().requires_grad_()}, "append_key: got a tensor that requires grad"),
        ({"paged_kv_cache": pages.clone().requires_grad_()}, r"paged_kv_cache \(K\): got a tensor that req"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            call(**changed)
    assert not pages.any()
    interleaved = torch.zeros(9, SIZE, HEADS, 2, DIM)  # K and V in turns, head by head
    call(paged_kv_cache=(interleaved[..., 0, :], interleaved[..., 1, :]))
    assert interleaved[..., 0, :].any()


def test_seq_lens() -> None:
    assert get_seq_lens(ints(2, 4, 4, 7, 8), ints(3, 9, 4, 1), 4).tolist() == [7, 0, 12, 1]
    assert get_seq_lens(ints(0), ints(), 4).tolist() == []
    assert get_seq_lens(ints(0, 1), ints(1), 1).dtype == torch.int32
    with pytest.raises(ValueError, match="kv_last_page_len"):
        get_seq_lens(ints(0, 1), ints(1, 1), 4)
    with pytest.raises(ValueError, match="page_size"):
        get_seq_lens(ints(0, 1), ints(1), 0)


def test_batch_indices_positions_of_the_last_tokens() -> None:
    batch, positions = get_batch_indices_positions(ints(0, 1, 3, 3, 6), ints(5, 2, 7, 9), 6)
    assert batch.tolist() == [0, 1, 1, 3, 3, 3]
    assert positions.tolist() == [4, 0, 1, 6, 7, 8]
    assert batch.dtype == positions.dtype == torch.int32


def test_padding_rows_are_skipped_by_append() -> None:
    out = torch.full((5,), 77, dtype=torch.int32), torch.full((5,), 77, dtype=torch.int32)
    batch, positions = get_batch_indices_positions(ints(1, 3), ints(8), 5, *out)
    assert batch is out[0]
    assert positions is out[1]
    assert batch.tolist() == [-1, 0, 0, -1, -1]
    assert positions.tolist() == [0, 6, 7, 0, 0]
    assert [t.tolist() for t in get_batch_indices_positions(ints(0), ints(), 2)] == [[-1, -1], [0, 0]]
    assert [t.tolist() for t in get_batch_indices_positions(ints(0, 0), ints(3), 0)] == [[], []]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((ints(0, 3), ints(2), 3), r"seq_lens\[0\]: got 2"),
        ((ints(0, 3), ints(4), 2), "nnz: got 2"),
        ((ints(0, 3), ints(4, 4), 3), "seq_lens: got shape"),
        ((ints(3, 1), ints(4), 3), "append_indptr"),
        ((ints(), ints(), 3), "append_indptr"),
        ((ints(0, 3), ints(4), 3, ints(1)), "batch_indices: got torch.int32"),
        ((ints(0, 3), ints(4), 3, None, torch.zeros(3)), "positions: got torch.float32"),
    ],
)
def test_malformed_lengths_are_named(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        get_batch_indices_positions(*arguments)


def test_append_is_an_operator() -> None:
    key, cache = torch.randn(6, HEADS, DIM), torch.zeros(PAGES, 2, SIZE, HEADS, DIM)
    torch.library.opcheck(
        torch.ops.rocade.append_paged_kv_cache.default,
        (key, key + 1, BATCH, POSITIONS, [cache], INDICES, INDPTR, LAST, "NHD", "auto"),
    )


def test_append_and_its_indices_compile_without_a_break() -> None:
    def step(key: torch.Tensor, cache: torch.Tensor, lens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batch, positions = get_batch_indices_positions(ints(0, 2, 2, 5, 6), lens, 6)
        append_paged_kv_cache(key, key * 2, batch, positions, cache, INDICES, INDPTR, LAST)
        return batch, positions, cache.sum()

    lens = get_seq_lens(INDPTR, LAST, SIZE)
    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    key, ours, theirs = torch.randn(6, HEADS, DIM), *torch.zeros(2, PAGES, 2, SIZE, HEADS, DIM)
    torch.testing.assert_close(compiled(key, ours, lens), step(key, theirs, lens))
    assert torch.equal(ours, theirs)
    assert ours.any()
