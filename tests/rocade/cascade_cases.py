"""Random cascades for tests: partial pages, empty requests and levels, and a poisoned cache."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rocade.conformance import oracle

PAGE_SIZE = 4
HEAD_DIM = 16
WORKSPACE = torch.empty(1 << 20, dtype=torch.uint8)


def ints(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(list(values), dtype=torch.int32)


@dataclass
class Case:
    """One cascade: plan arrays, queries, and a cache whose unused slots hold NaN."""

    qo_indptr: list[list[int]]  # per level
    kv_lens: list[list[int]]
    tables: list[list[list[int]]]  # page ids of each request of each level
    q: torch.Tensor
    k: torch.Tensor  # [N, S, Hkv, D]
    v: torch.Tensor

    @property
    def arrays(self) -> tuple[list[torch.Tensor], ...]:
        """The first four arguments of plan."""
        last = [[(n - 1) % PAGE_SIZE + 1 if n else 0 for n in lens] for lens in self.kv_lens]
        indptr = [[sum(map(len, tables[:i])) for i in range(len(tables) + 1)] for tables in self.tables]
        ids = [[page for table in tables for page in table] for tables in self.tables]
        return tuple([ints(x) for x in column] for column in (self.qo_indptr, indptr, ids, last))

    def expected(self, **rules: object) -> oracle.Reference:
        """The fp64 answer."""
        levels = [
            oracle.CascadeLevel(qo, self._rows(self.k, level), self._rows(self.v, level))
            for level, qo in enumerate(self.qo_indptr)
        ]
        scale = 1.0 / math.sqrt(self.q.shape[-1])
        return oracle.cascade(self.q, levels, oracle.Rules(**({"scale": scale} | rules)))

    def _rows(self, pool: torch.Tensor, level: int) -> list[torch.Tensor]:
        """Keys or values of each request of a level."""
        heads = pool.shape[2:]
        return [
            torch.cat([pool[page] for page in table] or [pool.new_empty(0, *heads)])[:length]
            for table, length in zip(self.tables[level], self.kv_lens[level], strict=True)
        ]


def make(
    seed: int,
    num_levels: int,
    *,
    requests: int = 5,
    max_rows: int = 1,
    dtype: torch.dtype = torch.float32,
    heads: tuple[int, int] = (4, 2),
    longest: int = 30,
) -> Case:
    """A random cascade; every level may have empty requests, and its pages may be partial."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    bounds = [0]
    for _ in range(requests):
        bounds.append(bounds[-1] + (rng.randint(0, max_rows) if max_rows > 1 else 1))
    qo_indptr = [bounds]
    for _ in range(num_levels - 1):  # outer levels drop some of the inner ones' boundaries
        inner = [b for b in qo_indptr[0][1:-1] if rng.random() < 0.5]
        qo_indptr.insert(0, [0, *inner, bounds[-1]])
    kv_lens = [[rng.choice((0, rng.randint(1, longest))) for _ in qo[1:]] for qo in qo_indptr]
    kv_lens[-1] = [rng.randint(0 if max_rows == 1 else max_rows, longest) for _ in bounds[1:]]
    pages = [[-(-n // PAGE_SIZE) for n in lens] for lens in kv_lens]
    ids = list(range(sum(map(sum, pages)) + 3))
    rng.shuffle(ids)
    tables = [[[ids.pop() for _ in range(n)] for n in counts] for counts in pages]
    pool = torch.full((2, len(ids) + sum(map(sum, pages)), PAGE_SIZE, heads[1], HEAD_DIM), math.nan).to(dtype)
    for level, lens in enumerate(kv_lens):
        for table, length in zip(tables[level], lens, strict=True):
            for i, page in enumerate(table):
                used = min(length - i * PAGE_SIZE, PAGE_SIZE)
                pool[:, page, :used] = torch.randn(2, used, heads[1], HEAD_DIM).to(dtype)
    q = torch.randn(bounds[-1], heads[0], HEAD_DIM).to(dtype if dtype.itemsize > 1 else torch.bfloat16)
    return Case(qo_indptr, kv_lens, tables, q, pool[0], pool[1])
