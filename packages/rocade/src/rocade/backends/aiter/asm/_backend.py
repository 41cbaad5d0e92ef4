"""`AsmBackend`: attention by AITER's prebuilt code objects, on an AMD GPU or in the emulator."""

from __future__ import annotations

from collections.abc import Sequence

from arch_caps import AITER_OBJECTS, Reason, Request
from rocade._place import Place
from rocade._plan import Plan
from rocade._problem import Problem
from rocade.backends import _gpu
from rocade.backends._attention_only import AttentionOnly
from rocade.backends.aiter.asm import _objects
from rocade.backends.aiter.asm._plan import NAME, AsmPlan
from rocade_kernels.aiter.errors import AiterError
from rocade_kernels.aiter.versions import DISTRIBUTION


class AsmBackend(AttentionOnly):
    """Present where there is a GPU's driver, or the emulator, and a code object that is known."""

    name = NAME

    def absent(self, place: Place) -> list[Reason]:
        """No driver, no device, or not one of the code objects that were executed."""
        why = _gpu.missing(place)
        if why:
            return [Reason("absent", why, "rocade_kernels")]
        product = _product(place)
        refusals = []
        for entry in AITER_OBJECTS:
            if (entry.target, entry.product) != (place.target, product):
                continue
            try:
                _objects.image_of(entry)
            except AiterError as error:
                refusals.append(str(error))
            else:
                return []
        return [Reason("absent", refusals[0] if refusals else f"AITER has none for {place.target}")]

    def refuses(self, request: Request, place: Place) -> Sequence[Reason]:
        """A code object that this request needs is not here, or is not one that was executed."""
        pair = _objects.pair_of(request, place.target, _product(place))
        if pair is None:
            return [Reason("absent", f"no known code object is for head size {request.head_dim_qk}")]
        found = []
        for entry in _objects.needed(request, pair):
            try:
                _objects.image_of(entry)
            except AiterError as error:
                found.append(Reason("absent", str(error)))
        return found

    def versions(self, place: Place) -> dict[str, str]:
        """The driver, or the emulator, and where the code objects of these hashes come from."""
        product = _product(place)
        seen = [e.seen_in for e in AITER_OBJECTS if (e.target, e.product) == (place.target, product)]
        return {**_gpu.driver(place), "code objects": f"{DISTRIBUTION} {', '.join(seen[0])}"}

    def plan(self, request: Request, problem: Problem) -> Plan:
        """Plan any attention op."""
        return AsmPlan(request, problem)


def _product(place: Place) -> str:
    """Of the first device of a place; a plan asks its own."""
    chip = None if place.emulated else _gpu.first_at(place).facts.chip
    return _objects.product_of(place.target, chip)
