"""`Problem`: the plan arrays of one call, checked and on the host. Shapes and flags are in `Request`.

Letters: B requests, T query rows (tokens), P pages of one level's table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

import torch

from rocade._mask import PackedMask


class Span(NamedTuple):
    """A part of the one host allocation of a plan, as it stands in for its tensor until somebody asks."""

    memory: torch.Tensor  # int32
    begin: int
    end: int
    address: int  # of its first element, in bytes

    def tensor(self) -> torch.Tensor:
        """The elements as a view."""
        return self.memory[self.begin : self.end]


class HostArray:
    """An attribute that is a 1-D int32 host tensor; one given as a `Span` is made when it is first read.

    A tensor costs two microseconds, and a plan of two cascade levels has eight, of which a backend that
    plans from addresses reads none.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, holder: object, owner: type) -> torch.Tensor:
        held: torch.Tensor | Span = holder.__dict__[self._name]
        if isinstance(held, Span):
            held = holder.__dict__[self._name] = held.tensor()
        return held

    def __set__(self, holder: object, value: torch.Tensor) -> NoReturn:
        # Being there, it makes this a data descriptor, which a value in `__dict__` does not hide.
        raise AttributeError(f"{self._name} of a {type(holder).__name__} is set when that is made")


def _address(held: torch.Tensor | Span) -> int:
    return held.address if isinstance(held, Span) else held.data_ptr()


class PageTable:
    """The pages of each request. `indptr[0]` may be above 0, and `indices` longer than `indptr[-1]`."""

    indptr = HostArray()  # [B + 1]
    last_page_len = HostArray()  # [B]; 1..page_size, ignored for a request without pages

    def __init__(
        self,
        indptr: torch.Tensor | Span,
        indices: torch.Tensor,
        last_page_len: torch.Tensor | Span,
        page_size: int,
        max_page: int,
    ) -> None:
        held = self.__dict__
        held["indptr"], held["last_page_len"] = indptr, last_page_len
        self.indices = indices  # int32 [>= indptr[-1]], on the cache's device; read again at every run
        self.page_size = page_size
        self.max_page = max_page  # largest page id in use, -1 if none or not known; run compares it

    def with_indices(self, indices: torch.Tensor) -> PageTable:
        """The same table with its page ids in another place."""
        held = self.__dict__
        return PageTable(held["indptr"], indices, held["last_page_len"], self.page_size, self.max_page)


class Level:
    """One range of keys per query row: paged (`pages`) or rows of dense K and V (`kv_indptr`)."""

    qo_indptr = HostArray()  # [B + 1], starts at 0
    kv_len = HostArray()  # [B]

    def __init__(
        self,
        qo_indptr: torch.Tensor | Span,
        kv_len: torch.Tensor | Span,
        pages: PageTable | None = None,
        kv_indptr: torch.Tensor | None = None,
    ) -> None:
        held = self.__dict__
        held["qo_indptr"], held["kv_len"] = qo_indptr, kv_len
        self.pages = pages
        self.kv_indptr = kv_indptr  # int32 [B + 1], host; set when pages is None

    @property
    def num_requests(self) -> int:
        """Requests of this level; a shared prefix counts once."""
        held: torch.Tensor | Span = self.__dict__["kv_len"]
        return held.end - held.begin if isinstance(held, Span) else held.numel()

    def with_pages(self, pages: PageTable) -> Level:
        """The same rows and lengths with another table."""
        return Level(self.__dict__["qo_indptr"], self.__dict__["kv_len"], pages, self.kv_indptr)

    def with_rows(self, qo_indptr: torch.Tensor) -> Level:
        """The same keys for other query rows."""
        return Level(qo_indptr, self.__dict__["kv_len"], self.pages, self.kv_indptr)

    def addresses(self) -> tuple[int, int, int]:
        """Where qo_indptr, the table's indptr or kv_indptr, and kv_len start."""
        indptr = self.kv_indptr if self.pages is None else self.pages.__dict__["indptr"]
        assert indptr is not None  # one of the two is set
        return _address(self.__dict__["qo_indptr"]), _address(indptr), _address(self.__dict__["kv_len"])


@dataclass(frozen=True, slots=True)
class GraphMemory:
    """What a wrapper in graph mode promises of all its plans, and what its plans keep between them.

    A captured graph has the addresses in `kept`, so nothing there is ever freed or moved.
    """

    max_rows: int  # T of any plan at most
    max_keys: tuple[int, ...]  # of all requests of each level together
    kept: dict[object, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """Levels from the most widely shared prefix to each request's own suffix; one level unless cascade.

    All levels cover the same T rows, and a level's boundaries are boundaries of the next one (nesting). The
    levels of a row are one concatenated sequence: positions, window and causal are global.
    """

    levels: tuple[Level, ...]
    num_rows: int  # T
    device: torch.device
    mask: PackedMask | None = None  # over the concatenated keys; only with one level
    workspace: torch.Tensor | None = None  # uint8, the caller's; CPU backends use it when large enough
    graph: GraphMemory | None = None  # set when the wrapper is in graph mode
