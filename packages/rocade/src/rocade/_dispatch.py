"""Chooses the backend of a call: asks the capability table, keeps every reason, logs each new decision once.

The only place that compares backend names.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import operator
from dataclasses import dataclass

import torch

import arch_caps
from arch_caps import ArchCapabilityError, Reason, Request
from rocade import _device, _settings
from rocade._errors import invalid
from rocade._place import Place
from rocade._plan import Plan
from rocade._problem import Problem
from rocade.backends import REGISTRY
from rocade.backends._base import Backend

log = logging.getLogger("rocade")

AUTO = "auto"
ABSENT = "absent"  # code of the reasons that lie in this process, not in the request
# FlashInfer's names for its own portable kernels. They name no kernel that exists here, and every backend
# computes the same thing, so they leave the choice to the table.
SYNONYMS = frozenset((AUTO, "fa2", "native"))
# FlashInfer's names for kernels of one vendor's chips: a caller that pins one would not get it.
FOREIGN = frozenset(("fa3", "cutlass", "cudnn", "cute-dsl", "cutile", "trtllm-gen", "xqa"))
# Backends, and the families of them that a caller may name.
OURS = (
    "hip",
    *arch_caps.FAMILIES,
    *(name for names in arch_caps.FAMILIES.values() for name in names),
    "cpu",
    "torch",
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the table and the process say about one backend; no reasons means it can serve."""

    backend: str
    reasons: tuple[Reason, ...]


def canonical(backend: str) -> str:
    """`backend` as one of ours, a family of ours or "auto"; ValueError for any other string."""
    if backend in SYNONYMS:
        return AUTO
    if backend in OURS:
        return backend
    expected = f"'auto' (also spelled 'fa2' or 'native') or one of {', '.join(map(repr, OURS))}"
    if backend in FOREIGN:
        raise invalid("backend", f"{backend!r}, which names an NVIDIA kernel", expected)
    raise invalid("backend", repr(backend), expected)


def verdicts(request: Request, place: Place | str, backend: str = AUTO) -> tuple[Verdict, ...]:
    """What each backend that `backend` stands for says, in order of preference.

    A `place` is a device of this process. The name of a target asks about another machine's, so neither about
    presence in this process nor with its toolchain.
    """
    if isinstance(place, Place):
        return tuple(Verdict(n, _reasons(request, place, n)) for n in _candidates(place.target, backend))
    target = place
    return tuple(
        Verdict(n, tuple(arch_caps.reasons(request, backend=n, target=target)))
        for n in _candidates(target, backend)
    )


def select(request: Request, device: torch.device, backend: str = AUTO) -> Backend:
    """The backend that serves `request` on `device`; if none does, ArchCapabilityError lists every reason."""
    place = _device.place(device)
    settled = _settled.get((id(request), place, backend))
    if settled is not None:
        return settled[1]
    key = (_all_but_lengths(request), place, backend) if request.op.is_attention else None
    if key is not None and (known := _planned.get(key)) and not known.refuses(request, place):
        return known
    passed: list[Verdict] = []
    for name in _candidates(place.target, canonical(backend)):
        reasons = _reasons(request, place, name)
        if not reasons:
            _log_once(request, place, name, passed)
            if not passed:
                _settle(request, place, backend, name)
                if key is not None and arch_caps.ignores_lengths(request.op, name):
                    _settle_plans(key, _found[name, place])
            return _found[name, place]
        passed.append(Verdict(name, reasons))
        if _settings.aiter_strict() and _failed_here(request, place, name):
            break
    raise ArchCapabilityError(request, {v.backend: v.reasons for v in passed})


def plan(request: Request, problem: Problem, backend: str = AUTO, first: Backend | None = None) -> Plan:
    """A plan of the backend that serves; `first` is that one, if the caller has asked already.

    A backend may learn only now that it cannot serve, as one whose library turns out not to compile. It then
    refuses such requests from now on, and the next one is asked as if it had refused this one.
    """
    chosen = first or select(request, problem.device, backend)
    while True:
        try:
            return chosen.plan(request, problem)
        except RuntimeError as error:
            place = _device.place(problem.device)
            alone = len(_candidates(place.target, canonical(backend))) == 1
            if alone or _settings.aiter_strict() or not chosen.refuses(request, place):
                raise
            log.warning("backend %r: %s", chosen.name, error)
            failed, chosen = chosen, select(request, problem.device, backend)
            if chosen is failed:
                raise


