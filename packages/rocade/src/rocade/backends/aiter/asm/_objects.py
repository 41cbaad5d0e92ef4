"""The code objects of a request: which of the table's it needs, and their files in this installation."""

from __future__ import annotations

from typing import NamedTuple

from arch_caps import AITER_OBJECTS, AITER_PRODUCTS, CodeObject, MaskKind, Request
from rocade.backends._gpu import Foreign, Gpu, Launcher
from rocade_kernels.aiter import code_objects
from rocade_kernels.aiter.kernarg import ForwardBlocks


def product_of(target: str, chip: int | None) -> str:
    """The folder that is meant for a chip, by its PCI device id; an unknown one gets the target's first."""
    first = next((entry.product for entry in AITER_OBJECTS if entry.target == target), "")
    named = (p.name for p in AITER_PRODUCTS if p.target == target and chip in p.chips)
    return next(named, first)


class Pair(NamedTuple):
    """The code objects of one head size on one product."""

    causal: CodeObject
    plain: CodeObject  # without a mask


def pair_of(request: Request, target: str, product: str) -> Pair | None:
    """Those for a request's head size; None when the table has none."""
    sizes = (request.head_dim_qk, request.head_dim_vo)
    found = {
        entry.causal: entry
        for entry in AITER_OBJECTS
        if (entry.target, entry.product) == (target, product)
        and (entry.head_dim_qk, entry.head_dim_vo) == sizes
    }
    return Pair(found[True], found[False]) if len(found) == 2 else None


def needed(request: Request, pair: Pair) -> tuple[CodeObject, ...]:
    """What requests of this kind may be launched with; without a mask, short ones go to the causal kernel."""
    if request.mask is MaskKind.CAUSAL:
        return (pair.causal,)
    return (pair.plain,) if pair.plain.min_keys <= 1 else (pair.plain, pair.causal)


def image_of(found: CodeObject) -> bytes:
    """Its file.

    Raises:
        AiterError: it is not here, or what is here is not known.
    """
    return code_objects.read(found.target, found.product, found.file, found.sha256)


def launcher_of(gpu: Gpu, found: CodeObject) -> Launcher:
    """The kernel on a GPU, loaded when it is first asked for.

    Raises:
        AiterError: its file is not here, or what is here is not known.
        DeviceError: the driver refused it.
    """
    image = image_of(found)
    kernel = Foreign(found.file, found.symbol, found.sha256, ForwardBlocks(image))
    return gpu.foreign(kernel, lambda: image)
