"""Every public entry point with AITER behind it: how it is called, and what AITER must then be given.

Tensors are strided, lengths differ, one request has no keys and one no queries. The expected fields are
those of the tensors given to the public API, not of what the backend makes of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

import rocade
from rocade.conformance.oracle import Rules, attend
from rocade_kernels.aiter.names import Family

TORCH = {"fp16": torch.float16, "bf16": torch.bfloat16}
HEADS, KV_HEADS, DIM = 4, 2, 16
SCALE = 0.25
CAP = 30.0
QUERIES, KEYS = 24, 160  # of the single request, and of the longest of a batch
Q_LENS, KV_LENS = (QUERIES, 3, 2, 0, 5), (KEYS, 5, 0, 40, 130)
WINDOWS = (-1, 0, 31, 127, KEYS)


Ragged = rocade.BatchPrefillWithRaggedKVCacheWrapper
Paged = rocade.BatchPrefillWithPagedKVCacheWrapper | rocade.BatchDecodeWithPagedKVCacheWrapper


class Flags(NamedTuple):
    """One point of the grid."""

    dtype: str
    causal: bool
    window: int
    capped: bool
    lse: bool

    @property
    def arguments(self) -> dict[str, Any]:
        """Those that all entry points spell the same."""
        cap = CAP if self.capped else None
        return {"sm_scale": SCALE, "window_left": self.window, "logits_soft_cap": cap}


@dataclass
class Made:
    """What came of a call."""

    out: torch.Tensor
    lse: torch.Tensor | None
    expected_out: torch.Tensor  # fp64
    expected_lse: torch.Tensor
    family: Family
    window: int  # that AITER is to be given
    fields: dict[str, object]  # of the struct, by AITER's names
    arrays: dict[str, list[int]] = field(default_factory=dict)  # what int32 addresses of the struct hold
    copied: tuple[str, ...] = ()  # addresses that are of copies
    keep: object = None  # owns the memory


def _random(seed: int, rows: int, heads: int, dtype: str) -> torch.Tensor:
    """`[rows, heads, DIM]` inside wider rows, so that no stride follows from the shape."""
    generator = torch.Generator().manual_seed(seed)
    wide = torch.randn(rows, heads + 1, DIM + 8, generator=generator).to(TORCH[dtype])
    return wide[:, :heads, :DIM]


@functools.lru_cache(maxsize=512)
def _reference(
    q_lens: tuple[int, ...], kv_lens: tuple[int, ...], flags: Flags
) -> tuple[torch.Tensor, torch.Tensor]:
    q, k, v = _inputs(sum(q_lens), sum(kv_lens), flags.dtype)
    cap = CAP if flags.capped else 0.0
    rules = Rules(SCALE, causal=flags.causal, window_left=flags.window, soft_cap=cap)
    parts = zip(q.split(q_lens), k.split(kv_lens), v.split(kv_lens), strict=True)
    found = [attend(*part, rules) for part in parts]
    return torch.cat([one.out for one in found]), torch.cat([one.lse for one in found])


def _inputs(rows: int, keys: int, dtype: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return tuple(
        _random(*each, dtype) for each in ((1, rows, HEADS), (2, keys, KV_HEADS), (3, keys, KV_HEADS))
    )


def _row_fields(name: str, x: torch.Tensor) -> dict[str, object]:
    """Address and strides of `[rows, H, D]`, or of pages `[N, S, H, D]`."""
    batch = x.stride(0) if x.dim() == 4 else 0
    strides = {"stride": x.stride(-3), "nhead_stride": x.stride(-2), "batch_stride": batch}
    return {f"{name}_ptr": x.data_ptr(), **{f"{kind}_{name}": stride for kind, stride in strides.items()}}


def _fields(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, batch: int
) -> dict[str, object]:
    tensors = _row_fields("q", q) | _row_fields("k", k) | _row_fields("v", v) | _row_fields("o", out)
    heads = {"hdim_q": DIM, "hdim_v": DIM, "nhead_q": HEADS, "nhead_k": KV_HEADS}
    return tensors | heads | {"batch": batch, "scale_s": SCALE}


def _ends(lens: Sequence[int]) -> list[int]:
    return [sum(lens[:n]) for n in range(len(lens) + 1)]


def _int32(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def _workspace() -> torch.Tensor:
    return torch.empty(1 << 20, dtype=torch.uint8)


def _single(flags: Flags, q_len: int, call: Callable[..., Any]) -> Made:
    """One request. Its window is none where it reaches all keys; a soft cap makes it a batch of one."""
    q, k, v = _inputs(q_len, KEYS, flags.dtype)
    q = q[0][None] if q_len == 1 else q  # as one query becomes a row
    got = call(q, k, v)
    out, lse = got if flags.lse else (got, None)
    out, lse = out.view(q_len, HEADS, DIM), None if lse is None else lse.view(q_len, HEADS)
    sizes = {"seqlen_q": q_len, "seqlen_k": KEYS, "max_seqlen_q": q_len}
    return Made(
        *(out, lse, *_reference((q_len,), (KEYS,), flags)),
        family=Family.MHA_VARLEN_FWD if flags.capped else Family.MHA_FWD,
        window=-1 if flags.window >= KEYS else flags.window,
        fields=_fields(q, k, v, out, 1) | sizes,
    )


def single_prefill(flags: Flags) -> Made:
    """`single_prefill_with_kv_cache`."""
    given = {**flags.arguments, "causal": flags.causal, "return_lse": flags.lse, "backend": "aiter"}
    return _single(flags, QUERIES, lambda q, k, v: rocade.single_prefill_with_kv_cache(q, k, v, **given))


def single_decode(flags: Flags) -> Made:
    """`single_decode_with_kv_cache`."""
    given = {**flags.arguments, "return_lse": flags.lse, "backend": "aiter"}
    return _single(flags, 1, lambda q, k, v: rocade.single_decode_with_kv_cache(q[0], k, v, **given))


def ragged(flags: Flags) -> Made:
    """`BatchPrefillWithRaggedKVCacheWrapper`."""
    q, k, v = _inputs(sum(Q_LENS), sum(KV_LENS), flags.dtype)
    wrapper = rocade.BatchPrefillWithRaggedKVCacheWrapper(_workspace(), backend="aiter")
    ends = _ends(Q_LENS), _ends(KV_LENS)
    heads = (HEADS, KV_HEADS, DIM)
    given = {**flags.arguments, "causal": flags.causal, "q_data_type": TORCH[flags.dtype]}
    wrapper.plan(_int32(ends[0]), _int32(ends[1]), *heads, **given)
    out, lse = _run(wrapper, flags, q, k, v)
    sizes = {"seqlen_q": sum(Q_LENS), "seqlen_k": sum(KV_LENS), "max_seqlen_q": QUERIES}
    return Made(
        *(out, lse, *_reference(Q_LENS, KV_LENS, flags)),
        family=Family.MHA_VARLEN_FWD,
        window=flags.window,
        fields=_fields(q, k, v, out, len(Q_LENS)) | sizes,
        arrays={"seqstart_q_ptr": ends[0], "seqstart_k_ptr": ends[1]},
        keep=wrapper,
    )


def _run(wrapper: Ragged | Paged, flags: Flags, *tensors: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    got = wrapper.run(*tensors, return_lse=flags.lse)
    return got if flags.lse else (got, None)


class Table(NamedTuple):
    """Pages of the requests of a batch, in no order, in a pool of more pages."""

    size: int
    indptr: list[int]
    ids: list[int]
    last: list[int]
    pool: int

    @classmethod
    def of(cls, size: int) -> Table:
        """For `KV_LENS`. A request without keys has a length of its last page that means nothing."""
        counts = [-(-n // size) for n in KV_LENS]
        pool = sum(counts) + 3
        ids = [(5 * n + 2) % pool for n in range(sum(counts))]
        assert len(set(ids)) == len(ids)
        last = [(n - 1) % size + 1 if n else size for n in KV_LENS]
        return cls(size, _ends(counts), ids, last, pool)

    def filled(self, rows: torch.Tensor) -> torch.Tensor:
        """`[pool, size, H, D]` with the rows of all requests; NaN where there are none."""
        wide = torch.full((self.pool, self.size, rows.shape[1] + 1, DIM), torch.nan, dtype=rows.dtype)
        pages = wide[:, :, : rows.shape[1]]
        for request, keys in enumerate(rows.split(KV_LENS)):
            for nth, page in enumerate(self.ids[self.indptr[request] : self.indptr[request + 1]]):
                part = keys[nth * self.size : (nth + 1) * self.size]
                pages[page, : len(part)] = part
        return pages


def _paged(
    flags: Flags,
    q_lens: tuple[int, ...],
    page_size: int,
    in_place: bool,
    wrapper: Paged,
    arrays: tuple[torch.Tensor, ...],
) -> Made:
    q, k, v = _inputs(sum(q_lens), sum(KV_LENS), flags.dtype)
    table = Table.of(page_size)
    pools = table.filled(k), table.filled(v)
    given = {**flags.arguments, "q_data_type": TORCH[flags.dtype]}
    rest = (_int32(table.indptr), _int32(table.ids), _int32(table.last), HEADS, KV_HEADS, DIM, page_size)
    wrapper.plan(*arrays, *rest, **given, **({"causal": flags.causal} if arrays else {}))
    out, lse = _run(wrapper, flags, q, pools)
    fields = {"seqlen_q": sum(q_lens), "max_seqlen_q": max(q_lens)}
    held: dict[str, list[int]] = {"seqstart_q_ptr": _ends(q_lens)}
    if in_place:
        fields |= {"seqlen_k": table.pool * page_size, "num_total_pages": table.pool}
        held |= {"kv_indptr": table.indptr, "kv_page_indices": table.ids, "kv_last_page_lens": table.last}
        keys = pools
    else:
        fields |= {"seqlen_k": sum(KV_LENS)}
        held |= {"seqstart_k_ptr": _ends(KV_LENS)}
        keys = k.contiguous(), v.contiguous()  # as the gathered rows lie
    return Made(
        *(out, lse, *_reference(q_lens, KV_LENS, flags)),
        family=Family.MHA_BATCH_PREFILL if in_place else Family.MHA_VARLEN_FWD,
        window=flags.window,
        fields=_fields(q, *keys, out, len(q_lens)) | fields,
        arrays=held,
        copied=() if in_place else ("k_ptr", "v_ptr"),
        keep=(wrapper, pools),
    )


def paged_prefill(flags: Flags, page_size: int, in_place: bool) -> Made:
    """`BatchPrefillWithPagedKVCacheWrapper`."""
    wrapper = rocade.BatchPrefillWithPagedKVCacheWrapper(_workspace(), backend="aiter")
    return _paged(flags, Q_LENS, page_size, in_place, wrapper, (_int32(_ends(Q_LENS)),))


def paged_decode(flags: Flags, page_size: int, in_place: bool) -> Made:
    """`BatchDecodeWithPagedKVCacheWrapper`, one query a request."""
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(_workspace(), backend="aiter")
    return _paged(flags, (1,) * len(KV_LENS), page_size, in_place, wrapper, ())
