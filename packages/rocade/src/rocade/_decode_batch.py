"""Batch decode over a paged KV cache, FlashInfer's interface: one or the same few query tokens a request.

Letters: B requests, T = B * q_len_per_req query rows, Hq and Hkv heads, D head dims, N pages, S page size.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import Any, Literal, Unpack, overload

import torch

from arch_caps import Op, Request
from rocade import _checks, _request
from rocade._arguments import INIT, PLAN, SHARED, pick, refuse_all, refuse_run
from rocade._checks import Given, PageNames
from rocade._decode_arguments import DEFAULTS, DecodeOptions, named
from rocade._decode_engine import CachedModule
from rocade._errors import invalid
from rocade._layout import PagedCache, flat
from rocade._paged import PagedWrapper
from rocade._problem import Level, Problem
from rocade._request import DTypeLike, Scale
from rocade._wrapper import Results, RunOptions

Tensor = torch.Tensor
NAMES = PageNames("indptr", "indices", "last_page_len")


class BatchDecodeWithPagedKVCacheWrapper(PagedWrapper):
    """Attention of the newest token, or tokens, of B requests over a paged KV cache.

    Call `plan` when lengths or pages change and `run` once a layer. A page table may start above 0 and hold
    more indices than it uses, a request may be empty, and arrays may be on the CPU or the device.

    Args:
        float_workspace_buffer: uint8, on the device of the tensors; `workspace_size` says how much is used.
            With less, long requests are cut into fewer pieces.
        kv_layout: "NHD" `[N, S, Hkv, D]` or "HND" `[N, Hkv, S, D]`.
        use_cuda_graph: keep plans in the `*_buffer` tensors; B is then fixed.
        use_tensor_cores: without effect on results; backends choose their instructions themselves.
        paged_kv_indptr_buffer: int32 `[B + 1]`.
        paged_kv_indices_buffer, paged_kv_last_page_len_buffer: int32 `[max pages]` and `[B]`.
        backend: "auto" (also spelled "fa2" or "native"), or the name of one backend.
        jit_args: refused.
        max_seq_len: the longest sequence that will be planned; `plan` refuses a longer one.
    """

    def __init__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: Tensor | None = None,
        paged_kv_indices_buffer: Tensor | None = None,
        paged_kv_last_page_len_buffer: Tensor | None = None,
        backend: str = "auto",
        jit_args: list[Any] | None = None,
        max_seq_len: int | None = None,
    ) -> None:
        refuse_all({"jit_args": jit_args}, INIT)
        super().__init__(float_workspace_buffer, kv_layout, backend, use_cuda_graph=use_cuda_graph)
        self._keep_buffers(
            paged_kv_indptr_buffer, paged_kv_indices_buffer, paged_kv_last_page_len_buffer, "buffer"
        )
        self._use_tensor_cores = bool(use_tensor_cores)
        self._max_seq_len = max_seq_len
        self._q_len_per_req: int | None = None

    @property
    def use_tensor_cores(self) -> bool:
        """What the constructor was given; results do not depend on it."""
        return self._use_tensor_cores

    @property
    def _cached_module(self) -> CachedModule | None:
        """Where engines plan through FlashInfer's private interface; None before the first plan, as there."""
        return None if self._plan is None else CachedModule(self)

    def _page_ids(self) -> Tensor:
        """The page ids that the current plan reads, graph buffer included."""
        assert self._paged_kv_indices_buf is not None  # set by every plan
        return self._paged_kv_indices_buf

    def plan(
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *deprecated_positional_args: Any,
        **kwargs: Unpack[DecodeOptions],
    ) -> None:
        """Plan attention for these lengths and pages. Host work; not inside graph capture or `torch.compile`.

        Args:
            indptr: int32 `[B + 1]`: request i owns that range of `indices`.
            indices: int32 page ids. Read again at each run where they are on the cache's device already.
            last_page_len: int32 `[B]`, 1..page_size tokens in each last page; ignored without pages.
            num_qo_heads: Hq, a multiple of `num_kv_heads`.
            num_kv_heads: Hkv.
            head_dim: D.
            page_size: tokens a page.
            *deprecated_positional_args: the keywords below by position, in FlashInfer's order with or without
                `o_data_type`.
            **kwargs: `pos_encoding_mode` ("NONE", "ROPE_LLAMA" or "ALIBI"); `window_left` (negative for all);
                `logits_soft_cap`; `q_data_type` ("float16"), `kv_data_type`, `o_data_type` (None: as q);
                `data_type` (stands for q and kv dtype where they are None); `sm_scale` (None: 1/sqrt(D));
                `rope_scale`, `rope_theta`; `q_len_per_req` (1; more are causal among themselves);
                `fixed_split_size` (KV pages a split), `disable_split_kv`; `seq_lens` (checked against the
                table); `non_blocking` (no effect on results); `window_right` other than 0 and `block_tables`
                are refused.

        Raises:
            ValueError: an argument is malformed.
            TypeError: an unknown keyword, or a positional tail that can be read in two ways.
            ArchCapabilityError: no backend accepts the request; lists every reason.
        """
        options = named(deprecated_positional_args, kwargs)
        table = (indptr, indices, last_page_len)
        self._plan_table(table, (num_qo_heads, num_kv_heads, head_dim, page_size), options)

    def _plan_table(
        self,
        table: tuple[Tensor, Tensor, Tensor],
        sizes: tuple[int, int, int, int],
        options: Mapping[str, Any],
    ) -> None:
        request, problem = self._prepare(table, sizes, options)
        self._check_batch("last_page_len", problem.levels[0].num_requests)
        q_len = options["q_len_per_req"]
        if self._use_cuda_graph and self._q_len_per_req not in (None, q_len):
            raise invalid(
                "q_len_per_req", q_len, f"{self._q_len_per_req}, fixed by the first plan in graph mode"
            )
        self._adopt(request, self._settle(problem))
        self._q_len_per_req = q_len

    def workspace_size(
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *deprecated_positional_args: Any,
        **kwargs: Unpack[DecodeOptions],
    ) -> tuple[int, int]:
        """Bytes of float and int workspace that `plan` would use with these arguments, given as much."""
        sizes = (num_qo_heads, num_kv_heads, head_dim, page_size)
        options = named(deprecated_positional_args, kwargs)
        return self._size(*self._prepare((indptr, indices, last_page_len), sizes, options))

    begin_forward = plan

    @overload
    def run(
        self,
        q: Tensor,
        paged_kv_cache: PagedCache,
        *args: Any,
        return_lse: Literal[True],
        q_len_per_req: int | None = None,
        **options: Unpack[RunOptions],
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def run(
        self,
        q: Tensor,
        paged_kv_cache: PagedCache,
        *args: Any,
        return_lse: Literal[False] = False,
        q_len_per_req: int | None = None,
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
        q_len_per_req: int | None = None,
        skip_softmax_threshold_scale_factor: float | None = None,
        kv_cache_sf: Tensor | None = None,
    ) -> Results:
        """Attention of `q` over the planned pages.

        Args:
            q: `[T, Hq, D]`, the tokens of a request one after another.
            paged_kv_cache: one 5-D tensor `[N, 2, ...]` or a (K, V) tuple, in the wrapper's layout.
            *args: refused.
            q_scale: factor on the logits, a number or a one-element tensor.
            k_scale: the same.
            v_scale: factor on the result.
            out: where to write, `[T, Hq, D]`; None makes a new tensor.
            lse: where to write the LSE, fp32 `[T, Hq]`; None makes a new tensor if it is returned.
            return_lse: return `(out, lse)`; the LSE is log2 of the sum of exp of the scaled logits.
            enable_pdl: without effect on results.
            window_left: None or what was planned.
            sinks: refused.
            q_len_per_req: None or what was planned.
            skip_softmax_threshold_scale_factor: refused.
            kv_cache_sf: refused.

        Returns:
            `out`, or `(out, lse)`. A row that sees no key is 0 and -inf.
        """
        refuse_run(args=args, sinks=sinks, kv_cache_sf=kv_cache_sf)
        refuse_run(skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor)
        self._check_window(window_left)
        if q_len_per_req is not None and q_len_per_req != self._q_len_per_req:
            raise invalid("q_len_per_req", q_len_per_req, f"None or {self._q_len_per_req}, as planned")
        return self._run(
            q,
            flat(paged_kv_cache),
            q_scale=q_scale,
            k_scale=k_scale,
            v_scale=v_scale,
            out=out,
            lse=lse,
            return_lse=return_lse,
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
        pos_encoding_mode: str = "NONE",
        q_scale: Scale = None,
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
        return self.run(q, paged_kv_cache, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)

    def forward_return_lse(
        self,
        q: Tensor,
        paged_kv_cache: PagedCache,
        pos_encoding_mode: str = "NONE",
        q_scale: Scale = None,
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
        return self.run(q, paged_kv_cache, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, return_lse=True)

    def _prepare(
        self, table: tuple[Tensor, Tensor, Tensor], sizes: tuple[int, int, int, int], given: Mapping[str, Any]
    ) -> tuple[Request, Problem]:
        """Check the arguments of `plan` and turn them into what backends plan from."""
        refuse_all(given, PLAN)
        page_size = _request.positive("page_size", sizes[3])
        q_len = _request.positive("q_len_per_req", given["q_len_per_req"])
        level, facts = _checks.one_level(Given(None, *table), page_size, self.device, NAMES)
        self._check_lengths(given, level, facts.max_kv_len, q_len)
        q_dtype, kv_dtype = _dtypes(given)
        lengths = (q_len, facts.max_kv_len)
        dtypes = (q_dtype, kv_dtype, given["o_data_type"])
        known = (Op.BATCH_DECODE, self._layout, self._use_cuda_graph, *sizes, *dtypes, *_SHARED(given), q_len)
        make = functools.partial(self._request_of, sizes, dtypes, lengths, given)
        request = _request.remembered(known, lengths, make)
        batch = level.num_requests
        level = level.with_rows(every(q_len, batch))
        return request, Problem((level,), q_len * batch, self.device, None, self._float_workspace_buffer)

    def _request_of(
        self,
        sizes: tuple[int, int, int, int],
        dtypes: tuple[DTypeLike, DTypeLike | None, DTypeLike | None],
        lengths: tuple[int, int],
        given: Mapping[str, Any],
    ) -> Request:
        return _request.attention(
            Op.BATCH_DECODE,
            num_qo_heads=sizes[0],
            num_kv_heads=sizes[1],
            head_dim_qk=sizes[2],
            q_dtype=dtypes[0],
            kv_dtype=dtypes[1],
            o_dtype=dtypes[2],
            kv_layout=self._layout,
            page_size=sizes[3],
            causal=lengths[0] > 1,
            max_qo_len=lengths[0],
            max_kv_len=lengths[1],
            graph=self._use_cuda_graph,
            **pick(given, SHARED),
        )

    def _check_lengths(self, given: Mapping[str, Any], level: Level, longest: int, q_len: int) -> None:
        """A request must hold its own query tokens already, unless it is empty padding."""
        bound = self._max_seq_len
        if bound is not None and longest > bound:
            raise invalid("indptr", f"a request of {longest} tokens", f"at most {bound}, max_seq_len")
        if given["seq_lens"] is not None:
            _checks.lengths_match("seq_lens", given["seq_lens"], level.kv_len)
        if q_len > 1:
            short = (level.kv_len > 0) & (level.kv_len < q_len)
            if bool(short.any()):
                at = int(short.int().argmax())
                expected = f"at least q_len_per_req ({q_len}): append the query tokens' keys before planning"
                raise invalid("indptr", f"request {at} of {int(level.kv_len[at])} tokens", expected)


_SHARED = operator.itemgetter(*SHARED)


def _dtypes(given: Mapping[str, Any]) -> tuple[DTypeLike, DTypeLike | None]:
    """Dtypes of q and KV; the old `data_type` stands for those that are None."""
    both = given["data_type"]
    q = given["q_data_type"] if given["q_data_type"] is not None else both
    return q if q is not None else DEFAULTS["q_data_type"], given["kv_data_type"] or both


@functools.lru_cache(maxsize=64)
def every(q_len: int, batch: int) -> Tensor:
    """int32 host `[batch + 1]`: 0, q_len, 2 * q_len, ... Shared, so not to be written."""
    return torch.arange(0, (batch + 1) * q_len, q_len, dtype=torch.int32, device="cpu")
