"""A plan of backend `aiter_ck`: a route into AITER, and the libraries for it.

Letters: T query rows, Hq query heads, D head dim.
"""

from __future__ import annotations

import torch

from arch_caps import ArchCapabilityError, Request, partial_state_reasons
from rocade import _device
from rocade._plan import RunArgs
from rocade._problem import Level, Problem
from rocade.backends.aiter import bootstrap
from rocade.backends.aiter._finish import finish
from rocade.backends.aiter._lse import natural_for
from rocade.backends.aiter._readable import readable, writable
from rocade.backends.aiter._scale import positive_scale
from rocade.backends.aiter._unseen import unseen_rows
from rocade.backends.aiter.ck._gathering import NAME, gather_reasons
from rocade.backends.aiter.ck._libraries import Libraries, family_of, key_of, sizes_of
from rocade.backends.aiter.ck._operands import Operands
from rocade.backends.aiter.ck._routes import DenseRoute, PagedRoute, RaggedRoute, Route
from rocade.backends.aiter.ck._stream import check_not_capturing, stream_of
from rocade_kernels.aiter.names import Family


class CkPlan:
    """One call of AITER a run, and what it leaves to do."""

    backend = NAME

    __slots__ = ("_device", "_has_keys", "_libraries", "_route", "_unseen", "request", "workspace_bytes")

    def __init__(self, request: Request, problem: Problem) -> None:
        """Plan.

        Raises:
            RuntimeError: a graph is being captured.
            BootstrapError: the library is not there and could not be built, or is wrong on this machine.
            ArchCapabilityError: the table refuses the function that a page pool not read in place would need.
        """
        check_not_capturing(problem.device)
        self.request = request
        self.workspace_bytes = 0
        self._device = problem.device
        (level,) = problem.levels
        self._has_keys = bool(problem.num_rows) and bool(level.kv_len.any())
        unseen = unseen_rows(request, level)
        self._unseen = None if unseen is None else unseen.to(problem.device)
        if self._has_keys:
            self._route = _route(request, level, problem.device)
            self._libraries = Libraries(request, self._route.family, problem.device)

    @torch.no_grad()
    def run(self, args: RunArgs) -> None:
        """Compute attention into `args.out` and `args.lse`.

        Raises:
            NoKernelError: the library has no kernel for this call.
            ArchCapabilityError: there is a partial state to merge in.
            BootstrapError: the first run with LSE finds no library for that, and none can be built.
        """
        if args.partial is not None:
            raise ArchCapabilityError(self.request, {NAME: partial_state_reasons(self.request.op, NAME)})
        out = writable(args.out)
        natural = None if args.lse is None else natural_for(args.out)
        if self._has_keys:
            self._attend(args, out, natural)
        finish(args, out, natural, self._unseen)

    def _attend(self, args: RunArgs, out: torch.Tensor, natural: torch.Tensor | None) -> None:
        library = self._libraries.of(lse=natural is not None)
        if library.key.has_lse and natural is None:
            natural = natural_for(args.out)
        with stream_of(self._device) as stream:
            keys = self._route.keys(args.kv[0])
            q, scale = positive_scale(args.q, args.sm_scale)
            given = Operands(readable(q), keys.k, keys.v, out, natural, scale)
            self._route.call(library, given, stream)
            self._route.spoil(out, natural, args.kv[0])


def _route(request: Request, level: Level, device: torch.device) -> Route:
    family = family_of(request)
    if family is Family.MHA_FWD:
        return DenseRoute(request, level)
    if family is Family.MHA_BATCH_PREFILL and _is_native(request, family, device):
        return PagedRoute(request, level, device)
    if level.pages is not None and (reasons := gather_reasons(request, _device.target(device))):
        raise ArchCapabilityError(request, {NAME: reasons})
    return RaggedRoute(request, level, device)


def _is_native(request: Request, family: Family, device: torch.device) -> bool:
    """Whether AITER really reads pages of this size; the version alone has been wrong about it."""
    key = key_of(request, family, lse=True)
    return bootstrap.native_page(key, device, **sizes_of(request, family))
