"""Public functions on attention states: merging and plain sums. `rocade.cascade` exports them.

A state is the attention of n rows over some of their keys: `v [n, H, D]`, and `s [n, H]`, the log2 of the sum
of exp of the scaled logits. A row that saw no key has v = 0 and s = -inf, which merging leaves out; two such
rows merge to (0, -inf). Arithmetic is fp32 whatever the dtype of v. Only the last dimension of a tensor must
be contiguous.
"""

from __future__ import annotations

import torch

from rocade import _states
from rocade._state_ops import OPERATORS
from rocade._states import State


def merge_state(
    v_a: torch.Tensor,
    s_a: torch.Tensor,
    v_b: torch.Tensor,
    s_b: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    out: State | None = None,
    backend: str = "auto",
) -> State:
    """Merge two attention states of the same rows over different keys.

    Args:
        v_a: `[n, H, D]`, fp16, bf16 or fp32.
        s_a: `[n, H]`, fp32; other floats are converted.
        v_b: like `v_a`.
        s_b: like `s_a`.
        mask: bool or uint8 `[n]`; rows where it is 0 are those of state a. None merges every row.
        out: `(v [n, H, D] like v_a, s fp32 [n, H])` to write into; may be state a itself.
        backend: `"auto"` or the name of a backend.

    Returns:
        The merged `(v, s)`, in new tensors unless `out` is given.

    Raises:
        ValueError: a shape, dtype or device does not fit.
        ArchCapabilityError: no backend serves this; it lists why.
    """
    if not torch.compiler.is_compiling():
        return _states.merge_state(v_a, s_a, v_b, s_b, mask, out, backend)
    if out is not None:
        OPERATORS.merge_state_out(v_a, s_a, v_b, s_b, mask, *out, backend)
        return out
    merged: State = OPERATORS.merge_state(v_a, s_a, v_b, s_b, mask, backend)
    return merged


def merge_state_in_place(
    v: torch.Tensor,
    s: torch.Tensor,
    v_other: torch.Tensor,
    s_other: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    backend: str = "auto",
) -> None:
    """Merge another state into `v` and `s`; `merge_state(..., mask=mask)` is the twin that leaves them alone.

    Args:
        v: `[n, H, D]`, fp16, bf16 or fp32; written.
        s: `[n, H]`, fp32, since it is written; another dtype is refused.
        v_other: like `v`.
        s_other: `[n, H]`, fp32; other floats are converted.
        mask: bool or uint8 `[n]`; rows where it is 0 keep their value. Read at each run of a captured graph.
        backend: `"auto"` or the name of a backend.

    Raises:
        ValueError: a shape, dtype or device does not fit, or `v` or `s` repeats memory.
        ArchCapabilityError: no backend serves this; it lists why.
    """
    if torch.compiler.is_compiling():
        OPERATORS.merge_state_in_place(v, s, v_other, s_other, mask, backend)
    else:
        _states.merge_state_in_place(v, s, v_other, s_other, mask, backend)


def merge_states(
    v: torch.Tensor, s: torch.Tensor, *, out: State | None = None, backend: str = "auto"
) -> State:
    """Merge S attention states of the same rows.

    Args:
        v: `[n, S, H, D]`, fp16, bf16 or fp32; S may be 0, which gives rows without keys.
        s: `[n, S, H]`, fp32; other floats are converted.
        out: `(v [n, H, D], s fp32 [n, H])` to write into.
        backend: `"auto"` or the name of a backend.

    Returns:
        The merged `(v [n, H, D], s [n, H])`, in new tensors unless `out` is given.

    Raises:
        ValueError: a shape, dtype or device does not fit.
        ArchCapabilityError: no backend serves this; it lists why.
    """
    if not torch.compiler.is_compiling():
        return _states.merge_states(v, s, out, backend)
    if out is not None:
        OPERATORS.merge_states_out(v, s, *out, backend)
        return out
    merged: State = OPERATORS.merge_states(v, s, backend)
    return merged


def variable_length_merge_states(
    v: torch.Tensor,
    s: torch.Tensor,
    indptr: torch.Tensor,
    *,
    out: State | None = None,
    backend: str = "auto",
) -> State:
    """Merge a different number of attention states for each row.

    Args:
        v: `[m, H, D]`, fp16, bf16 or fp32, all states of all rows.
        s: `[m, H]`, fp32; other floats are converted.
        indptr: int32 `[n + 1]`; row i merges states `indptr[i]:indptr[i + 1]`, none giving a row without
            keys. On a device it is not checked.
        out: `(v [n, H, D], s fp32 [n, H])` to write into.
        backend: `"auto"` or the name of a backend.

    Returns:
        The merged `(v [n, H, D], s [n, H])`, in new tensors unless `out` is given.

    Raises:
        ValueError: a shape, dtype or device does not fit, or `indptr` decreases or leaves `v`.
        ArchCapabilityError: no backend serves this; it lists why.
    """
    if not torch.compiler.is_compiling():
        return _states.variable_length_merge_states(v, s, indptr, out, backend)
    if out is not None:
        OPERATORS.variable_length_merge_states_out(v, s, indptr, *out, backend)
        return out
    merged: State = OPERATORS.variable_length_merge_states(v, s, indptr, backend)
    return merged


def attention_sum(v: torch.Tensor, *, out: torch.Tensor | None = None, backend: str = "auto") -> torch.Tensor:
    """Add up S tensors a row, without weights; the sum is fp32 until it is stored.

    Args:
        v: `[n, S, H, D]`, fp16, bf16 or fp32; S may be 0.
        out: `[n, H, D]` like `v` to write into.
        backend: `"auto"` or the name of a backend.

    Returns:
        `[n, H, D]`, a new tensor unless `out` is given.

    Raises:
        ValueError: a shape, dtype or device does not fit.
        ArchCapabilityError: no backend serves this; it lists why.
    """
    if not torch.compiler.is_compiling():
        return _states.attention_sum(v, out, backend)
    if out is not None:
        OPERATORS.attention_sum_out(v, out, backend)
        return out
    total: torch.Tensor = OPERATORS.attention_sum(v, backend)
    return total


def variable_length_attention_sum(
    v: torch.Tensor, indptr: torch.Tensor, *, out: torch.Tensor | None = None, backend: str = "auto"
) -> torch.Tensor:
    """Add up a different number of tensors for each row, without weights; fp32 until it is stored.

    Args:
        v: `[m, H, D]`, fp16, bf16 or fp32.
        indptr: int32 `[n + 1]`; row i is the sum of `v[indptr[i]:indptr[i + 1]]`. On a device it is not
            checked.
        out: `[n, H, D]` like `v` to write into.
        backend: `"auto"` or the name of a backend.

    Returns:
        `[n, H, D]`, a new tensor unless `out` is given.

    Raises:
        ValueError: a shape, dtype or device does not fit, or `indptr` decreases or leaves `v`.
        ArchCapabilityError: no backend serves this; it lists why.
    """
    if not torch.compiler.is_compiling():
        return _states.variable_length_attention_sum(v, indptr, out, backend)
    if out is not None:
        OPERATORS.variable_length_attention_sum_out(v, indptr, out, backend)
        return out
    total: torch.Tensor = OPERATORS.variable_length_attention_sum(v, indptr, backend)
    return total
