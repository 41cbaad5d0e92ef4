"""AITER's functions as its sources describe them, in fp32 on the CPU, reading what a call's addresses hold.

A library answers for what it was built: one without a mask ignores causal and window. Rows that see no key
are left as NaN with an LSE of +inf, which is what AITER may do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from arch_caps import Reason, Toolchain
from rocade import _device, _dispatch, _settings
from rocade._place import Place
from rocade.backends.aiter import bootstrap
from rocade.backends.aiter.bootstrap import BootstrapError
from rocade.backends.aiter.ck import _plan
from rocade_kernels.aiter import calls
from rocade_kernels.aiter.calls import Attention, Dense, Library, Paged, Ragged, Rows
from rocade_kernels.aiter.names import Family, VariantKey, file_name

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
STREAM = 0x5EED


def view(address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Memory as a tensor; strides count elements."""
    if not all(shape):
        return torch.empty(shape, dtype=dtype)
    extent = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    memory = (ctypes.c_char * (extent * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).as_strided(shape, strides)


def ints(address: int, count: int) -> list[int]:
    return view(address, (count,), (1,), torch.int32).tolist()


class Aiter:
    """Stands for AITER. `calls` are those that it got, with their library."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.calls: list[tuple[Library, Attention, int]] = []
        self.there: set[bool] = {False, True}  # which libraries exist: without LSE, with
        self.built: list[VariantKey] = []
        self.native = True
        self.asked_native = False
        self.wrong: tuple[Reason, ...] = ()
        self.wrong_families: tuple[Family, ...] = tuple(Family)
        self.unbuildable = False

    # -- rocade.backends.aiter.bootstrap

    def found(self, key: VariantKey, device: torch.device, **_: int) -> Path | None:
        there = key.has_lse in self.there or key in self.built
        return Path(file_name(key, self.version)) if there else None

    def ensure(self, key: VariantKey, device: torch.device, **sizes: int) -> Path:
        found = self.found(key, device)
        if found is None and self.unbuildable:
            self.wrong = (Reason("build", "no compiler"),)
            raise BootstrapError("no compiler")
        if found is None:
            self.built.append(key)
        return Path(file_name(key, self.version))

    def refusals(self, key: VariantKey, target: str, **_: int) -> tuple[Reason, ...]:
        if key.family is Family.MHA_BATCH_PREFILL and not self.native and self.asked_native:
            return (Reason("build", "it has no kernel for such pages"),)
        return self.wrong if key.family in self.wrong_families else ()

    def is_there(self, key: VariantKey, target: str, **_: int) -> bool:
        return key.has_lse in self.there

    def native_page(self, key: VariantKey, device: torch.device, **_: int) -> bool:
        self.asked_native = True
        if not self.native and _settings.aiter_strict():
            raise BootstrapError("it has no kernel for such pages")
        return self.native

    # -- rocade_kernels.aiter.calls

    def load(self, path: Path, key: VariantKey, version: str) -> Library:
        assert (path.name, version) == (file_name(key, self.version), self.version)
        return Library(path, key, version, 1)

    def mha_fwd(self, library: Library, call: Dense, stream: int) -> None:
        self._take(Family.MHA_FWD, library, call, stream)
        dtype = DTYPES[library.key.dtype]
        q, out = (
            _rows(x, call.q_len, call.num_qo_heads, call.head_dim_qk, dtype) for x in (call.q, call.out)
        )
        k, v = (_rows(x, call.kv_len, call.num_kv_heads, call.head_dim_qk, dtype) for x in (call.k, call.v))
        _attend(library.key, call, q, k, v, out, _lse(call, call.q_len))

    def mha_varlen_fwd(self, library: Library, call: Ragged, stream: int) -> None:
        self._take(Family.MHA_VARLEN_FWD, library, call, stream)
        dtype = DTYPES[library.key.dtype]
        q, out = (
            _rows(x, call.total_q, call.num_qo_heads, call.head_dim_qk, dtype) for x in (call.q, call.out)
        )
        k, v = (_rows(x, call.total_kv, call.num_kv_heads, call.head_dim_qk, dtype) for x in (call.k, call.v))
        ends = ints(call.q_indptr, call.batch + 1), ints(call.kv_indptr, call.batch + 1)
        assert call.max_q_len == max(b - a for a, b in zip(ends[0], ends[0][1:], strict=False))
        lse = _lse(call, call.total_q)
        for i in range(call.batch):
            mine, keys = slice(*ends[0][i : i + 2]), slice(*ends[1][i : i + 2])
            part = None if lse is None else lse[:, mine]
            _attend(library.key, call, q[mine], k[keys], v[keys], out[mine], part)

    def mha_batch_prefill(self, library: Library, call: Paged, stream: int) -> None:
        self._take(Family.MHA_BATCH_PREFILL, library, call, stream)
        dtype = DTYPES[library.key.dtype]
        q, out = (
            _rows(x, call.total_q, call.num_qo_heads, call.head_dim_qk, dtype) for x in (call.q, call.out)
        )
        shape = (call.num_pages, call.page_size, call.num_kv_heads, call.head_dim_qk)
        k, v = (view(x.address, shape, (x.batch, x.token, x.head, 1), dtype) for x in (call.k, call.v))
        ends, first = ints(call.q_indptr, call.batch + 1), ints(call.kv_indptr, call.batch + 1)
        ids, last = ints(call.kv_indices, first[-1]), ints(call.last_page_len, call.batch)
        assert all(0 <= page < call.num_pages for page in ids[first[0] :])
        lse = _lse(call, call.total_q)
        for i in range(call.batch):
            mine, pages = slice(*ends[i : i + 2]), ids[first[i] : first[i + 1]]
            length = call.page_size * (len(pages) - 1) + last[i]
            assert length >= 0
            keys, values = (x[pages].flatten(0, 1)[:length] for x in (k, v))
            part = None if lse is None else lse[:, mine]
            _attend(library.key, call, q[mine], keys, values, out[mine], part)

    def _take(self, family: Family, library: Library, call: Attention, stream: int) -> None:
        """Every call must be what its library was built for."""
        key = library.key
        assert key.family is family
        assert key.has_lse is (call.lse is not None)
        assert key.has_logits_cap is (call.logits_soft_cap > 0)
        assert key.needs_mask is call.needs_mask
        assert stream == STREAM
        self.calls.append((library, call, stream))


def _rows(x: Rows, count: int, heads: int, dim: int, dtype: torch.dtype) -> torch.Tensor:
    return view(x.address, (count, heads, dim), (x.token, x.head, 1), dtype)


def _lse(call: Attention, count: int) -> torch.Tensor | None:
    """fp32 `[Hq, T]`."""
    if call.lse is None:
        return None
    return view(call.lse.address, (call.num_qo_heads, count), (call.lse.head, 1), torch.float32)


def _attend(
    key: VariantKey,
    call: Attention,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor | None,
) -> None:
    """One request: `q`, `out` `[L, Hq, D]`, `k`, `v` `[n, Hkv, D]`, `lse` `[Hq, L]`."""
    group = q.shape[1] // call.num_kv_heads
    keys, values = (x.double().repeat_interleave(group, 1) for x in (k, v))
    logits = torch.einsum("ihd,jhd->hij", q.double(), keys) * call.scale
    if call.logits_soft_cap:
        logits = call.logits_soft_cap * torch.tanh(logits / call.logits_soft_cap)
    if key.needs_mask:
        at = torch.arange(len(q))[:, None] + len(k) - len(q)
        j = torch.arange(len(k))
        hidden = (j > at) & call.causal
        if call.window_left >= 0:
            hidden = hidden | (j < at - call.window_left)
        logits = logits.masked_fill(hidden, -torch.inf)
    out.copy_(torch.einsum("hij,jhd->ihd", logits.softmax(-1), values))
    if len(k) == 0:
        out.fill_(torch.nan)
    if lse is not None:
        natural = logits.logsumexp(-1)
        lse.copy_(natural.masked_fill(natural == -torch.inf, torch.inf))


@contextmanager
def _stream_of(device: torch.device) -> Iterator[int]:
    yield STREAM


def stand_in(monkeypatch: pytest.MonkeyPatch, target: str, version: str, rocm: str = "7.1") -> Aiter:
    """Let CPU tensors be on a GPU of AMD with this AITER, whose libraries and bootstrap are an `Aiter`."""
    on_gpu(monkeypatch, target, version, rocm)
    model = Aiter(version)
    for name in ("found", "ensure", "native_page", "refusals", "is_there"):
        monkeypatch.setattr(bootstrap, name, getattr(model, name))
    for name in ("load", "mha_fwd", "mha_varlen_fwd", "mha_batch_prefill"):
        monkeypatch.setattr(calls, name, getattr(model, name))
    return model


def on_gpu(monkeypatch: pytest.MonkeyPatch, target: str, version: str, rocm: str = "7.1") -> None:
    """Let CPU tensors be on a GPU of AMD, with this version of AITER installed."""
    monkeypatch.setenv("ROCADE_AITER_VERSION", version)
    monkeypatch.setattr(_device, "place", lambda device: Place(target, emulated=False))
    monkeypatch.setattr(_device, "toolchain", lambda: Toolchain(rocm=rocm, aiter=version))
    monkeypatch.setattr(_dispatch, "_found", {})
    monkeypatch.setattr(_dispatch, "_logged", set())
    monkeypatch.setattr(_dispatch, "_planned", {})
    monkeypatch.setattr(_plan, "stream_of", _stream_of)
