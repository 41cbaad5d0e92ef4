"""`CkBackend`: attention by AITER's libraries, where a GPU of AMD and a known version of AITER are."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from arch_caps import Op, Reason, Request
from rocade._place import Place
from rocade._plan import Plan
from rocade._problem import Problem
from rocade.backends._attention_only import AttentionOnly
from rocade.backends.aiter import bootstrap
from rocade.backends.aiter.ck._gathering import NAME, gather_reasons
from rocade.backends.aiter.ck._libraries import family_of, key_of, sizes_of, version
from rocade.backends.aiter.ck._plan import CkPlan
from rocade_kernels.aiter.errors import UnknownVersionError
from rocade_kernels.aiter.names import Family
from rocade_kernels.aiter.versions import DISTRIBUTION

_PAGED = frozenset((Op.BATCH_PREFILL_PAGED, Op.BATCH_DECODE))


class CkBackend(AttentionOnly):
    """AITER's libraries are host code that launches on a real GPU: the emulator cannot run them."""

    name = NAME

    def absent(self, place: Place) -> list[Reason]:
        """No known version of AITER, or no GPU."""
        if place.emulated:
            text = "AITER's libraries launch on a GPU themselves, and the emulator runs code objects alone"
            return [Reason("absent", text)]
        try:
            version()
        except UnknownVersionError as error:
            return [Reason("absent", str(error))]
        return []

    def refuses(self, request: Request, place: Place) -> Sequence[Reason]:
        """A library that is wrong here, or not here and not to be built; why pages may not be gathered."""
        family = family_of(request)
        reasons = _library_reasons(request, family, place.target)
        paged = family is Family.MHA_BATCH_PREFILL
        if request.op not in _PAGED or (paged and not reasons):
            return reasons
        against = gather_reasons(request, place.target)
        if against:
            return (*reasons, *against) if paged else against
        return _library_reasons(request, Family.MHA_VARLEN_FWD, place.target) if paged else reasons

    def versions(self, place: Place) -> dict[str, str]:
        """AITER and ROCm."""
        return {DISTRIBUTION: version(), "rocm": torch.version.hip or "none"}

    def plan(self, request: Request, problem: Problem) -> Plan:
        """Plan any attention op."""
        return CkPlan(request, problem)


def _library_reasons(request: Request, family: Family, target: str) -> Sequence[Reason]:
    """Of the library with LSE, which serves all runs; but one without, that is there, serves some.

    Whether pages are read in place is decided by the one with LSE alone.
    """
    sizes = sizes_of(request, family)
    reasons = bootstrap.refusals(key_of(request, family, lse=True), target, **sizes)
    if not reasons or family is Family.MHA_BATCH_PREFILL:
        return reasons
    plain = key_of(request, family, lse=False)
    return () if bootstrap.is_there(plain, target, **sizes) else reasons
