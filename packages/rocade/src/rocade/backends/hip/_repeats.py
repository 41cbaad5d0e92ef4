"""What an attention plan repeats natively: runs with tensors of a layout that it has run before.

An ordinary run checks its tensors, fills the argument blocks and launches; `learn` keeps these blocks, and
`run` launches them again with other addresses and scales. Everything else in a block depends on the plan, or
on shapes, strides and types, which are compared each time.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Sequence

import torch

from rocade._plan import RunArgs, Source
from rocade.backends._gpu import Gpu, Launcher, Passed
from rocade.backends.hip._dlpack import read_address
from rocade.backends.hip._replay import is_special
from rocade_kernels.runtime import Calls, Place, Step, StepLayout

_TRIES = 16  # runs that cannot be learned, after which a plan does not try again

# Every field of the argument blocks, by what decides its value: the call's tensors and numbers, which are put
# in anew; the layout of its tensors; or the plan. A block with a field beyond these is not repeated.
ADDRESSES = frozenset(("q", "k", "v", "out", "lse", "partial_out", "partial_lse", "state_out", "state_lse"))
NUMBERS = frozenset(("scale", "out_scale"))
LAID_OUT = frozenset(
    (
        *("q_row", "q_head", "out_row", "out_head", "lse_row", "lse_head"),
        *("k_page", "k_row", "k_head", "v_page", "v_row", "v_head", "num_pages"),
        *("state_row", "state_head", "state_lse_row", "state_lse_head"),
    )
)
PLANNED = frozenset(
    (
        *("items", "first_item", "pages", "positions", "mask", "merges", "pieces", "count"),
        *("heads", "group", "head_dim", "group_magic", "page_size", "page_magic", "packs", "packs_magic"),
        *("window_left", "soft_cap", "slices", "parts", "reserved"),
    )
)
_KNOWN = ADDRESSES | NUMBERS | LAID_OUT | PLANNED
_WRITTEN = ("out", "lse", "partial_out")
# Field of a block, number of its tensor, bytes added to its address.
Where = tuple[tuple[str, int, int], ...]
_QUERY: Where = (("q", 0, 0),)

# Plans whose lists captured graphs read in every replay. Nothing tells when the last of these graphs is gone,
# so they stay for the life of the process: 10 to 200 KB of device memory for each kind of call captured.
_LENT: list[object] = []


class Repeats:
    """The runs of one plan that it can repeat."""

    __slots__ = ("_arriving", "_calls", "_gpu", "_has_arrived", "_is_lent", "_stream", "_tries")

    def __init__(self, gpu: Gpu, stream: int | None, *, is_shared: bool = False) -> None:
        """Know nothing yet; with a `stream`, runs are repeated on that one alone, and never captured.

        `is_shared`: calls share the plan, whose list was just sent.
        """
        self._gpu = gpu
        self._stream = stream
        # Asks whether the list has arrived, until it has. A captured copy of it happens in replays alone.
        self._arriving = gpu.mark() if is_shared and gpu.mark and _runs_now(gpu) else None
        self._has_arrived = False
        self._is_lent = False
        self._calls: Calls | None = None
        self._tries = _TRIES

    def run(self, tensors: Sequence[torch.Tensor], scale: float, v_scale: float) -> bool:
        """Launch a run that was learned for such tensors; False leaves it to the ordinary way."""
        calls, gpu = self._calls, self._gpu
        try:
            if calls is None or is_special(tensors) or not gpu.is_current():
                return False
            stream = gpu.stream()
            if self._stream is not None:
                if stream != self._stream or gpu.is_capturing():
                    return False
                if self._arriving is not None:
                    self._look(self._arriving)
            return calls.run(stream, scale, v_scale, tensors)
        except (TypeError, RuntimeError):  # no tensor, which the ordinary way refuses
            return False

    def is_ready(self) -> bool:
        """See `RepeatablePlan`."""
        gpu = self._gpu
        return gpu.is_current() and gpu.stream() == self._stream and not gpu.is_capturing()

    def lend_to_graph(self, plan: object) -> bool:
        """See `RepeatablePlan`; on any stream, since the list is there. `plan` is whose runs these are."""
        gpu = self._gpu
        if not (self._has_arrived and gpu.is_current() and gpu.is_capturing()):
            return False
        if not self._is_lent:
            _LENT.append(plan)
            self._is_lent = True
        return True

    def _look(self, arriving: Passed) -> None:
        self._arriving = None  # after an error, which the launches will show too, it is not asked again
        self._has_arrived = arriving()
        if not self._has_arrived:
            self._arriving = arriving

    def learn(
        self,
        launches: Sequence[tuple[Launcher, Source]],
        merge: Launcher | None,
        args: RunArgs,
        tensors: Sequence[torch.Tensor],
        lse_offset: int,
    ) -> bool:
        """Keep what this thread has just launched; whether it can be repeated.

        Args:
            launches: of the attention kernel, with the source of the keys and values of each.
            merge: the launch after them, if there was one.
            args: what the plan ran on.
            tensors: as `RepeatablePlan` says; after them, if it is not the same in every run, memory for
                partial results.
            lse_offset: of these, in bytes.
        """
        launchers = [launcher for launcher, _ in launches] + ([merge] if merge else [])
        if not self._tries or len(set(launchers)) < len(launchers):  # the last block of each is all there is
            return False
        self._tries -= 1
        calls = self._calls or _calls()
        if calls is None:
            self._tries = 0
            return False
        caches = max([source.v for _, source in launches])
        after = _results(args, caches + 1, len(tensors), lse_offset)
        wheres = [(*_QUERY, *_keys(args, source), *after) for _, source in launches]
        made = zip(launchers, [*wheres, after], strict=False)
        steps = [step for step in itertools.starmap(_step, made) if step is not None]
        if len(steps) < len(launchers):
            return False
        written = 0
        for name, tensor, _ in after:
            written |= 1 << tensor if name in _WRITTEN else 0
        if not calls.learn(steps, tensors, written):
            return False
        self._calls = calls
        return True


def _runs_now(gpu: Gpu) -> bool:
    """Whether work is queued and not captured; of another device than the current one nothing tells."""
    return gpu.is_current() and not gpu.is_capturing()


def _calls() -> Calls | None:
    read = read_address()
    return Calls(read) if read else None


def _results(args: RunArgs, first: int, count: int, lse_offset: int) -> Where:
    """Where results and states are, from tensor `first` on; what is left over is for partial results."""
    found = [("out", first, 0)]
    if args.lse is not None:
        found.append(("lse", first + 1, 0))
    if args.partial is not None:
        at = first + len(found)
        found += [("state_out", at, 0), ("state_lse", at + 1, 0)]
    if first + len(found) < count:
        found += [("partial_out", count - 1, 0), ("partial_lse", count - 1, lse_offset)]
    return tuple(found)


def _keys(args: RunArgs, source: Source) -> Where:
    """Where K and V are; in one tensor, V is as far behind K as this tensor's strides say."""
    delta = 0
    if source.k == source.v:
        kv = args.kv[source.level]
        delta = kv.v.data_ptr() - kv.k.data_ptr()
    return ("k", source.k, 0), ("v", source.v, delta)


def _step(launcher: Launcher, where: Where) -> Step | None:
    """This thread's last launch, as one that other tensors' addresses are put into."""
    launched = launcher.launched()
    layout = None if launched is None else _layout(type(launched.args.block), where)
    return None if launched is None or layout is None else Step(launched, layout)


@functools.lru_cache(maxsize=1024)
def _layout(struct: type[ctypes.Structure], where: Where) -> StepLayout | None:
    if not _KNOWN.issuperset(field[0] for field in struct._fields_):
        return None
    places = [Place(getattr(struct, name).offset, *at) for name, *at in where if hasattr(struct, name)]
    if not hasattr(struct, "scale"):
        return StepLayout.of(places)
    return StepLayout.of(places, struct.scale.offset, struct.out_scale.offset)
