"""Cascade attention over any number of levels of one paged cache, in FlashInfer's interface."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import torch

from arch_caps import Op, Request
from rocade import _layout, _levels, _request
from rocade._arguments import FLAGS, PLAN, SHARED, bind, pick, refuse_all
from rocade._layout import PagedCache, flat
from rocade._plan import KV, Source
from rocade._problem import Problem
from rocade._request import DTypeLike, Scale
from rocade._wrapper import BatchWrapper, Results

Tensor = torch.Tensor
_ASKED = operator.itemgetter(
    *("num_qo_heads", "num_kv_heads", "head_dim", "head_dim_vo", "page_size"),
    *("q_data_type", "kv_data_type", "o_data_type", "causal"),
    *SHARED,
)


class MultiLevelCascadeAttentionWrapper(BatchWrapper):
    """Attention in which keys that several requests share are stored, and read, once.

    Level 0 holds the most widely shared prefix, the last level what each request has for itself. The levels
    of a query row are one sequence: causal, window and positions count over all of them, and the result
    equals attention without sharing. `rocade.prefix.find_shared_prefixes` makes the plan arrays from ordinary
    page tables.

    Letters: L levels, B_l requests of level l, T query rows, Hq and Hkv heads, D head dims, N pages, S page
        size.

    Args:
        num_levels: L, at least 1.
        float_workspace_buffer: uint8, on the device of the tensors; `workspace_size` says how much is used.
            With less, long requests are cut into fewer pieces.
        kv_layout: "NHD" `[N, S, Hkv, D]` or "HND" `[N, Hkv, S, D]`.
        use_cuda_graph: keep plans in the `*_buf_arr` tensors. Each B_l is then fixed, and q may have rows
            beyond the planned ones.
        qo_indptr_buf_arr, paged_kv_indptr_buf_arr: L tensors int32 `[B_l + 1]`.
        paged_kv_indices_buf_arr, paged_kv_last_page_len_buf_arr: L tensors int32 `[max pages]` and `[B_l]`.
        backend: "auto" (also spelled "fa2" or "native"), or the name of one backend.
    """

    def __init__(
        self,
        num_levels: int,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf_arr: list[Tensor] | None = None,
        paged_kv_indptr_buf_arr: list[Tensor] | None = None,
        paged_kv_indices_buf_arr: list[Tensor] | None = None,
        paged_kv_last_page_len_buf_arr: list[Tensor] | None = None,
        *,
        backend: str = "auto",
    ) -> None:
        super().__init__(float_workspace_buffer, kv_layout, backend, use_cuda_graph=use_cuda_graph)
        self._num_levels = _request.positive("num_levels", num_levels)
        self._buffers: _levels.LevelBuffers | None = None
        if use_cuda_graph:
            buffers = (
                qo_indptr_buf_arr,
                paged_kv_indptr_buf_arr,
                paged_kv_indices_buf_arr,
                paged_kv_last_page_len_buf_arr,
            )
            self._buffers = _levels.LevelBuffers(buffers, self._num_levels, self.device)

    def plan(
        self,
        qo_indptr_arr: Sequence[Tensor],
        paged_kv_indptr_arr: Sequence[Tensor],
        paged_kv_indices_arr: Sequence[Tensor],
        paged_kv_last_page_len: Sequence[Tensor],
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        q_data_type: DTypeLike = "float16",
        kv_data_type: DTypeLike | None = None,
        *,
        head_dim_vo: int | None = None,
        o_data_type: DTypeLike | None = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
    ) -> None:
        """Plan attention for these levels. Host work; not inside graph capture or `torch.compile`.

        Levels nest: all cover the same T rows, and where a request of one level ends, one of the next ends
        too.

        Args:
            qo_indptr_arr: L tensors int32 `[B_l + 1]` from 0: request i of level l serves rows
                `qo_indptr_arr[l][i]:qo_indptr_arr[l][i + 1]`.
            paged_kv_indptr_arr: L tensors int32 `[B_l + 1]`: the range of page ids of each request.
            paged_kv_indices_arr: L tensors int32 of page ids. Read again at each run where they are on the
                cache's device already.
            paged_kv_last_page_len: L tensors int32 `[B_l]`, 1..page_size tokens in each last page; ignored
                without pages.
            num_qo_heads: Hq, a multiple of Hkv.
            num_kv_heads: Hkv.
            head_dim: D of q and k.
            head_dim_vo: D of v and the result; None means as q and k.
            page_size: tokens a page.
            causal: hide keys right of the diagonal that ends at a request's last query and last key.
            pos_encoding_mode: "NONE", "ROPE_LLAMA" or "ALIBI", applied inside.
            sm_scale: factor on q.k, None for 1/sqrt(head_dim).
            window_left: visible tokens left of the diagonal, over all levels; negative for all.
            logits_soft_cap: cap * tanh(logit / cap); None or 0 for none.
            rope_scale: None for 1.
            rope_theta: None for 1e4.
            q_data_type: a torch dtype or its name.
            kv_data_type: the same for K and V, 8-bit floats included; None means as q.
            o_data_type: the same for the result; None means as q.
            fixed_split_size: KV pages a split, for results that do not depend on the batch.
            disable_split_kv: never split a request's keys.
            use_fp16_qk_reduction: refused.

        Raises:
            ValueError: an argument is malformed.
            ArchCapabilityError: no backend accepts the request; lists every reason.
        """
        request, problem = self._prepare(locals())
        if self._buffers is not None:
            problem = self._buffers.settle(problem)
        self._adopt(request, problem)

    begin_forward = plan

    def workspace_size(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """Bytes of float and int workspace that `plan` would use with these arguments, given as much."""
        return self._size(*self._prepare(bind(self.plan, args, kwargs)))

    def reset_workspace_buffer(
        self, float_workspace_buffer: Tensor, int_workspace_buffers: Sequence[Tensor] | Tensor | None = None
    ) -> None:
        """Use another workspace from now on. `int_workspace_buffers`, one a level, are not needed here."""
        if isinstance(int_workspace_buffers, (list, tuple)):
            _levels.check_count("int_workspace_buffers", int_workspace_buffers, self._num_levels)
        super().reset_workspace_buffer(float_workspace_buffer)

    @overload
    def run(
        self,
        q: Tensor,
        paged_kv_cache: PagedCache,
        *,
        q_scale: Scale = None,
        k_scale: Scale = None,
        v_scale: Scale = None,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        return_lse: Literal[True],
        partial_state: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def run(
        self,
        q: Tensor,
        paged_kv_cache: PagedCache,
        *,
        q_scale: Scale = None,
        k_scale: Scale = None,
        v_scale: Scale = None,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        return_lse: Literal[False] = False,
        partial_state: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor: ...

    def run(
        self,
        q: Tensor,
        paged_kv_cache: PagedCache,
        *,
        q_scale: Scale = None,
        k_scale: Scale = None,
        v_scale: Scale = None,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        return_lse: bool = False,
        partial_state: tuple[Tensor, Tensor] | None = None,
    ) -> Results:
        """Attention of `q` over the planned levels.

        Args:
            q: `[T, Hq, head_dim]`.
            paged_kv_cache: one 5-D tensor `[N, 2, ...]` or a (K, V) tuple, in the wrapper's layout; all
                levels' pages are in it.
            q_scale: factor on the logits, a number or a one-element tensor.
            k_scale: factor on the logits.
            v_scale: factor on the result.
            out: `[T, Hq, head_dim_vo]` to write into.
            lse: fp32 `[T, Hq]` to write into.
            return_lse: return `(out, lse)`; the LSE is log2 of the sum of exp of the scaled logits.
            partial_state: `(o, lse)` of the same rows over other keys, merged in.

        Returns:
            `out`, or `(out, lse)`. A row that sees no key is 0 and -inf.
        """
        return self._run(
            q,
            flat(paged_kv_cache),
            q_scale=q_scale,
            k_scale=k_scale,
            v_scale=v_scale,
            out=out,
            lse=lse,
            return_lse=return_lse,
            partial=partial_state,
        )

    forward = run

    def run_return_lse(self, q: Tensor, paged_kv_cache: PagedCache, **options: Any) -> tuple[Tensor, Tensor]:
        """`run` with `return_lse=True`."""
        return self.run(q, paged_kv_cache, return_lse=True, **options)

    def _prepare(self, given: Mapping[str, Any]) -> tuple[Request, Problem]:
        """Check the arguments of `plan` and turn them into what backends plan from."""
        refuse_all(given, PLAN)
        page_size = _request.positive("page_size", given["page_size"])
        arrays = tuple(given[name] for name in _levels.NAMES)
        levels, last, longest = _levels.paged_levels(arrays, self._num_levels, page_size, self.device)
        lengths = (last.longest, longest)
        known = (Op.CASCADE, self._layout, self._num_levels, self._use_cuda_graph, *_ASKED(given))
        make = functools.partial(self._request_of, given, lengths)
        request = _request.remembered(known, lengths, make)
        return request, Problem(levels, last.rows, self.device, None, self._float_workspace_buffer)

    def _request_of(self, given: Mapping[str, Any], lengths: tuple[int, int]) -> Request:
        return _request.attention(
            Op.CASCADE,
            num_qo_heads=given["num_qo_heads"],
            num_kv_heads=given["num_kv_heads"],
            head_dim_qk=given["head_dim"],
            head_dim_vo=given["head_dim_vo"],
            q_dtype=given["q_data_type"],
            kv_dtype=given["kv_data_type"],
            o_dtype=given["o_data_type"],
            kv_layout=self._layout,
            page_size=given["page_size"],
            causal=given["causal"],
            num_levels=self._num_levels,
            max_qo_len=lengths[0],
            max_kv_len=lengths[1],
            graph=self._use_cuda_graph,
            fixed_split_size=given["fixed_split_size"],
            disable_split_kv=given["disable_split_kv"],
            **pick(given, FLAGS),
        )

    def _max_keys(self, problem: Problem) -> tuple[int, ...]:
        table = problem.levels[0].pages
        assert self._buffers is not None  # asked in graph mode only
        assert table is not None  # this wrapper plans paged levels only
        return self._buffers.max_keys(table.page_size)

    def _sources(self, caches: int) -> tuple[Source, ...]:
        return tuple(Source(level, 1, caches) for level in range(self._num_levels))

    def _caches(self, caches: Sequence[Tensor]) -> tuple[KV, ...]:
        plan, problem = self._current(), self._problem
        assert problem is not None  # set together with the plan
        kv = _layout.paged(caches[0] if len(caches) == 1 else caches, self._layout)
        largest = max(level.pages.max_page for level in problem.levels if level.pages is not None)
        _layout.check_paged(kv, plan.request, largest, problem.device, "paged_kv_cache")
        return (kv,) * len(problem.levels)
