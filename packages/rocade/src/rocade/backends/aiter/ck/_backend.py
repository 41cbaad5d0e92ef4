"""`CkBackend`: attention by AITER's libraries, where a GPU of AMD and a known version of AITER are."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from arch_caps import Op, Reason, Request
from rocade import _settings
from rocade._place import Place
from rocade._plan import Plan
from rocade._problem import Problem
from rocade.backends._attention_only import AttentionOnly
from rocade.backends.aiter import bootstrap
from rocade.backends.aiter.ck._libraries import family_of, is_paged_in_place, key_of, sizes_of, version
from rocade.backends.aiter.ck._plan import NAME, CkPlan, gather_refused
from rocade_kernels.aiter.errors import UnknownVersionError
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
        """A library that is wrong here, or not here and not to be built; in strict mode, a gather."""
        strict = _settings.aiter_strict()
        if request.op in _PAGED and strict and not is_paged_in_place(request):
            return [Reason("page_size", gather_refused(request))]
        family = family_of(request)
        sizes = sizes_of(request, family)
        reasons = bootstrap.refusals(key_of(request, family, lse=True), place.target, **sizes)
        plain = key_of(request, family, lse=False)
        return () if reasons and bootstrap.is_there(plain, place.target, **sizes) else reasons

    def versions(self, place: Place) -> dict[str, str]:
        """AITER and ROCm."""
        return {DISTRIBUTION: version(), "rocm": torch.version.hip or "none"}

    def plan(self, request: Request, problem: Problem) -> Plan:
        """Plan any attention op."""
        return CkPlan(request, problem)
