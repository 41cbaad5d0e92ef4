"""Batch prefill over ragged keys and values: requests packed one after another, in FlashInfer's interface.

Letters: B requests, T query rows, n key rows, Hq and Hkv heads, D head dims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack, overload

import torch

from arch_caps import Op, Request
from rocade import _checks, _layout
from rocade._arguments import INIT, PLAN, bind, refuse_all, refuse_run
from rocade._checks import Given, PageNames
from rocade._errors import invalid
from rocade._plan import KV, Source
from rocade._prefill_common import GraphRows, check_hints, mask_of, prefill_request
from rocade._problem import Problem
from rocade._request import DTypeLike, Scale
from rocade._wrapper import BatchWrapper, Results, graph_buffer, persist

Tensor = torch.Tensor
NAMES = PageNames(indptr="kv_indptr")


class RaggedRunOptions(TypedDict, total=False):
    """Keywords of `run` that do not change what it returns."""

    q_scale: Scale
    k_scale: Scale
    v_scale: Scale
    o_scale: float | None
    out: Tensor | None
    lse: Tensor | None
    enable_pdl: bool | None
    kv_cache_sf: Tensor | None


class BatchPrefillWithRaggedKVCacheWrapper(BatchWrapper):
    """Attention of B requests over keys and values that are packed like the queries, without pages.

    Args:
        float_workspace_buffer: uint8, on the device of the tensors; `workspace_size` says how much is used.
            With less, long requests are cut into fewer pieces.
        kv_layout: "NHD" `[n, Hkv, D]` or "HND" `[Hkv, n, D]`.
        use_cuda_graph: keep plans in the `*_buf` tensors; B is fixed, and q may have more rows than planned.
        qo_indptr_buf, kv_indptr_buf: int32 `[B + 1]`.
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
        kv_indptr_buf: Tensor | None = None,
        custom_mask_buf: Tensor | None = None,
        mask_indptr_buf: Tensor | None = None,
        backend: str = "auto",
        jit_args: list[Any] | None = None,
        jit_kwargs: dict[str, Any] | None = None,
    ) -> None:
        refuse_all({"jit_args": jit_args, "jit_kwargs": jit_kwargs}, INIT)
        super().__init__(float_workspace_buffer, kv_layout, backend, use_cuda_graph=use_cuda_graph)
        self._qo_indptr_buf = qo_indptr_buf
        self._kv_indptr_buf = kv_indptr_buf
        self._rows: GraphRows | None = None
        self._fixed_batch_size = 0
        if use_cuda_graph:
            qo = graph_buffer("qo_indptr_buf", qo_indptr_buf, self.device)
            self._fixed_batch_size = qo.numel() - 1
            graph_buffer("kv_indptr_buf", kv_indptr_buf, self.device, qo.numel())
            self._rows = GraphRows(qo, custom_mask_buf, mask_indptr_buf)

    def plan(
        self,
        qo_indptr: Tensor,
        kv_indptr: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        head_dim_vo: int | None = None,
        custom_mask: Tensor | None = None,
        packed_custom_mask: Tensor | None = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
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
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
        seq_lens: Tensor | None = None,
        seq_lens_q: Tensor | None = None,
        max_token_per_sequence: int | None = None,
        max_sequence_kv: int | None = None,
        v_indptr: Tensor | None = None,
        o_indptr: Tensor | None = None,
    ) -> None:
        """Plan attention for these lengths. Host work; not inside graph capture or `torch.compile`.

        Note that `window_left` and `logits_soft_cap` come before `sm_scale` here, as in FlashInfer.

        Args:
            qo_indptr: int32 `[B + 1]` from 0: request i owns query rows `qo_indptr[i]:qo_indptr[i + 1]`.
            kv_indptr: int32 `[B + 1]`: request i owns that range of the rows of k and v. May start above 0.
            num_qo_heads: Hq, a multiple of `num_kv_heads`.
            num_kv_heads: Hkv.
            head_dim_qk: D of q and k.
            head_dim_vo: D of v and the result, None for that of q.
            custom_mask: bool `[sum(qo_len * kv_len)]`, True is visible; overrides `causal`.
            packed_custom_mask: the same as little-endian bits, each request on its own bytes; wins over it.
            causal: hide keys right of the diagonal that ends at the last query and last key.
            pos_encoding_mode: "NONE", "ROPE_LLAMA" or "ALIBI", applied inside.
            use_fp16_qk_reduction: refused.
            window_left: visible tokens left of the diagonal, negative for all.
            logits_soft_cap: cap * tanh(logit / cap); None or 0 for none.
            sm_scale: factor on q.k, None for 1/sqrt(head_dim_qk).
            rope_scale: positions are divided by it; None for 1.
            rope_theta: base of the rotary frequencies; None for 1e4.
            q_data_type: torch dtype or its name.
            kv_data_type: the same for k and v, which may have 8-bit floats; None for that of q.
            o_data_type: the same for the result; None for that of q.
            non_blocking: without effect on results.
            prefix_len_ptr: refused.
            token_pos_in_items_ptr: refused.
            token_pos_in_items_len: refused.
            max_item_len_ptr: refused.
            fixed_split_size: KV tokens a split, for results that do not depend on the batch.
            disable_split_kv: never split a request's keys.
            seq_lens: `[B]` KV lengths, checked against `kv_indptr`.
            seq_lens_q: `[B]` query lengths, checked against `qo_indptr`.
            max_token_per_sequence: upper bound on the query lengths, checked.
            max_sequence_kv: upper bound on the KV lengths, checked.
            v_indptr: refused.
            o_indptr: refused.

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
        k: Tensor,
        v: Tensor,
        *args: Any,
        return_lse: Literal[True],
        **options: Unpack[RaggedRunOptions],
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def run(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *args: Any,
        return_lse: Literal[False] = False,
        **options: Unpack[RaggedRunOptions],
    ) -> Tensor: ...

    def run(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *args: Any,
        q_scale: Scale = None,
        k_scale: Scale = None,
        v_scale: Scale = None,
        o_scale: float | None = None,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        return_lse: bool = False,
        enable_pdl: bool | None = None,
        kv_cache_sf: Tensor | None = None,
    ) -> Results:
        """Attention of `q` over the planned rows of `k` and `v`.

        Args:
            q: `[T, Hq, head_dim_qk]`.
            k: `[n, Hkv, head_dim_qk]`, or HND as the wrapper was made.
            v: `[n, Hkv, head_dim_vo]`, or HND.
            *args: refused.
            q_scale: factor on the logits, a number or a one-element tensor.
            k_scale: the same.
            v_scale: factor on the result.
            o_scale: refused unless 1.
            out: where to write, `[T, Hq, head_dim_vo]`; None makes a new tensor.
            lse: where to write the LSE, fp32 `[T, Hq]`; None makes a new tensor if it is returned.
            return_lse: return `(out, lse)`; the LSE is log2 of the sum of exp of the scaled logits.
            enable_pdl: without effect on results.
            kv_cache_sf: refused.

        Returns:
            `out`, or `(out, lse)`. A row that sees no key is 0 and -inf.
        """
        refuse_run(args=args, o_scale=o_scale, kv_cache_sf=kv_cache_sf)
        return self._run(
            q,
            (k, v),
            q_scale=q_scale,
            k_scale=k_scale,
            v_scale=v_scale,
            out=out,
            lse=lse,
            return_lse=return_lse,
        )

    def run_return_lse(
        self, q: Tensor, k: Tensor, v: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """`run` with `return_lse=True`."""
        return self.run(q, k, v, *args, return_lse=True, **kwargs)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
    ) -> Tensor:
        """Old interface: `run` with these flags, which replace the planned ones from now on."""
        self._override(locals())
        return self.run(q, k, v)

    def forward_return_lse(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """`forward` that also returns the LSE."""
        self._override(locals())
        return self.run(q, k, v, return_lse=True)

    def _plan_given(self, given: Mapping[str, Any]) -> None:
        request, problem = self._prepare(given)
        if self._rows is not None:
            batch = problem.levels[0].num_requests
            if batch != self._fixed_batch_size:
                expected = f"{self._fixed_batch_size}, fixed by the graph buffers"
                raise invalid("qo_indptr", f"{batch} requests", expected)
            problem = self._settle(self._rows.settle(problem))
        self._adopt(request, problem)

    def _prepare(self, given: Mapping[str, Any]) -> tuple[Request, Problem]:
        """Check the arguments of `plan` and turn them into what backends plan from."""
        refuse_all(given, PLAN)
        arrays = Given(given["qo_indptr"], given["kv_indptr"])
        level, facts = _checks.one_level(arrays, 0, self.device, NAMES)
        check_hints(given, level, facts)
        mask = mask_of(given, level, self.device)
        request = prefill_request(
            Op.BATCH_PREFILL_RAGGED,
            given,
            self._layout,
            (facts.longest, facts.max_kv_len),
            masked=mask is not None,
            graph=self._use_cuda_graph,
        )
        return request, Problem((level,), facts.rows, self.device, mask, self._float_workspace_buffer)

    def _settle(self, problem: Problem) -> Problem:
        """Copy kv_indptr into its graph buffer."""
        kv_indptr = problem.levels[0].kv_indptr
        assert kv_indptr is not None  # this wrapper plans dense levels only
        assert self._kv_indptr_buf is not None  # checked at construction
        persist("kv_indptr", self._kv_indptr_buf, kv_indptr)
        return problem

    def _sources(self, caches: int) -> tuple[Source, ...]:
        return (Source(0, 1, 2),)

    def _caches(self, caches: Sequence[Tensor]) -> tuple[KV, ...]:
        request, problem = self._current().request, self._problem
        assert problem is not None  # set together with the plan
        kv_indptr = problem.levels[0].kv_indptr
        assert kv_indptr is not None  # this wrapper plans dense levels only
        kv = _layout.dense(caches[0], caches[1], self._layout)
        _layout.check_dense(kv, request, int(kv_indptr[-1]), problem.device)
        return (kv,)
