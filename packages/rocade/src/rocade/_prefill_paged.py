"""Batch prefill over a paged KV cache: requests of any query length, in FlashInfer's interface.

Letters: B requests, T query rows, Hq and Hkv heads, D head dims, N pages, S page size.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, Literal, Unpack, overload

import torch

from arch_caps import Op, Request
from rocade import _checks, _request
from rocade._arguments import INIT, PLAN, bind, refuse_all, refuse_run
from rocade._checks import Given
from rocade._layout import PagedCache, flat
from rocade._paged import PagedWrapper
from rocade._prefill_common import GraphRows, check_hints, mask_of, prefill_request
from rocade._problem import Problem
from rocade._request import DTypeLike, Scale
from rocade._wrapper import Results, RunOptions, graph_buffer

Tensor = torch.Tensor
_ARRAYS = operator.itemgetter("qo_indptr", "paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len")


class BatchPrefillWithPagedKVCacheWrapper(PagedWrapper):
    """Attention of B requests, each with its own number of query tokens, over a paged KV cache.

    Call `plan` when lengths or pages change and `run` once a layer. A page table may start above 0 and hold
    more indices than it uses, a request may be empty, and arrays may be on the CPU or the device.

    Args:
        float_workspace_buffer: uint8, on the device of the tensors; `workspace_size` says how much is used.
            With less, long requests are cut into fewer pieces.
        kv_layout: "NHD" `[N, S, Hkv, D]` or "HND" `[N, Hkv, S, D]`.
        use_cuda_graph: keep plans in the `*_buf` tensors; B is fixed, and q may have more rows than planned.
        qo_indptr_buf, paged_kv_indptr_buf: int32 `[B + 1]`.
        paged_kv_indices_buf, paged_kv_last_page_len_buf: int32 `[max pages]` and `[B]`.
        custom_mask_buf, mask_indptr_buf: uint8 and int32 `[B + 1]`, needed in graph mode to plan with a mask.
        backend: "auto" (also spelled "fa2" or "native"), or the name of one backend.
        jit_args, jit_kwargs: refused.
    """

    def __init__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: Tensor | None = None,
        paged_kv_indptr_buf: Tensor | None = None,
        paged_kv_indices_buf: Tensor | None = None,
        paged_kv_last_page_len_buf: Tensor | None = None,
        custom_mask_buf: Tensor | None = None,
        mask_indptr_buf: Tensor | None = None,
        backend: str = "auto",
        jit_args: list[Any] | None = None,
        jit_kwargs: dict[str, Any] | None = None,
    ) -> None:
        refuse_all({"jit_args": jit_args, "jit_kwargs": jit_kwargs}, INIT)
        super().__init__(float_workspace_buffer, kv_layout, backend, use_cuda_graph=use_cuda_graph)
        self._keep_buffers(paged_kv_indptr_buf, paged_kv_indices_buf, paged_kv_last_page_len_buf, "buf")
        self._qo_indptr_buf = qo_indptr_buf
        self._rows: GraphRows | None = None
        if use_cuda_graph:
            qo = graph_buffer("qo_indptr_buf", qo_indptr_buf, self.device, self._fixed_batch_size + 1)
            self._rows = GraphRows(qo, custom_mask_buf, mask_indptr_buf)

    def plan(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        head_dim_vo: int | None = None,
        custom_mask: Tensor | None = None,
        packed_custom_mask: Tensor | None = None,
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
        o_data_type: DTypeLike | None = None,
        non_blocking: bool = True,
        prefix_len_ptr: Tensor | None = None,
        token_pos_in_items_ptr: Tensor | None = None,
        token_pos_in_items_len: int = 0,
        max_item_len_ptr: Tensor | None = None,
        seq_lens: Tensor | None = None,
        seq_lens_q: Tensor | None = None,
        block_tables: Tensor | None = None,
        max_token_per_sequence: int | None = None,
        max_sequence_kv: int | None = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
    ) -> None:
        """Plan attention for these lengths and pages. Host work; not inside graph capture or `torch.compile`.

        Args:
            qo_indptr: int32 `[B + 1]` from 0: request i owns query rows `qo_indptr[i]:qo_indptr[i + 1]`.
            paged_kv_indptr: int32 `[B + 1]`: request i owns that range of `paged_kv_indices`.
            paged_kv_indices: int32 page ids; read again at each run if already on the cache's device.
            paged_kv_last_page_len: int32 `[B]`, 1..page_size tokens in each last page; ignored without pages.
            num_qo_heads: Hq, a multiple of `num_kv_heads`.
            num_kv_heads: Hkv.
            head_dim_qk: D of q and k.
            page_size: tokens a page.
            head_dim_vo: D of v and the result, None for that of q.
            custom_mask: bool `[sum(qo_len * kv_len)]`, True is visible; overrides `causal`.
            packed_custom_mask: the same as little-endian bits, each request on its own bytes; wins over it.
            causal: hide keys right of the diagonal that ends at the last query and last key.
            pos_encoding_mode: "NONE", "ROPE_LLAMA" or "ALIBI", applied inside.
            use_fp16_qk_reduction: refused.
            sm_scale: factor on q.k, None for 1/sqrt(head_dim_qk).
            window_left: visible tokens left of the diagonal, negative for all.
            logits_soft_cap: cap * tanh(logit / cap); None or 0 for none.
            rope_scale: positions are divided by it; None for 1.
            rope_theta: base of the rotary frequencies; None for 1e4.
            q_data_type: torch dtype or its name.
            kv_data_type: the same for the cache, which may have 8-bit floats; None for that of q.
            o_data_type: the same for the result; None for that of q.
            non_blocking: without effect on results.
            prefix_len_ptr: refused.
            token_pos_in_items_ptr: refused.
            token_pos_in_items_len: refused.
            max_item_len_ptr: refused.
            seq_lens: `[B]` KV lengths, checked against the page table.
            seq_lens_q: `[B]` query lengths, checked against `qo_indptr`.
            block_tables: refused.
            max_token_per_sequence: upper bound on the query lengths, checked.
            max_sequence_kv: upper bound on the KV lengths, checked.
            fixed_split_size: KV pages a split, for results that do not depend on the batch.
            disable_split_kv: never split a request's keys.

        Raises:
            ValueError: an argument is malformed.
            ArchCapabilityError: no backend accepts the request; lists every reason.
        """
        self._plan_given(locals())

    def workspace_size(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """Bytes of float and int workspace that `plan` would use with these arguments, given as much."""
        return self._size(*self._prepare(bind(self.plan, args, kwargs)))

    def begin_forward(self, *args: Any, **kwargs: Any) -> None:
        """`plan` under its old name, which takes `head_dim` for `head_dim_qk`, too."""
        if "head_dim" in kwargs:
            kwargs["head_dim_qk"] = kwargs.pop("head_dim")
        self.plan(*args, **kwargs)

    @overload
    def run(
        self,
        q: Tensor,
        paged_kv_cache: PagedCache,
        *args: Any,
        return_lse: Literal[True],
        partial_state: tuple[Tensor, Tensor] | None = None,
        **options: Unpack[RunOptions],
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def run(
        self,
        q: Tensor,
        paged_kv_cache: PagedCache,
        *args: Any,
        return_lse: Literal[False] = False,
        partial_state: tuple[Tensor, Tensor] | None = None,
        **options: Unpack[RunOptions],
    ) -> Tensor: ...

    def run(
        self,
        q: Tensor,
        paged_kv_cache: PagedCache,
        *args: Any,
        q_scale: Scale = None,
        k_scale: Scale = None,
        v_scale: Scale = None,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        return_lse: bool = False,
        enable_pdl: bool | None = None,
        window_left: int | None = None,
        sinks: Tensor | None = None,
        kv_cache_sf: Tensor | None = None,
        skip_softmax_threshold_scale_factor: float | None = None,
        use_fp16_softmax: bool | None = None,
        uses_spcompress: bool | None = None,
        partial_state: tuple[Tensor, Tensor] | None = None,
    ) -> Results:
        """Attention of `q` over the planned pages.

        Args:
            q: `[T, Hq, head_dim_qk]`.
            paged_kv_cache: one 5-D tensor `[N, 2, ...]` or a (K, V) tuple, in the wrapper's layout.
            *args: refused.
            q_scale: factor on the logits, a number or a one-element tensor.
            k_scale: the same.
            v_scale: factor on the result, before a partial state is merged in.
            out: where to write, `[T, Hq, head_dim_vo]`; None makes a new tensor.
            lse: where to write the LSE, fp32 `[T, Hq]`; None makes a new tensor if it is returned.
            return_lse: return `(out, lse)`; the LSE is log2 of the sum of exp of the scaled logits.
            enable_pdl: without effect on results.
            window_left: None or what was planned.
            sinks: refused.
            kv_cache_sf: refused.
            skip_softmax_threshold_scale_factor: refused.
            use_fp16_softmax: refused.
            uses_spcompress: refused.
            partial_state: `(o, lse)` of the same rows over other keys, merged into the result.

        Returns:
            `out`, or `(out, lse)`. A row that sees no key is 0 and -inf.
        """
        refuse_run(args=args, sinks=sinks, kv_cache_sf=kv_cache_sf, use_fp16_softmax=use_fp16_softmax)
        refuse_run(
            skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor,
            uses_spcompress=uses_spcompress,
        )
        self._check_window(window_left)
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

    def run_return_lse(
        self, q: Tensor, paged_kv_cache: PagedCache, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """`run` with `return_lse=True`."""
        return self.run(q, paged_kv_cache, *args, return_lse=True, **kwargs)

    def forward(
        self,
        q: Tensor,
        paged_kv_cache: PagedCache,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        k_scale: Scale = None,
        v_scale: Scale = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
    ) -> Tensor:
        """Old interface: `run` with these flags, which replace the planned ones from now on."""
        self._override(locals())
        return self.run(q, paged_kv_cache, k_scale=k_scale, v_scale=v_scale)

    def forward_return_lse(
        self,
        q: Tensor,
        paged_kv_cache: PagedCache,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        k_scale: Scale = None,
        v_scale: Scale = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """`forward` that also returns the LSE."""
        self._override(locals())
        return self.run(q, paged_kv_cache, k_scale=k_scale, v_scale=v_scale, return_lse=True)

    def _plan_given(self, given: Mapping[str, Any]) -> None:
        request, problem = self._prepare(given)
        self._check_batch("qo_indptr", problem.levels[0].num_requests)
        if self._rows is not None:
            problem = self._rows.settle(problem)
        self._adopt(request, self._settle(problem))

    def _prepare(self, given: Mapping[str, Any]) -> tuple[Request, Problem]:
        """Check the arguments of `plan` and turn them into what backends plan from."""
        refuse_all(given, PLAN)
        page_size = _request.positive("page_size", given["page_size"])
        arrays = Given(*_ARRAYS(given))
        level, facts = _checks.one_level(arrays, page_size, self.device)
        check_hints(given, level, facts)
        mask = mask_of(given, level, self.device)
        request = prefill_request(
            Op.BATCH_PREFILL_PAGED,
            given,
            self._layout,
            (facts.longest, facts.max_kv_len),
            masked=mask is not None,
            graph=self._use_cuda_graph,
        )
        return request, Problem((level,), facts.rows, self.device, mask, self._float_workspace_buffer)
