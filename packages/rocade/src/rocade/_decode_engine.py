"""The private planning call of FlashInfer that vLLM makes in graph mode, served by an ordinary plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from rocade._errors import invalid
from rocade._request import DTypeLike

if TYPE_CHECKING:
    from rocade._decode_batch import BatchDecodeWithPagedKVCacheWrapper

Tensor = torch.Tensor


class CachedModule:
    """What engines find at `wrapper._cached_module`: not a compiled module as in FlashInfer, but a planner.

    The page ids are those in the wrapper's graph buffer; what the call does not say stays as planned.
    """

    def __init__(self, wrapper: BatchDecodeWithPagedKVCacheWrapper) -> None:
        self._wrapper = wrapper

    def plan(
        self,
        float_workspace_buffer: Tensor,
        int_workspace_buffer: Tensor,
        pin_memory_int_workspace_buffer: Tensor,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        kv_len: Tensor,
        total_num_rows: int,
        batch_size: int,
        num_qo_heads: int,
        num_kv_heads: int,
        page_size: int,
        enable_cuda_graph: bool,
        head_dim_qk: int,
        head_dim_vo: int,
        causal: bool,
        window_left: int,
        fixed_split_size: int = -1,
        disable_split_kv: bool = False,
        num_colocated_ctas: int = 0,
    ) -> list[int]:
        """Plan for these lengths; FlashInfer's arguments in its order. Returns an empty plan record."""
        last_page_len = _last_page_len(paged_kv_indptr, kv_len, page_size)
        if total_num_rows % max(batch_size, 1) or causal or head_dim_qk != head_dim_vo or num_colocated_ctas:
            given = f"{total_num_rows=} {causal=} {head_dim_qk=} {head_dim_vo=} {num_colocated_ctas=}"
            raise invalid("_cached_module.plan", given, "a plain decode plan")
        options = {
            **_planned(self._wrapper),
            "window_left": window_left,
            "fixed_split_size": fixed_split_size,
            "disable_split_kv": disable_split_kv,
            "q_len_per_req": total_num_rows // max(batch_size, 1),
        }
        table = (paged_kv_indptr, self._wrapper._page_ids(), last_page_len)
        self._wrapper.plan(*table, num_qo_heads, num_kv_heads, head_dim_qk, page_size, **options)
        return []


def _planned(wrapper: BatchDecodeWithPagedKVCacheWrapper) -> dict[str, Any]:
    """The options of the current plan that the private call leaves out."""
    request = wrapper._current().request
    dtypes: dict[str, DTypeLike] = {
        "q_data_type": request.q_dtype.value,
        "kv_data_type": request.kv_dtype.value,
        "o_data_type": request.o_dtype.value,
    }
    return {
        **dtypes,
        "pos_encoding_mode": request.pos_encoding.value,
        "logits_soft_cap": request.logits_soft_cap,
        "sm_scale": request.sm_scale,
        "rope_scale": request.rope_scale,
        "rope_theta": request.rope_theta,
    }


def _last_page_len(indptr: Tensor, kv_len: Tensor, page_size: int) -> Tensor:
    """Tokens in each last page; the lengths must fill exactly the pages that `indptr` gives them."""
    pages = indptr.cpu().diff()
    tokens = kv_len.cpu().to(torch.int32)
    if tokens.shape != pages.shape or not torch.equal(-(-tokens // page_size), pages):
        raise invalid("kv_len", tokens.tolist(), f"lengths that fill {pages.tolist()} pages of {page_size}")
    return torch.where(tokens > 0, (tokens - 1) % page_size + 1, 0).to(torch.int32)
