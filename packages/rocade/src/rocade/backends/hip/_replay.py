"""Which public calls can be repeated natively, and where the addresses of their tensors go.

Only calls whose tensors are all on the current GPU and are used as they are: a converted copy, an array on
the host or an emulated GPU makes a call that is not learned.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch

from rocade.backends._gpu import Kernel, gpu_of, last_launched
from rocade.backends.hip._append import APPEND, APPEND_DENSE
from rocade.backends.hip._dlpack import read_address
from rocade.backends.hip._states import MERGE, PAIR, PAIR_DENSE
from rocade_kernels import runtime
from rocade_kernels.runtime import Place

_DEVICES = 256  # numbers of one kind of call, one for each device


class Call(NamedTuple):
    """Kernels that may serve it, and the tensor that each address is of. `written`: bit i for tensor i."""

    kernels: tuple[Kernel, ...]
    tensors: Mapping[str, int]
    written: int


_STATES = {"v_a": 0, "s_a": 1, "v_b": 2, "s_b": 3}
_TOKENS = {"key": 0, "value": 1, "batch_indices": 2, "positions": 3, "key_cache": 4}
_PAIRS, _APPENDS = (PAIR_DENSE, PAIR), (APPEND_DENSE, APPEND)
CALLS = {
    "merge_state": Call(_PAIRS, {**_STATES, "v_out": 4, "s_out": 5}, 0b110000),
    "merge_state_in_place": Call(_PAIRS, {**_STATES, "v_out": 0, "s_out": 1}, 0b0011),
    "merge_states": Call((MERGE,), {"v": 0, "s": 1, "v_out": 2, "s_out": 3}, 0b1100),
    # One cache tensor holds keys and values. Whether caches overlap is the caller's matter.
    "append": Call(_APPENDS, {**_TOKENS, "value_cache": 4, "indices": 5, "indptr": 6}, 0),
    "append to two": Call(_APPENDS, {**_TOKENS, "value_cache": 5, "indices": 6, "indptr": 7}, 0),
}
_numbers: dict[tuple[str, str], int] = {}
_next = itertools.count()


@functools.cache
def _replay() -> runtime.Replay | None:
    """None where this torch has no exchange table (before 2.10), or nothing native was built."""
    read = read_address()
    if not read or getattr(torch._C, "_cuda_getCurrentRawStream", None) is None:
        return None
    return runtime.replay(read)


def learn(kind: tuple[str, str], tensors: Sequence[torch.Tensor]) -> Callable[..., bool] | None:
    """Remember the call that this thread has just made; a function that repeats it, or None."""
    call, first = CALLS.get(kind[0]), tensors[0]
    if call is None or not all(t.is_cuda for t in tensors) or (replay := _replay()) is None:
        return None
    gpu = gpu_of(first)
    last = last_launched(gpu, call.kernels)
    if last is None or gpu.index >= _DEVICES:
        return None
    kernel, launched = last
    if kind not in _numbers:
        _numbers[kind] = next(_next) * _DEVICES
    op = _numbers[kind]
    if not replay.learn(op + gpu.index, launched, _places(kernel, call, tensors), tensors, call.written):
        return None
    return _repeat(op, replay.runner(len(tensors)))


def is_special(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether a tensor has what calls refuse and no layout tells: lazy negation, or a gradient to come."""
    return any(map(_is_neg, tensors)) or (_grad() and any(t.requires_grad for t in tensors))


_grad, _is_neg = torch.is_grad_enabled, torch.Tensor.is_neg


def _places(kernel: Kernel, call: Call, tensors: Sequence[torch.Tensor]) -> list[Place]:
    """Where addresses stand. Keys and values in one tensor `[N, 2, ...]`: values are one step further."""
    args = type(kernel.layout.make().block)
    one = call.tensors.get("key_cache", -1) == call.tensors.get("value_cache", -2)
    cache = tensors[4] if one else None
    delta = cache.stride(1) * cache.itemsize if cache is not None else 0
    return [
        Place(getattr(args, name).offset, tensor, delta if one and name == "value_cache" else 0)
        for name, tensor in call.tensors.items()
    ]


def _repeat(op: int, run: Callable[..., int]) -> Callable[..., bool]:
    current_device, stream = torch._C._cuda_getDevice, torch._C._cuda_getCurrentRawStream

    def repeat(*tensors: torch.Tensor) -> bool:
        try:
            if is_special(tensors):
                return False
            device = current_device()
            return not run(op + device, stream(device), *tensors)
        except (TypeError, RuntimeError):  # no tensor, which the ordinary way refuses
            return False

    return repeat
