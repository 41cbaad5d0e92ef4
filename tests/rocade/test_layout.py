"""K and V in every form a caller may keep them, as NHD views: values, strides, and what is refused."""

from __future__ import annotations

import pytest
import torch

from arch_caps import Layout, Op, Request
from rocade import _layout, _request
from rocade._plan import KV

N, S, H, D = 3, 4, 2, 8
CPU = torch.device("cpu")


def request_for(**given: object) -> Request:
    plain = {"num_qo_heads": 4, "num_kv_heads": H, "head_dim_qk": D, "q_dtype": "float32", "page_size": S}
    return _request.attention(Op.BATCH_DECODE, **{**plain, **given})  # type: ignore[arg-type]


def test_all_forms_of_a_paged_cache_give_the_same_views() -> None:
    nhd = torch.randn(N, 2, S, H, D)
    hnd = nhd.transpose(2, 3).contiguous()
    expected = (nhd[:, 0], nhd[:, 1])
    forms = [
        (nhd, Layout.NHD),
        ((nhd[:, 0].contiguous(), nhd[:, 1].contiguous()), Layout.NHD),
        ([nhd[:, 0], nhd[:, 1]], Layout.NHD),
        (hnd, Layout.HND),
        ((hnd[:, 0], hnd[:, 1]), Layout.HND),
        (hnd.permute(0, 1, 3, 2, 4), Layout.NHD),
    ]
    for cache, layout in forms:
        kv = _layout.paged(cache, layout)
        assert torch.equal(kv.k, expected[0])
        assert torch.equal(kv.v, expected[1])


def test_views_share_the_callers_memory() -> None:
    cache = torch.randn(N, 2, H, S, D)
    kv = _layout.paged(cache, Layout.HND)
    assert kv.k.data_ptr() == cache.data_ptr()
    assert kv.v.untyped_storage().data_ptr() == cache.untyped_storage().data_ptr()


def test_dense_hnd_becomes_nhd() -> None:
    k, v = torch.randn(5, H, D), torch.randn(5, H, D)
    kv = _layout.dense(k.transpose(0, 1).contiguous(), v.transpose(0, 1), Layout.HND)
    assert torch.equal(kv.k, k)
    assert torch.equal(kv.v, v)


@pytest.mark.parametrize("layout", ["nhd", "", None, 0])
def test_other_layout_names_are_refused(layout: object) -> None:
    with pytest.raises(ValueError, match=r"kv_layout: got .*expected 'NHD' or 'HND'"):
        _layout.kv_layout(layout)


@pytest.mark.parametrize(
    "cache",
    [
        torch.empty(N, S, H, D),
        torch.empty(N, 3, S, H, D),
        (torch.empty(N, S, H, D),),
        (torch.empty(N, S, H, D), torch.empty(N, S, D)),
        (torch.empty(N, S, H, D), None),
        "cache",
        None,
    ],
)
def test_what_is_no_cache_is_refused(cache: object) -> None:
    with pytest.raises(ValueError, match=r"^paged_kv_cache"):
        _layout.paged(cache, Layout.NHD)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("k", "named"),
    [
        (torch.empty(N, S + 1, H, D), "shape"),
        (torch.empty(N, S, H + 1, D), "shape"),
        (torch.empty(N, S, H, D + 8), "shape"),
        (torch.empty(N, S, H, D, dtype=torch.float16), "torch.float16, expected torch.float32"),
        (torch.empty(N, S, H, D, device="meta"), "device meta"),
        (torch.empty(N, S, H, 2 * D)[..., ::2], "contiguous last dimension"),
    ],
)
def test_a_pool_that_differs_from_the_plan_is_refused(k: torch.Tensor, named: str) -> None:
    good = torch.empty(N, S, H, D)
    for kv, which in ((KV(k, good), "K"), (KV(good, k), "V")):
        with pytest.raises(ValueError, match=rf"^paged_kv_cache \({which}\): .*{named}"):
            _layout.check_paged(kv, request_for(), 0, CPU, "paged_kv_cache")


def test_a_pool_smaller_than_the_page_ids_is_refused() -> None:
    kv = KV(torch.empty(N, S, H, D), torch.empty(N, S, H, D))
    _layout.check_paged(kv, request_for(), N - 1, CPU, "paged_kv_cache")
    with pytest.raises(ValueError, match="got 3 pages, expected at least 4"):
        _layout.check_paged(kv, request_for(), N, CPU, "paged_kv_cache")


def test_pools_of_different_sizes_are_refused() -> None:
    kv = KV(torch.empty(N, S, H, D), torch.empty(N - 1, S, H, D))
    with pytest.raises(ValueError, match=r"paged_kv_cache \(V\)"):
        _layout.check_paged(kv, request_for(), 0, CPU, "paged_kv_cache")


def test_strided_rows_are_welcome() -> None:
    wide = torch.empty(N, S, H, 3 * D)
    _layout.check_paged(KV(wide[..., :D], wide[..., D : 2 * D]), request_for(), 0, CPU, "paged_kv_cache")


def test_dense_rows_beyond_the_plan_are_welcome_and_missing_ones_refused() -> None:
    request = request_for(page_size=0)
    kv = KV(torch.empty(5, H, D), torch.empty(5, H, D))
    _layout.check_dense(kv, request, 4, CPU)
    with pytest.raises(ValueError, match=r"^k: got 5 rows, expected at least 6"):
        _layout.check_dense(kv, request, 6, CPU)
