"""Decode for graph capture, and the planning entry points that serving engines call on the way to it."""

from __future__ import annotations

import torch

from rocade._decode_batch import BatchDecodeWithPagedKVCacheWrapper
from rocade._request import DTypeLike

Tensor = torch.Tensor


class CUDAGraphBatchDecodeWithPagedKVCacheWrapper(BatchDecodeWithPagedKVCacheWrapper):
    """`BatchDecodeWithPagedKVCacheWrapper` for graph capture: B is fixed and plans live in these buffers.

    Args:
        workspace_buffer: uint8, on the device of the tensors.
        indptr_buffer, indices_buffer, last_page_len_buffer: int32 `[B + 1]`, `[max pages]`, `[B]`.
        kv_layout, use_tensor_cores, backend, max_seq_len: as in the base class.
    """

    def __init__(
        self,
        workspace_buffer: Tensor,
        indptr_buffer: Tensor,
        indices_buffer: Tensor,
        last_page_len_buffer: Tensor,
        kv_layout: str = "NHD",
        use_tensor_cores: bool = False,
        backend: str = "auto",
        max_seq_len: int | None = None,
    ) -> None:
        super().__init__(
            workspace_buffer,
            kv_layout,
            use_cuda_graph=True,
            use_tensor_cores=use_tensor_cores,
            paged_kv_indptr_buffer=indptr_buffer,
            paged_kv_indices_buffer=indices_buffer,
            paged_kv_last_page_len_buffer=last_page_len_buffer,
            backend=backend,
            max_seq_len=max_seq_len,
        )


def fast_decode_plan(
    self: BatchDecodeWithPagedKVCacheWrapper,
    indptr: Tensor,
    indices: Tensor,
    last_page_len: Tensor,
    num_qo_heads: int,
    num_kv_heads: int,
    head_dim: int,
    page_size: int,
    pos_encoding_mode: str = "NONE",
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    q_data_type: DTypeLike | None = None,
    kv_data_type: DTypeLike | None = None,
    data_type: DTypeLike | None = None,
    sm_scale: float | None = None,
    rope_scale: float | None = None,
    rope_theta: float | None = None,
    non_blocking: bool = True,
    fixed_split_size: int | None = None,
    disable_split_kv: bool = False,
    global_override_indptr_cpu: Tensor | None = None,
) -> None:
    """`plan` with an indptr that is on the host already; it checks as much as `plan` does.

    Engines install it as `begin_forward` of a wrapper. `global_override_indptr_cpu` holds the values of
    `indptr`, which then is not copied from the device. Everything else means what it means to `plan`.
    """
    given = dict(locals())
    del given["self"]
    override = given.pop("global_override_indptr_cpu")
    self.plan(**{**given, "indptr": indptr if override is None else override})