def _failed_here(request: Request, place: Place, name: str) -> bool:
    """Whether a backend that is present, and accepts by the table, refuses for what this machine lacks."""
    by_table = arch_caps.reasons(request, backend=name, target=place.target, toolchain=_device.toolchain())
    return not by_table and not absent(name, place)


# By the request's identity, which hashes faster than its many fields: so the request is kept, too.
_settled: dict[tuple[int, Place, str], tuple[Request, Backend]] = {}
_SETTLED = 4096


def _settle(request: Request, place: Place, asked: str, name: str) -> None:
    """Remember a choice that nothing can change: the first candidate's, about which no defect is known.

    Only for ops without a plan, whose callers keep their requests and ask at every call.
    """
    if request.op.is_attention or (request.op, name) in arch_caps.DEFECTS:
        return
    if len(_settled) >= _SETTLED:
        _settled.clear()
    _settled[id(request), place, asked] = (request, _found[name, place])


# The same of attention ops, whose requests are made anew for each plan: by all fields but the lengths, which
# differ from plan to plan and which most rows do not ask about.
_planned: dict[tuple[object, ...], Backend] = {}
_all_but_lengths = operator.attrgetter(
    *(f.name for f in dataclasses.fields(Request) if f.name not in ("max_qo_len", "max_kv_len"))
)


def _settle_plans(key: tuple[object, ...], backend: Backend) -> None:
    if len(_planned) >= _SETTLED:
        _planned.clear()
    _planned[key] = backend


@functools.cache
def _candidates(target: str, backend: str) -> tuple[str, ...]:
    return arch_caps.preference(target) if backend == AUTO else arch_caps.members(backend)


def _reasons(request: Request, place: Place, name: str) -> tuple[Reason, ...]:
    """Not cached: the settings that the table reads may change, and asking takes three microseconds.

    What the table refuses is not looked for in this process, which may take a compiler half a second.
    """
    found = arch_caps.reasons(request, backend=name, target=place.target, toolchain=_device.toolchain())
    return (
        tuple(found) if found else absent(name, place) or tuple(_found[name, place].refuses(request, place))
    )


_found: dict[tuple[str, Place], Backend] = {}  # backends that are present; what is present stays so


def absent(name: str, place: Place) -> tuple[Reason, ...]:
    """Why this process cannot run a backend at a place, whatever the request; empty means it can."""
    if (name, place) in _found:
        return ()
    if name not in REGISTRY:
        return (Reason(ABSENT, f"this version of rocade has no backend {name!r}"),)
    try:
        backend = REGISTRY[name]
    except ImportError as error:
        return (Reason(ABSENT, f"backend {name!r} cannot be imported: {error}"),)
    why = tuple(backend.absent(place))
    if not why:
        _found[name, place] = backend
    return why


def versions(name: str, place: Place) -> dict[str, str]:
    """What else than rocade and torch the results of a present backend depend on: compiler, driver."""
    return {} if absent(name, place) else _found[name, place].versions(place)


_logged: set[tuple[object, ...]] = set()


def _log_once(request: Request, place: Place, chosen: str, passed: list[Verdict]) -> None:
    """One line per (op, place, choice, reasons).

    It is a warning when a better backend would serve and is not here: that is for the user to mend.
    """
    codes = tuple((v.backend, r.code) for v in passed for r in v.reasons) if passed else ()
    key = (request.op, place, chosen, codes)
    if key in _logged:
        return
    _logged.add(key)
    missing = any(all(r.code == ABSENT for r in v.reasons) for v in passed)
    why = "; ".join(f"{v.backend}: {', '.join(r.text for r in v.reasons)}" for v in passed)
    log.log(
        logging.WARNING if missing else logging.INFO,
        "%s on %s%s runs on backend %r (%s)",
        request.op.value,
        place.target,
        ", emulated," if place.emulated else "",
        chosen,
        f"passed over {why}" if why else "as asked, or the table's first choice",
    )
