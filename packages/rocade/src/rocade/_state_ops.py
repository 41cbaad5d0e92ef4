"""The merge and sum functions as torch operators, so that torch.compile sees calls and not their insides.

Eager calls go around the operators. Each functional operator has an `_out` twin that writes into given
tensors.
"""

from __future__ import annotations

import torch

from rocade import _states
from rocade._ops import define
from rocade._states import State

# Importing this module is what registers the operators, so callers take them from here.
OPERATORS = torch.ops.rocade


def _nothing(*args: object) -> None:
    """Shape function of an operator that returns nothing."""


def _state(v: torch.Tensor, shape: tuple[int, ...]) -> State:
    return v.new_empty(shape), v.new_empty(shape[:-1], dtype=torch.float32)


def _merge_state(
    v_a: torch.Tensor,
    s_a: torch.Tensor,
    v_b: torch.Tensor,
    s_b: torch.Tensor,
    mask: torch.Tensor | None,
    backend: str,
) -> State:
    return _states.merge_state(v_a, s_a, v_b, s_b, mask, None, backend)


def _merge_state_out(
    v_a: torch.Tensor,
    s_a: torch.Tensor,
    v_b: torch.Tensor,
    s_b: torch.Tensor,
    mask: torch.Tensor | None,
    v_out: torch.Tensor,
    s_out: torch.Tensor,
    backend: str,
) -> None:
    _states.merge_state(v_a, s_a, v_b, s_b, mask, (v_out, s_out), backend)


def _merge_states_out(
    v: torch.Tensor, s: torch.Tensor, v_out: torch.Tensor, s_out: torch.Tensor, backend: str
) -> None:
    _states.merge_states(v, s, (v_out, s_out), backend)


def _variable_length_merge_states_out(
    v: torch.Tensor,
    s: torch.Tensor,
    indptr: torch.Tensor,
    v_out: torch.Tensor,
    s_out: torch.Tensor,
    backend: str,
) -> None:
    _states.variable_length_merge_states(v, s, indptr, (v_out, s_out), backend)


define(
    "merge_state(Tensor v_a, Tensor s_a, Tensor v_b, Tensor s_b, Tensor? mask, str backend) "
    "-> (Tensor, Tensor)",
    _merge_state,
    lambda v_a, *_: _state(v_a, v_a.shape),
)
define(
    "merge_state_out(Tensor v_a, Tensor s_a, Tensor v_b, Tensor s_b, Tensor? mask, Tensor(a!) v_out, "
    "Tensor(b!) s_out, str backend) -> ()",
    _merge_state_out,
    _nothing,
)
define(
    "merge_state_in_place(Tensor(a!) v, Tensor(b!) s, Tensor v_other, Tensor s_other, Tensor? mask, "
    "str backend) -> ()",
    _states.merge_state_in_place,
    _nothing,
)
define(
    "merge_states(Tensor v, Tensor s, str backend) -> (Tensor, Tensor)",
    lambda v, s, backend: _states.merge_states(v, s, None, backend),
    lambda v, *_: _state(v, (v.shape[0], *v.shape[2:])),
)
define(
    "merge_states_out(Tensor v, Tensor s, Tensor(a!) v_out, Tensor(b!) s_out, str backend) -> ()",
    _merge_states_out,
    _nothing,
)
define(
    "variable_length_merge_states(Tensor v, Tensor s, Tensor indptr, str backend) -> (Tensor, Tensor)",
    lambda v, s, indptr, backend: _states.variable_length_merge_states(v, s, indptr, None, backend),
    lambda v, s, indptr, backend: _state(v, (indptr.shape[0] - 1, *v.shape[1:])),
)
define(
    "variable_length_merge_states_out(Tensor v, Tensor s, Tensor indptr, Tensor(a!) v_out, Tensor(b!) s_out, "
    "str backend) -> ()",
    _variable_length_merge_states_out,
    _nothing,
)
define(
    "attention_sum(Tensor v, str backend) -> Tensor",
    lambda v, backend: _states.attention_sum(v, None, backend),
    lambda v, backend: v.new_empty((v.shape[0], *v.shape[2:])),
)
define(
    "attention_sum_out(Tensor v, Tensor(a!) out, str backend) -> ()",
    lambda v, out, backend: (_states.attention_sum(v, out, backend), None)[1],
    _nothing,
)
define(
    "variable_length_attention_sum(Tensor v, Tensor indptr, str backend) -> Tensor",
    lambda v, indptr, backend: _states.variable_length_attention_sum(v, indptr, None, backend),
    lambda v, indptr, backend: v.new_empty((indptr.shape[0] - 1, *v.shape[1:])),
)
define(
    "variable_length_attention_sum_out(Tensor v, Tensor indptr, Tensor(a!) out, str backend) -> ()",
    lambda v, indptr, out, backend: (_states.variable_length_attention_sum(v, indptr, out, backend), None)[1],
    _nothing,
)
