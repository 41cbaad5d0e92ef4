"""FlashInfer's arguments that name a feature rocade lacks, and those that ask for nothing, by call.

Wrapper methods keep FlashInfer's signatures of up to 31 parameters, and hand them over as one mapping.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from rocade._refused import refuse

# Argument -> values that ask for nothing, besides None.
PLAN: Mapping[str, tuple[object, ...]] = {
    "use_fp16_qk_reduction": (False,),
    "prefix_len_ptr": (),
    "token_pos_in_items_ptr": (),
    "token_pos_in_items_len": (0,),
    "max_item_len_ptr": (),
    "block_tables": (),
    "window_right": (0,),
    "v_indptr": (),
    "o_indptr": (),
}
RUN: Mapping[str, tuple[object, ...]] = {
    "args": ((),),
    "o_scale": (1.0,),
    "sinks": (),
    "kv_cache_sf": (),
    "skip_softmax_threshold_scale_factor": (),
    "use_fp16_softmax": (False,),
    "uses_spcompress": (False,),
    "use_fp16_qk_reduction": (False,),
}
INIT: Mapping[str, tuple[object, ...]] = {"jit_args": (), "jit_kwargs": ()}

# What `_request.attention` takes under the same name.
SHARED = (
    "pos_encoding_mode",
    "sm_scale",
    "window_left",
    "logits_soft_cap",
    "rope_scale",
    "rope_theta",
    "fixed_split_size",
    "disable_split_kv",
)
FLAGS = ("pos_encoding_mode", "window_left", "logits_soft_cap", "sm_scale", "rope_scale", "rope_theta")


def refuse_all(given: Mapping[str, Any], neutral: Mapping[str, tuple[object, ...]]) -> None:
    """Refuse, by name, the first argument that asks for what rocade lacks."""
    for name, values in neutral.items():
        value = given.get(name)
        if value is not None and value not in values:
            refuse(name, value, *values)


def refuse_run(**given: object) -> None:
    """`refuse_all` for the arguments of `run`."""
    for name, value in given.items():
        if value is not None and value not in RUN[name]:
            refuse(name, value, *RUN[name])


def pick(given: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The arguments called `names`."""
    return {name: given[name] for name in names}


def bind(call: Callable[..., object], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name, defaults filled in, as `call(*args, **kwargs)` would see them."""
    bound = inspect.signature(call).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)
