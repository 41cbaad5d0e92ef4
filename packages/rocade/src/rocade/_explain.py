"""`rocade.explain`: which backend a call uses, and every reason why the others do not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import arch_caps
from arch_caps import Op, Request
from rocade import _device, _dispatch, _request
from rocade._dispatch import AUTO, Verdict
from rocade._errors import invalid
from rocade._layout import kv_layout
from rocade._wrapper import BatchWrapper

_PAGED = frozenset((Op.BATCH_PREFILL_PAGED, Op.BATCH_DECODE, Op.CASCADE))
_OPS = {op.value: op for op in Op}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The table's answer to one request. Printing it gives one line per backend and reason."""

    request: Request
    target: str
    verdicts: tuple[Verdict, ...]

    @property
    def backend(self) -> str | None:
        """The backend that serves the request, or None when all refuse."""
        return next((v.backend for v in self.verdicts if not v.reasons), None)

    def __str__(self) -> str:
        answer = f"runs on backend {self.backend!r}" if self.backend else "is refused by every backend"
        lines = [f"{self.request.op.value} on {self.target} {answer}"]
        width = max(8, *(len(verdict.backend) + 2 for verdict in self.verdicts))
        for verdict in self.verdicts:
            said = [f"no: {reason}" for reason in verdict.reasons] or ["yes"]
            lines += [f"  {verdict.backend:{width}}{text}" for text in said]
        if self.target not in arch_caps.TARGETS:
            known = ", ".join(arch_caps.TARGETS)
            lines.append(
                f"The table does not know {self.target}, so nothing is known to run there; it has {known}"
            )
        return "\n".join(lines)


def explain(
    call: str | BatchWrapper,
    *,
    device: torch.device | str = "cpu",
    backend: str = AUTO,
    target: str | None = None,
    **facts: Any,
) -> Explanation:
    """Say which backend serves a call and why the others do not.

    Args:
        call: the name of an operation such as "batch_decode", or a wrapper that has planned.
        device: where the tensors would be. With a wrapper, its own device counts.
        backend: as given to a wrapper.
        target: ask about this target, such as "sm_90", and not about this machine.
        **facts: of the request, named as plan arguments are: `num_qo_heads` (32), `num_kv_heads` (8),
            `head_dim_qk` or `head_dim` (128), `head_dim_vo`, `q_dtype` or `q_data_type` ("float16"),
            `kv_dtype`, `o_dtype`, `kv_layout`,
            `page_size` (16), `causal`, `custom_mask` (True or False), `window_left`, `logits_soft_cap`,
            `pos_encoding_mode`, `num_levels`, `max_qo_len`, `max_kv_len`, `graph`, ...

    Raises:
        ValueError: the operation, the backend or a fact does not exist or is malformed.
    """
    if isinstance(call, BatchWrapper):
        request, asked = call._current().request, call._asked_backend
        here = _device.place(call.device)
    else:
        request, asked = _described(call, facts), _dispatch.canonical(backend)
        here = _device.place(torch.device(device))
    if target is not None:
        name = arch_caps.target_of(target)
        return Explanation(request, name, _dispatch.verdicts(request, name, asked))
    return Explanation(request, here.target, _dispatch.verdicts(request, here, asked))


def _described(call: object, facts: dict[str, Any]) -> Request:
    """The request that the facts describe, with a common Llama shape for what they leave out."""
    op = _OPS.get(call) if isinstance(call, str) else None
    if op is None:
        raise invalid("call", repr(call), "a wrapper, or one of " + ", ".join(_OPS))
    if op is Op.APPEND_PAGED_KV_CACHE:
        return _request.append(**{**_APPEND, **_known(_request.append, call, _with_layout(facts))})
    if not op.is_attention:
        return _request.states(op, **{**_STATES, **_known(_request.states, call, facts)})
    paged = {"page_size": 16} if op in _PAGED else {}
    facts = {_PLAN_NAMES.get(name, name): value for name, value in facts.items()}
    given = _known(_request.attention, call, _with_layout(facts))
    return _request.attention(op, **{**_ATTENTION, **paged, **given})


def _known(make: Callable[..., Request], call: object, facts: dict[str, Any]) -> dict[str, Any]:
    """The facts, after ValueError for one that this kind of call does not have or that has a wrong type."""
    names = [name for name in inspect.signature(make).parameters if name != "op"]
    for name, value in facts.items():
        if name not in names:
            raise invalid(name, f"a fact that {call!r} does not have", f"one of {', '.join(names)}")
        if name in _LENGTHS and value is not None:
            _request.integer(name, value)
    return facts


_LENGTHS = ("num_levels", "max_qo_len", "max_kv_len")
# What the plan() of some wrappers calls a fact.
_PLAN_NAMES = {
    "head_dim": "head_dim_qk",
    "q_data_type": "q_dtype",
    "kv_data_type": "kv_dtype",
    "o_data_type": "o_dtype",
}


_ATTENTION: dict[str, Any] = {
    "num_qo_heads": 32,
    "num_kv_heads": 8,
    "head_dim_qk": 128,
    "q_dtype": torch.float16,
}
_STATES: dict[str, Any] = {"dtype": torch.float16, "num_heads": 32, "head_dim": 128}
_APPEND: dict[str, Any] = {
    "key_dtype": torch.float16,
    "cache_dtype": torch.float16,
    "num_kv_heads": 8,
    "head_dim_qk": 128,
    "head_dim_vo": 128,
    "page_size": 16,
    "kv_layout": kv_layout("NHD"),
}


def _with_layout(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts with `kv_layout` as the table spells it."""
    return {**facts, "kv_layout": kv_layout(facts["kv_layout"])} if "kv_layout" in facts else facts
