"""Keys long enough to be split between threads: the same answer with one thread and with several."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.rocade.paged import BACKENDS, assert_matches, indptr, int32, put, rand, workspace

import rocade
from rocade import cascade
from rocade.conformance import oracle

DTYPES = [torch.float32, torch.bfloat16]
pytestmark = [
    pytest.mark.parametrize("backend", BACKENDS),
    pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "bf16"]),
]


@pytest.fixture(params=[1, 3], autouse=True)
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Run under this many threads, whatever the test run itself uses."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_decode(backend: str, dtype: torch.dtype) -> None:
    keys = [rand(n, 2, 64, seed=n, dtype=dtype) for n in (3001, 17, 1100)]
    pages, q = put(keys, keys, 16), rand(3, 8, 64, dtype=dtype)
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace(), backend=backend)
    wrapper.plan(*pages.table, 8, 2, 64, 16, q_data_type=dtype, window_left=2500)
    result = wrapper.run(q, pages.cache, return_lse=True)
    ref = oracle.batch(q, range(4), keys, keys, oracle.Rules(0.125, window_left=2500))
    assert_matches(result, ref, dtype)


def test_prefill(backend: str, dtype: torch.dtype) -> None:
    keys = [rand(n, 1, 64, seed=n, dtype=dtype) for n in (2100, 900)]
    q = rand(70, 4, 64, dtype=dtype)
    pages = put(keys, keys, 16)
    wrapper = rocade.BatchPrefillWithPagedKVCacheWrapper(workspace(), backend=backend)
    wrapper.plan(indptr([66, 4]), *pages.table, 4, 1, 64, 16, causal=True, q_data_type=dtype)
    result = wrapper.run(q, pages.cache, return_lse=True)
    ref = oracle.batch(q, [0, 66, 70], keys, keys, oracle.Rules(0.125, causal=True))
    assert_matches(result, ref, dtype)


def test_cascade(backend: str, dtype: torch.dtype) -> None:
    shared = rand(2048, 2, 64, dtype=dtype)
    own = [rand(n, 2, 64, seed=n, dtype=dtype) for n in (1, 600, 33, 0, 128)]
    flat = [shared, *own]
    pages, q = put(flat, flat, 16), rand(5, 8, 64, dtype=dtype)
    wrapper = cascade.MultiLevelCascadeAttentionWrapper(2, workspace(), backend=backend)
    wrapper.plan(
        [int32([0, 5]), int32(range(6))],
        [pages.indptr[:2], pages.indptr[1:]],
        [pages.indices] * 2,
        [pages.last_page_len[:1], pages.last_page_len[1:]],
        *(8, 2, 64, 16),
        causal=True,
        q_data_type=dtype,
    )
    both = [torch.cat((shared, k)) for k in own]
    ref = oracle.batch(q, range(6), both, both, oracle.Rules(0.125, causal=True))
    assert_matches(wrapper.run(q, pages.cache, return_lse=True), ref, dtype)


def test_rounding_does_not_grow_with_the_number_of_keys(backend: str, dtype: torch.dtype) -> None:
    """Values all alike: what is rounded off has one sign, and adds up."""
    k = rand(300_000, 1, 16, dtype=dtype) / 100
    v = torch.full_like(k, 0.8314287)
    wrapper = rocade.BatchPrefillWithRaggedKVCacheWrapper(workspace(), backend=backend)
    wrapper.plan(int32([0, 1]), int32([0, 300_000]), 1, 1, 16, q_data_type=dtype)
    out = wrapper.run(rand(1, 1, 16, dtype=dtype), k, v)
    torch.testing.assert_close(out[0], v[0], rtol=4e-6, atol=0)
