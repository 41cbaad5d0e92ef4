"""In the child: calls AITER's Python function as the recipe says, on which AITER builds the library."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch


def run(recipe: Mapping[str, Any], device: str) -> None:
    """Make the call, which also runs the new library once."""
    place = torch.device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    module = importlib.import_module(recipe["module"])
    arguments = {name: _value(value, place) for name, value in recipe["kwargs"].items()}
    getattr(module, recipe["function"])(**arguments)
    if place.type == "cuda":
        torch.cuda.synchronize()


def _value(value: object, device: torch.device) -> object:
    """What JSON made of an argument: a tensor is an object, a tuple became a list."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, dict):
        return value
    tensor = value["tensor"]
    dtype = getattr(torch, tensor["dtype"])
    if tensor["values"] is not None:
        return torch.tensor(tensor["values"], dtype=dtype, device=device).reshape(tensor["shape"])
    return torch.zeros(tensor["shape"], dtype=dtype, device=device)
