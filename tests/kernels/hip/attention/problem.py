"""Attention problems for the HIP kernel: data, a work list in plain Python, a launch, and what is right."""

from __future__ import annotations

import ctypes
import functools
import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import arch_caps
import rocade_emulator as emu
from arch_caps import DType
from rocade.conformance import oracle, tolerances
from rocade.conformance.cases import DTypes
from rocade_kernels import attention_launch, hip_abi
from rocade_kernels.build import BuildError, Instance, code

TARGETS = ("gfx942", "gfx950")
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
CAPS_DTYPES = {"fp16": DType.FP16, "bf16": DType.BF16}
SCHEDULES: tuple[dict[str, Any], ...] = (
    {},
    {"schedule": "run_to_barrier"},
    {"schedule": "random", "seed": 5, "quantum": 9},
)
CAUSAL, POSITIONS = 1, 2


@functools.cache
def program(target: str, dtype: str, dim: int, variant: str) -> emu.Program:
    """An instance of the attention kernel."""
    try:
        built = code(Instance("attention", target, dtype, dim, variant))
    except BuildError as error:
        if "ziglang" in str(error):
            pytest.skip(str(error))
        raise
    return emu.Program.from_bytes(built.image, target, name="attention")


@dataclass
class Problem:
    """Requests with queries `q [n, Hq, D]`, keys and values, dense or paged, and the rules of their masks."""

    q: torch.Tensor
    q_lens: list[int]
    kv_lens: list[int]
    k: torch.Tensor  # dense [m, Hkv, D], or paged [pages, page_size, Hkv, D] (any strides)
    v: torch.Tensor
    rules: oracle.Rules
    dtype: str
    pages: list[list[int]] = field(default_factory=list)  # of each request; empty: dense
    masks: list[torch.Tensor] | None = None

    @property
    def paged(self) -> bool:
        return self.k.dim() == 4

    @property
    def q_starts(self) -> list[int]:
        return [sum(self.q_lens[:b]) for b in range(len(self.q_lens))]

    @property
    def kv_starts(self) -> list[int]:
        return [sum(self.kv_lens[:b]) for b in range(len(self.kv_lens))]

    def keys_and_values(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Of each request, `[m, Hkv, D]`, as the oracle takes them."""
        if not self.paged:
            starts = self.kv_starts
            cut = [slice(s, s + n) for s, n in zip(starts, self.kv_lens, strict=True)]
            return [self.k[c] for c in cut], [self.v[c] for c in cut]
        gathered = []
        for cache in (self.k, self.v):
            rows = [cache[p].flatten(0, 1)[:n] for p, n in zip(self.pages, self.kv_lens, strict=True)]
            gathered.append(rows)
        return gathered[0], gathered[1]

    def reference(self) -> oracle.Reference:
        keys, values = self.keys_and_values()
        return oracle.batch(self.q, [*self.q_starts, len(self.q)], keys, values, self.rules, self.masks)


def make(
    q_lens: list[int],
    kv_lens: list[int],
    *,
    heads: tuple[int, int] = (2, 2),
    dim: int = 128,
    dtype: str = "fp16",
    page_size: int = 0,
    hnd: bool = False,
    seed: int = 0,
    masks: list[torch.Tensor] | None = None,
    q_scale: float = 1.0,
    **rules: Any,
) -> Problem:
    """Random data. Paged caches have NaN in every slot that no request uses."""
    rng = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=rng).to(DTYPES[dtype])

    q = (random(sum(q_lens), heads[0], dim) * q_scale).to(DTYPES[dtype])
    made = oracle.Rules(scale=rules.pop("scale", dim**-0.5), **rules)
    if not page_size:
        k, v = (random(sum(kv_lens), heads[1], dim) for _ in range(2))
        return Problem(q, q_lens, kv_lens, k, v, made, dtype, masks=masks)
    counts = [-(-n // page_size) for n in kv_lens]
    pool = sum(counts) + 3
    order = torch.randperm(pool, generator=rng).tolist()
    pages = [order[sum(counts[:b]) : sum(counts[: b + 1])] for b in range(len(counts))]
    shape = (pool, heads[1], page_size, dim) if hnd else (pool, page_size, heads[1], dim)
    caches = []
    for _ in range(2):
        cache = torch.full(shape, float("nan"), dtype=DTYPES[dtype])
        view = cache.transpose(1, 2) if hnd else cache
        for b, n in enumerate(kv_lens):
            for j in range(n):
                view[pages[b][j // page_size], j % page_size] = random(heads[1], dim)
        caches.append(view)
    return Problem(q, q_lens, kv_lens, *caches, made, dtype, pages, masks)


@dataclass
class Outputs:
    """Tensors that a kernel writes."""

    tensors: list[torch.Tensor]

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return any(tensor is mine for mine in self.tensors)


@dataclass
class Launch:
    """A launch of a problem: its work list and outputs."""

    problem: Problem
    target: str
    decode: bool = False
    split: int = 0  # keys of a work item at most; 0: all in one item, final results
    blocks: int = 0  # that share the items; 0: one each
    positions: bool = False  # give the positions of tokens as an array
    state: tuple[torch.Tensor, torch.Tensor] | None = None

    def __post_init__(self) -> None:
        p = self.problem
        self.heads, self.dim = p.q.shape[1:]
        self.device = p.q.device
        self.group = self.heads // p.k.shape[-2]
        facts = arch_caps.TARGETS[self.target]
        self.kernel_dim = attention_launch.kernel_dim(self.dim)
        self.shape = attention_launch.shape(
            self.kernel_dim, self.decode, wave=facts.wave_size.value, lds_bytes=facts.lds_bytes.value
        )
        self.out = torch.full_like(p.q, float("nan"))
        self.lse = torch.full(p.q.shape[:2], float("nan"), device=self.device)
        self.splits = [max(1, -(-n // self.split)) if self.split else 1 for n in p.kv_lens]
        self.states: list[tuple[int, int, int]] = []  # of each item: request, first packed row, KV head
        self.used_states = 0
        self.work = self.items()
        states = self.used_states if self.split else 0
        self.partial_out = torch.full((states, self.group, self.dim), float("nan"), device=self.device)
        self.partial_lse = torch.full((states, self.group), float("nan"), device=self.device)

    def items(self) -> list[hip_abi.AttentionItem]:
        p, made = self.problem, []
        first_page = 0
        for b, (q_len, kv_len) in enumerate(zip(p.q_lens, p.kv_lens, strict=True)):
            self.item_heads = 1 if self.split else self.heads // self.group
            for part in range(self.splits[b]):
                begin = part * self.split
                end = min(kv_len, begin + self.split) if self.split else kv_len
                for row in range(0, q_len * self.group, self.shape.rows):
                    for head in range(0, self.heads // self.group, self.item_heads):
                        made.append(self._item(b, row, head, (begin, end), first_page))
                        self.states.append((b, row, head))
            first_page += len(p.pages[b]) if p.paged else 0
        return made

    def _item(self, b: int, row: int, head: int, keys: tuple[int, int], page: int) -> hip_abi.AttentionItem:
        """For rows from `row` on of request b, rebased to the tile's first token."""
        p = self.problem
        token = row // self.group
        bits = sum(-(-m.numel() // 8) * 8 for m in (p.masks or [])[:b])
        rows = min(self.shape.rows, p.q_lens[b] * self.group - row)
        tokens = -(-(row % self.group + rows) // self.group)
        state = self.used_states
        self.used_states += tokens
        return hip_abi.AttentionItem(
            mask_bit=bits + token * p.kv_lens[b],
            kv_base=page if p.paged else p.kv_starts[b],
            q_begin=p.q_starts[b] + token,
            q_len=p.q_lens[b] - token,
            row_begin=row % self.group,
            kv_head=head,
            kv_begin=keys[0],
            kv_end=keys[1],
            q_position=-1000 if self.positions else p.kv_lens[b] - p.q_lens[b] + token,
            kv_position=0,
            flags=(CAUSAL if p.rules.causal and p.masks is None else 0)
            + (POSITIONS if self.positions else 0),
            state=state if self.split else -1,
            kv_heads=self.item_heads,
            mask_step=p.kv_lens[b],
        )

    def run(self, **options: Any) -> emu.Result:
        """Launch in the emulator."""
        args, buffers = self.prepare()
        kernel = program(self.target, self.problem.dtype, self.kernel_dim, "decode" if self.decode else "")
        given = [emu.ReadOnly(t) if t not in self.outputs else t for t in buffers]
        return emu.launch(kernel, None, self.grid, self.shape.threads, bytes(args), buffers=given, **options)

    def prepare(self) -> tuple[ctypes.Structure, list[torch.Tensor]]:
        """The arguments, and all tensors that the kernel may touch."""
        p, items = self.problem, self.work
        self.grid = self.blocks or max(1, len(items))
        shares = [len(items) * b // self.grid for b in range(self.grid + 1)]
        ranges = [items[begin:end] for begin, end in itertools.pairwise(shares)]
        others = [item for share in ranges for item in share[1:]]
        listed = [share[0] if share else hip_abi.AttentionItem() for share in ranges] + others
        raw = torch.frombuffer(bytearray(b"".join(map(bytes, listed))), dtype=torch.uint8)
        counts = [0, *(max(0, len(share) - 1) for share in ranges)]
        first = torch.tensor(counts, dtype=torch.int32).cumsum(0, dtype=torch.int32) + self.grid
        flat = torch.tensor([i for pages in p.pages for i in pages] or [0], dtype=torch.int32)
        ends = [start for n, m in zip(p.q_lens, p.kv_lens, strict=True) for start in range(m - n, m)]
        positions = torch.tensor(ends or [0], dtype=torch.int32)
        bits = _pack(p.masks) if p.masks else torch.zeros(1, dtype=torch.uint8)
        made = [t.to(self.device) for t in (raw, first, flat, positions, bits)]
        args = self._args(*made)
        self.outputs = Outputs([self.out, self.lse, self.partial_out, self.partial_lse])
        buffers = [*made, p.q, p.k, p.v, *(self.state or ()), *self.outputs.tensors]
        return args, [b for b in buffers if b.numel()]

    def _args(
        self,
        items: torch.Tensor,
        first: torch.Tensor,
        pages: torch.Tensor,
        positions: torch.Tensor,
        bits: torch.Tensor,
    ) -> ctypes.Structure:
        p = self.problem
        page_size = p.k.shape[1] if p.paged else 1 << 31  # dense: one huge page
        args = hip_abi.AttentionArgs(
            items=items.data_ptr(),
            first_item=first.data_ptr(),
            q=p.q.data_ptr(),
            k=p.k.data_ptr(),
            v=p.v.data_ptr(),
            out=self.out.data_ptr(),
            lse=self.lse.data_ptr(),
            partial_out=self.partial_out.data_ptr(),
            partial_lse=self.partial_lse.data_ptr(),
            pages=pages.data_ptr(),
            positions=positions.data_ptr() if self.positions else None,
            mask=bits.data_ptr() if p.masks else None,
            **self._strides(),
            heads=self.heads,
            group=self.group,
            head_dim=self.dim,
            page_size=page_size,
            group_magic=_magic(self.group),
            page_magic=_magic(page_size),
            num_pages=p.k.shape[0] if p.paged else 1,
            window_left=p.rules.window_left,
            scale=p.rules.scale,
            soft_cap=p.rules.soft_cap,
            out_scale=p.rules.v_scale,
        )
        if self.state is not None:
            args.state_out, args.state_lse = (t.data_ptr() for t in self.state)
        return args

    def _strides(self) -> dict[str, int]:
        p = self.problem
        by_row = {"q": p.q, "out": self.out, "lse": self.lse}
        if self.state is not None:
            by_row |= {"state": self.state[0], "state_lse": self.state[1]}
        found = {}
        for name, tensor in by_row.items():
            found |= {f"{name}_row": tensor.stride(0), f"{name}_head": tensor.stride(1)}
        for name, cache in {"k": p.k, "v": p.v}.items():
            page = cache.stride(0) if p.paged else 0
            found |= {f"{name}_page": page, f"{name}_row": cache.stride(-3), f"{name}_head": cache.stride(-2)}
        return found

    def results(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Output and lse; of a split launch, its states merged in float64."""
        if not self.split:
            return self.out, self.lse
        p, group = self.problem, self.group
        out = torch.zeros(self.out.shape, dtype=torch.float64)
        lse = torch.full(self.lse.shape, float("-inf"), dtype=torch.float64)
        for item, (b, row, head) in zip(self.work, self.states, strict=True):
            for r in range(row, min(row + self.shape.rows, p.q_lens[b] * group)):
                at = p.q_starts[b] + r // group, head * group + r % group
                place = item.state * group + item.row_begin + r - row
                v, s = self.partial_out.view(-1, self.dim)[place], self.partial_lse.flatten()[place]
                top = torch.logaddexp2(lse[at], s.double())
                if top > float("-inf"):
                    out[at] = out[at] * (lse[at] - top).exp2() + v * (s - top).exp2()
                    lse[at] = top
                else:
                    assert not v.any(), "no key: zeros"
        return out, lse

    def check(self, result: emu.Result) -> None:
        """Demand no finding, and right results."""
        assert not result.reports, result.describe()
        self.check_results()

    def check_results(self) -> None:
        """Demand results within the conformance tolerances."""
        dtype = CAPS_DTYPES[self.problem.dtype]
        ref = self.problem.reference()
        out_tolerance, lse_tolerance = tolerances.attention(ref, DTypes(dtype, dtype, dtype), 0.0)
        out, lse = self.results()
        for got, want, allowed in ((out, ref.out, out_tolerance), (lse, ref.lse, lse_tolerance)):
            excess, where = tolerances.largest_excess(got, want, allowed)
            assert excess <= 1, where


def _magic(divisor: int) -> int:
    return 0 if divisor == 1 else -(-(2**32) // divisor)


def _pack(masks: list[torch.Tensor]) -> torch.Tensor:
    """Each mask on its own bytes, little-endian."""
    packed: list[int] = []
    for mask in masks:
        flat = [int(x) for x in mask.flatten()]
        flat += [0] * (-len(flat) % 8)
        packed += [sum(bit << k for k, bit in enumerate(flat[i : i + 8])) for i in range(0, len(flat), 8)]
    return torch.tensor(packed, dtype=torch.uint8)
