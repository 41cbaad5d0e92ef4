"""Two-level cascades whose shared prefix is dense K and V: FlashInfer's shared-prefix wrappers.

The prefix comes with each run, so these wrappers plan when they see one of a length they have not planned
for.

Letters: B requests, T query rows, Hq and Hkv heads, D head dims, N pages, S page size, n tokens of the shared
prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from arch_caps import Op, Request
from rocade import _checks, _layout, _request
from rocade._arguments import PLAN, refuse_all
from rocade._checks import Given
from rocade._dtypes import torch_dtype
from rocade._errors import NotPlannedError, invalid
from rocade._layout import PagedCache, flat
from rocade._plan import KV, State
from rocade._problem import Level, Problem
from rocade._request import DTypeLike, Scale
from rocade._wrapper import BatchWrapper, Results

Tensor = torch.Tensor
UNIQUE = _checks.PageNames("unique_kv_indptr", "unique_kv_indices", "unique_kv_last_page_len")


class SharedPrefixWrapper(BatchWrapper):
    """Base of the two: keeps the requests' own page tables, and plans with the prefix that a run brings."""

    def __init__(
        self, float_workspace_buffer: Tensor, kv_layout: str = "NHD", *, backend: str = "auto"
    ) -> None:
        super().__init__(float_workspace_buffer, kv_layout, backend)
        self._unique: Level | None = None
        self._given: dict[str, Any] = {}
        self._planned_for: tuple[object, ...] = ()

    def begin_forward(self, *args: Any, **kwargs: Any) -> None:
        """`plan` under its old name."""
        self.plan(*args, **kwargs)  # type: ignore[attr-defined]  # each subclass has its own signature

    def run(
        self,
        q: Tensor,
        k_shared: Tensor,
        v_shared: Tensor,
        unique_kv_cache: PagedCache,
        *,
        q_scale: Scale = None,
        k_scale: Scale = None,
        v_scale: Scale = None,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        return_lse: bool = False,
    ) -> Results:
        """Attention of each request's queries over the prefix and then the request's pages.

        Args:
            q: `[T, Hq, D]`; in decode T is B.
            k_shared: `[n, Hkv, D]` (NHD) or `[Hkv, n, D]` (HND).
            v_shared: like `k_shared`.
            unique_kv_cache: one 5-D tensor `[N, 2, ...]` or a (K, V) tuple.
            q_scale: factor on the logits, a number or a one-element tensor.
            k_scale: factor on the logits.
            v_scale: factor on the result.
            out: `[T, Hq, D]` to write into.
            lse: fp32 `[T, Hq]` to write into.
            return_lse: return `(out, lse)`; the LSE is log2 of the sum of exp of the scaled logits.

        Returns:
            `out`, or `(out, lse)`. A row that sees no key is 0 and -inf.
        """
        return self._run(
            q,
            (k_shared, v_shared, *flat(unique_kv_cache)),
            q_scale=q_scale,
            k_scale=k_scale,
            v_scale=v_scale,
            out=out,
            lse=lse,
            return_lse=return_lse,
        )

    def _keep(self, unique: Level, given: Mapping[str, Any]) -> None:
        """Remember checked page tables and flags until a run brings the prefix; forget the earlier plan."""
        self._unique, self._given = unique, dict(given)
        self._plan = self._problem = None
        self._planned_for = ()
        q_dtype = given["q_data_type"]
        self._out_dtype = None
        if q_dtype is not None:
            self._out_dtype = torch_dtype(_request.float_dtype("q_data_type", q_dtype))
            self._request(
                self._out_dtype, self._out_dtype, 0
            )  # malformed flags are the caller's plan, not its run
        self._head_dim_vo = given["head_dim"]

    def _execute(
        self,
        q: Tensor,
        caches: Sequence[Tensor],
        qk_factor: float,
        v_scale: float,
        out: Tensor | None,
        lse: Tensor | None,
        partial: State | None,
        *,
        return_lse: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Plan for this prefix, unless the last run's was as long, and run."""
        shared = _layout.dense(caches[0], caches[1], self._layout, ("k_shared", "v_shared"))
        self._plan_for(q, shared)
        return super()._execute(q, caches, qk_factor, v_scale, out, lse, partial, return_lse=return_lse)

    def _plan_for(self, q: Tensor, shared: KV) -> None:
        """Make the current plan one for these dtypes and this length of the shared prefix."""
        if self._unique is None:
            raise NotPlannedError(f"{type(self).__name__}: call plan() before run()")
        if not isinstance(q, torch.Tensor):
            raise invalid("q", type(q).__name__, "a tensor")
        tokens = shared.k.shape[0]
        wanted = (q.dtype, shared.k.dtype, tokens, *self._flags())
        if wanted == self._planned_for:
            return
        request = self._request(q.dtype, shared.k.dtype, tokens)
        rows = int(self._unique.qo_indptr[-1])
        prefix = Level(_ints(0, rows), _ints(tokens), None, _ints(0, tokens))
        self._adopt(
            request, Problem((prefix, self._unique), rows, self.device, None, self._float_workspace_buffer)
        )
        self._planned_for = wanted

    def _flags(self) -> tuple[object, ...]:
        """The flags that a legacy `forward` may change after the plan."""
        return tuple(self._given[name] for name in ("causal", "sm_scale", "rope_scale", "rope_theta"))

    def _request(self, q_dtype: torch.dtype, kv_dtype: torch.dtype, tokens: int) -> Request:
        """The request for queries and keys of these dtypes, where the plan named none."""
        given, unique = self._given, self._unique
        assert unique is not None  # set by _keep
        assert unique.pages is not None  # set by plan
        return _request.attention(
            Op.CASCADE,
            num_qo_heads=given["num_qo_heads"],
            num_kv_heads=given["num_kv_heads"],
            head_dim_qk=given["head_dim"],
            q_dtype=given["q_data_type"] or q_dtype,
            kv_dtype=given["kv_data_type"] or given["q_data_type"] or kv_dtype,
            kv_layout=self._layout,
            page_size=unique.pages.page_size,
            causal=given["causal"],
            sm_scale=given["sm_scale"],
            window_left=given["window_left"],
            logits_soft_cap=given["logits_soft_cap"],
            rope_scale=given["rope_scale"],
            rope_theta=given["rope_theta"],
            num_levels=2,
            max_qo_len=int(unique.qo_indptr.diff().max()) if unique.num_requests else 0,
            max_kv_len=tokens + (int(unique.kv_len.max()) if unique.num_requests else 0),
        )

    def _caches(self, caches: Sequence[Tensor]) -> tuple[KV, ...]:
        request, problem = self._current().request, self._problem
        assert problem is not None  # set together with the plan
        table = problem.levels[1].pages
        assert table is not None  # level 1 is paged
        names = ("k_shared", "v_shared")
        shared = _layout.dense(caches[0], caches[1], self._layout, names)
        _layout.check_dense(shared, request, shared.k.shape[0], problem.device, names)
        unique = _layout.paged(caches[2] if len(caches) == 3 else caches[2:], self._layout, "unique_kv_cache")
        _layout.check_paged(unique, request, table.max_page, problem.device, "unique_kv_cache")
        return shared, unique


class BatchDecodeWithSharedPrefixPagedKVCacheWrapper(SharedPrefixWrapper):
    """Decode of B requests that share one dense prefix and have pages of their own after it.

    Call `plan` (or `begin_forward`) when pages change and `run` (or `forward`) once a layer.

    Args:
        float_workspace_buffer: uint8, on the device of the tensors.
        kv_layout: "NHD" or "HND", of the prefix and of the cache.
        backend: "auto" (also spelled "fa2" or "native"), or the name of one backend.
    """

    def plan(
        self,
        unique_kv_indptr: Tensor,
        unique_kv_indices: Tensor,
        unique_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        data_type: DTypeLike | None = None,
        *,
        q_data_type: DTypeLike | None = None,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
    ) -> None:
        """Take over the requests' own page tables; planning ends when a run brings the prefix.

        Args:
            unique_kv_indptr: int32 `[B + 1]`: the range of page ids of each request.
            unique_kv_indices: int32 page ids.
            unique_kv_last_page_len: int32 `[B]`, 1..page_size tokens in each last page; ignored without
                pages.
            num_qo_heads: Hq, a multiple of Hkv.
            num_kv_heads: Hkv.
            head_dim: D.
            page_size: tokens a page.
            data_type: dtype of K and V, and of q unless `q_data_type` is given. None takes those of the
                tensors.
            q_data_type: dtype of q.
            sm_scale: factor on q.k, None for 1/sqrt(head_dim).
            window_left: visible tokens left of the last one, over prefix and pages; negative for all.
            logits_soft_cap: cap * tanh(logit / cap); None or 0 for none.

        Raises:
            ValueError: an argument is malformed.
        """
        pages = _checks.pages(
            unique_kv_indptr, unique_kv_indices, unique_kv_last_page_len, page_size, self.device, names=UNIQUE
        )
        rows = torch.arange(pages.kv_len.numel() + 1, dtype=torch.int32, device="cpu")
        self._keep(
            Level(rows, pages.kv_len, pages.table),
            {
                "num_qo_heads": num_qo_heads,
                "num_kv_heads": num_kv_heads,
                "head_dim": head_dim,
                "q_data_type": q_data_type or data_type,
                "kv_data_type": data_type,
                "causal": False,
                "sm_scale": sm_scale,
                "window_left": window_left,
                "logits_soft_cap": logits_soft_cap,
                "rope_scale": None,
                "rope_theta": None,
            },
        )

    forward = SharedPrefixWrapper.run


class BatchPrefillWithSharedPrefixPagedKVCacheWrapper(SharedPrefixWrapper):
    """Prefill of B requests that share one dense prefix and have pages of their own after it.

    Call `plan` (or `begin_forward`) when lengths or pages change and `run` (or `forward`) once a layer.

    Args:
        float_workspace_buffer: uint8, on the device of the tensors.
        kv_layout: "NHD" or "HND", of the prefix and of the cache.
        backend: "auto" (also spelled "fa2" or "native"), or the name of one backend.
    """

    def plan(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        causal: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        q_data_type: DTypeLike | None = None,
        kv_data_type: DTypeLike | None = None,
    ) -> None:
        """Take over the requests' own page tables; planning ends when a run brings the prefix.

        Args:
            qo_indptr: int32 `[B + 1]` from 0: request i owns query rows `qo_indptr[i]:qo_indptr[i + 1]`.
            paged_kv_indptr: int32 `[B + 1]`: the range of page ids of each request.
            paged_kv_indices: int32 page ids.
            paged_kv_last_page_len: int32 `[B]`, 1..page_size tokens in each last page; ignored without pages.
            num_qo_heads: Hq, a multiple of Hkv.
            num_kv_heads: Hkv.
            head_dim: D.
            page_size: tokens a page.
            causal: hide keys right of the diagonal that ends at a request's last query and last key.
            sm_scale: factor on q.k, None for 1/sqrt(head_dim).
            window_left: visible tokens left of the diagonal, over prefix and pages; negative for all.
            logits_soft_cap: cap * tanh(logit / cap); None or 0 for none.
            q_data_type: dtype of q; None takes that of the tensor.
            kv_data_type: dtype of K and V; None takes that of q.

        Raises:
            ValueError: an argument is malformed.
        """
        table = (paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)
        page_size = _request.positive("page_size", page_size)
        level, _ = _checks.one_level(Given(qo_indptr, *table), page_size, self.device)
        self._keep(
            level,
            {
                "num_qo_heads": num_qo_heads,
                "num_kv_heads": num_kv_heads,
                "head_dim": head_dim,
                "q_data_type": q_data_type,
                "kv_data_type": kv_data_type,
                "causal": causal,
                "sm_scale": sm_scale,
                "window_left": window_left,
                "logits_soft_cap": logits_soft_cap,
                "rope_scale": None,
                "rope_theta": None,
            },
        )

    def forward(
        self,
        q: Tensor,
        k_shared: Tensor,
        v_shared: Tensor,
        unique_kv_cache: PagedCache,
        causal: bool = False,
        use_fp16_qk_reduction: bool = False,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
    ) -> Tensor:
        """Old interface: `run` with these flags in place of the planned ones, which they replace from now on.

        The rope arguments are checked and mean nothing, since no position encoding is applied.
        """
        refuse_all({"use_fp16_qk_reduction": use_fp16_qk_reduction}, PLAN)
        flags = {"causal": causal, "sm_scale": sm_scale, "rope_scale": rope_scale, "rope_theta": rope_theta}
        self._given.update(flags)
        result = self.run(q, k_shared, v_shared, unique_kv_cache)
        assert isinstance(result, torch.Tensor)  # no LSE was asked for
        return result


def _ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device="cpu")
