"""Backend `hip` on a device that only writes down its launches: arguments, loading, capture, presence."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.kernels.runtime import stub

from arch_caps import ROWS, Op, Status
from arch_caps._sources import source_files
from rocade import _dispatch
from rocade._place import Place
from rocade.backends import _gpu
from rocade.backends.hip import BACKEND, _append, _states
from rocade_kernels import build, hip_abi, hip_launch
from rocade_kernels.build import Instance
from rocade_kernels.build._sources import Tree
from rocade_kernels.runtime import Arguments, DeviceFacts
from rocade_kernels.runtime import device as device_runtime

ROOT = Path(__file__).resolve().parents[3]
TARGET = "gfx942"


BLOCKS: dict[type[ctypes.Structure], int] = {
    hip_abi.MergeStateArgs: hip_launch.PAIR_THREADS,
    hip_abi.MergeStateDenseArgs: hip_launch.PAIR_THREADS,
    hip_abi.AppendPagedKvCacheDenseArgs: hip_launch.APPEND_THREADS,
}


class Launch:
    """One launch as a kernel would see it."""

    def __init__(self, kind: type[ctypes.Structure], block: bytes, grid: object, stream: int) -> None:
        self.args: Any = kind.from_buffer_copy(block)
        self.grid, self.stream = grid, stream


class Recorder:
    """A runtime without a device."""

    target = TARGET

    def __init__(self) -> None:
        self.loads: list[Instance] = []
        self.launches: list[Launch] = []
        self.memory: list[tuple[Sequence[object], Sequence[object]]] = []
        self.name = ""

    def load(self, code: build.Code) -> Recorder:
        self.loads.append(code.instance)
        return self

    def facts(self) -> DeviceFacts:
        return DeviceFacts("none", 304, 64, 65536, "none")

    def launch(
        self,
        grid: object,
        block: int,
        lds: int,
        stream: int,
        args: Arguments,
        reads: Sequence[object] = (),
        writes: Sequence[object] = (),
        early: bool = False,
    ) -> None:
        assert not early  # these kernels do not wait by themselves
        assert (block, lds) == (BLOCKS.get(type(args.block), hip_launch.THREADS), 0)
        self.launches.append(Launch(type(args.block), bytes(args), grid, stream))
        self.memory.append((reads, writes))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """A recorder that CPU tensors are on."""
    recorder = Recorder()
    gpu = _gpu.Gpu(recorder, 0, lambda: 77, lambda: True, lambda: False)
    for module in (_states, _append):
        monkeypatch.setattr(module, "gpu_of", lambda tensor: gpu)
    return recorder


def state(n: int = 5, h: int = 3, d: int = 64, dtype: torch.dtype = torch.float16) -> list[torch.Tensor]:
    """A state inside of wider memory, so that no stride follows from a shape."""
    v = torch.zeros(n, h + 1, d + 8, dtype=dtype)[:, :h, :d]
    return [v, torch.zeros(n, h + 2)[:, :h]]


def test_a_merge_hands_over_pointers_and_strides(device: Recorder) -> None:
    a, b, out = state(), state(), state()
    BACKEND.merge_state(*a, *b, *out)
    (launch,) = device.launches
    for name, (v, s) in zip(("a", "b", "out"), (a, b, out), strict=True):
        for letter, tensor in (("v", v), ("s", s)):
            stem = f"{letter}_{name}"
            given = tuple(getattr(launch.args, stem + part) for part in ("", "_row", "_head"))
            assert given == (tensor.data_ptr(), *tensor.stride()[:2])
    assert (launch.args.mask, launch.args.rows, launch.stream) == (None, 5, 77)
    assert device.memory == [((*a, *b), tuple(out))]
    assert device.loads == [Instance("merge_state", TARGET, "fp16", variant="strided")]


def test_merging_in_place_passes_the_mask_and_writes_its_first_state(device: Recorder) -> None:
    a, b, mask = state(), state(), torch.ones(5, dtype=torch.uint8)
    BACKEND.merge_state_in_place(*a, *b, mask)
    args = device.launches[0].args
    assert (args.mask, args.v_out, args.s_out) == (mask.data_ptr(), a[0].data_ptr(), a[1].data_ptr())
    assert device.memory == [((*a, *b, mask), tuple(a))]


@pytest.mark.parametrize(("shift", "form"), [(0, hip_launch.ALIGNED), (1, hip_launch.UNALIGNED)])
def test_packs_that_are_not_at_multiples_of_their_size_are_told(
    device: Recorder, shift: int, form: int
) -> None:
    base = torch.zeros(2 * 3 * 64 + 8, dtype=torch.bfloat16)
    v = base[shift : shift + 2 * 3 * 64].view(2, 3, 64)
    assert base.data_ptr() % 16 == 0
    other, out = state(2, dtype=torch.bfloat16), state(2, dtype=torch.bfloat16)
    BACKEND.merge_state(v, other[1], *other, *out)
    BACKEND.merge_state(*other, *other, v, out[1])
    BACKEND.attention_sum(v[:, None], out[0])
    assert [launch.args.form for launch in device.launches] == [form] * 3


def test_tensors_without_holes_are_told(device: Recorder) -> None:
    v, s = torch.zeros(5, 3, 64), torch.zeros(5, 3)
    BACKEND.merge_states(v[:, None], s[:, None], v, s)
    BACKEND.merge_states(v[:, None], s[:, None], v, torch.zeros(3, 5).T)
    forms = [launch.args.form for launch in device.launches]
    assert forms == [hip_launch.DENSE, hip_launch.ALIGNED]


def whole(n: int = 5, h: int = 3, d: int = 64) -> list[torch.Tensor]:
    """A state without gaps."""
    return [torch.zeros(n, h, d, dtype=torch.float16), torch.zeros(n, h)]


def test_a_merge_without_gaps_hands_over_pointers(device: Recorder) -> None:
    a, b, out = whole(), whole(), whole()
    BACKEND.merge_state(*a, *b, *out)
    BACKEND.merge_state_in_place(*a, *b, None)
    first, second = (launch.args for launch in device.launches)
    for args, result in ((first, out), (second, a)):
        given = [getattr(args, name) for name in ("v_a", "s_a", "v_b", "s_b", "v_out", "s_out")]
        assert given == [tensor.data_ptr() for tensor in (*a, *b, *result)]
        assert (args.total, args.packs, args.width, args.crosses) == (5 * 3 * 8, 8, 512, 0)
    assert device.loads == [Instance("merge_state", TARGET, "fp16")]


def test_a_head_in_several_waves_is_told_in_place_only(device: Recorder) -> None:
    a, b, out = whole(d=80), whole(d=80), whole(d=80)
    BACKEND.merge_state(*a, *b, *out)
    BACKEND.merge_state_in_place(*a, *b, None)
    BACKEND.merge_state(*a, *b, out[0], b[1])
    assert [launch.args.crosses for launch in device.launches] == [0, 1, 1]


@pytest.mark.parametrize("which", ["mask", "gap", "address"])
def test_whatever_has_gaps_or_a_mask_takes_the_general_variant(device: Recorder, which: str) -> None:
    a, b, out = whole(), whole(), whole()
    if which == "gap":
        b[1] = torch.zeros(5, 4)[:, :3]
    if which == "address":
        b[0] = torch.zeros(5 * 3 * 64 + 1, dtype=torch.float16)[1:].view(5, 3, 64)
    if which == "mask":
        BACKEND.merge_state_in_place(*a, *b, torch.ones(5, dtype=torch.uint8))
    else:
        BACKEND.merge_state(*a, *b, *out)
    assert device.loads == [Instance("merge_state", TARGET, "fp16", variant="strided")]


@pytest.mark.parametrize("which", ["none", "row", "page", "slot", "dims", "address"])
def test_an_append_without_gaps_takes_the_plain_variant_and_no_other(device: Recorder, which: str) -> None:
    new = [torch.zeros(4, 2, 64, dtype=torch.bfloat16) for _ in range(2)]
    caches = [torch.zeros(9, 16, 2, 64, dtype=torch.bfloat16) for _ in range(2)]
    if which == "row":
        new[1] = torch.zeros(4, 3, 64, dtype=torch.bfloat16)[:, :2]
    if which == "page":
        caches[0] = torch.zeros(9, 2, 16, 2, 64, dtype=torch.bfloat16)[:, 0]
    if which == "slot":
        caches = [torch.zeros(9, 2, 16, 64, dtype=torch.bfloat16).transpose(1, 2) for _ in range(2)]
    if which == "dims":
        new[1], caches[1] = new[1][..., :32].contiguous(), caches[1][..., :32].contiguous()
    if which == "address":
        new[0] = torch.zeros(4 * 2 * 64 + 1, dtype=torch.bfloat16)[1:].view(4, 2, 64)
    arrays = [torch.zeros(n, dtype=torch.int32) for n in (4, 4, 6, 3)]
    BACKEND.append_paged_kv_cache(*new, arrays[0], arrays[1], *caches, arrays[2], arrays[3])
    assert device.loads == [
        Instance("append_paged_kv_cache", TARGET, variant="strided" if which != "none" else "")
    ]
    if which == "none":
        args = device.launches[0].args
        names = (
            "key",
            "value",
            "key_cache",
            "value_cache",
            "batch_indices",
            "positions",
            "indices",
            "indptr",
        )
        given = [getattr(args, name) for name in names]
        assert given == [tensor.data_ptr() for tensor in (*new, *caches, *arrays)]
        assert (args.page_units, args.total, args.columns) == (16 * 16, 4 * 16, 16)
        assert (args.pool, args.page_size, args.batch, args.num_indices) == (9, 16, 2, 6)


def test_the_last_launch_is_that_of_the_variant_that_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a call of the general variant, the plain one's earlier launch must not be learned."""
    stub.install("nvidia", monkeypatch)
    on = device_runtime("nvidia", 0, "sm_90")
    gpu = _gpu.Gpu(on, 0, lambda: 0, lambda: True, lambda: False)
    monkeypatch.setattr(_gpu, "_fitting", lambda kernel, instance: stub.code("nvidia", kernel.name))
    monkeypatch.setattr(_states, "gpu_of", lambda tensor: gpu)
    pairs = (_states.PAIR_DENSE, _states.PAIR)
    BACKEND.merge_state(*whole(), *whole(), *whole())
    plain = _gpu.last_launched(gpu, pairs)
    assert plain is not None
    assert plain[0] is _states.PAIR_DENSE
    a = state()
    BACKEND.merge_state(*a, *state(), *state())
    general = _gpu.last_launched(gpu, pairs)
    assert general is not None
    assert general[0] is _states.PAIR
    assert isinstance(general[1].args.block, hip_abi.MergeStateArgs)
    assert general[1].args.block.v_a == a[0].data_ptr()
    assert _gpu.last_launched(gpu, (_states.MERGE,)) is None
    other = _gpu.Gpu(on, 1, lambda: 0, lambda: True, lambda: False)
    assert _gpu.last_launched(other, pairs) is None
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.append(_gpu.last_launched(gpu, pairs)))
    thread.start()
    thread.join()
    assert seen == [None]


def test_lists_of_one_length_and_of_many(device: Recorder) -> None:
    v, s = torch.zeros(5, 7, 3, 64), torch.zeros(5, 7, 3)
    packed, lse, indptr = torch.zeros(11, 3, 64), torch.zeros(11, 3), torch.arange(6, dtype=torch.int32)
    out = state(dtype=torch.float32)
    BACKEND.merge_states(v, s, *out)
    BACKEND.variable_length_merge_states(packed, lse, indptr, *out)
    BACKEND.attention_sum(v, out[0])
    BACKEND.variable_length_attention_sum(packed, indptr, out[0])
    kinds = (hip_abi.MergeStatesArgs, hip_abi.AttentionSumArgs)
    fixed, ranges, fixed_sum, range_sum = (launch.args for launch in device.launches)
    assert tuple(map(type, (fixed, ranges, fixed_sum, range_sum))) == tuple(
        k for k in kinds for _ in range(2)
    )
    for args in (fixed, fixed_sum):
        assert (args.v_row, args.v_state, args.v_head) == v.stride()[:3]
        assert (args.indptr, args.fixed, args.rows) == (None, 7, 5)
    for args in (ranges, range_sum):
        assert (args.v_row, args.v_state, args.v_head) == (0, *packed.stride()[:2])
        assert (args.indptr, args.states, args.rows) == (indptr.data_ptr(), 11, 5)
    assert (fixed.s_row, fixed.s_state, fixed.s_head) == s.stride()
    assert (ranges.s_row, ranges.s_state, ranges.s_head) == (0, *lse.stride())
    assert [instance.kernel for instance in device.loads] == ["merge_states", "attention_sum"]


def test_an_append_counts_strides_in_bytes(device: Recorder) -> None:
    key, value = torch.zeros(4, 2, 64, dtype=torch.bfloat16), torch.zeros(4, 2, 32, dtype=torch.bfloat16)
    k_cache = torch.zeros(9, 2, 16, 64, dtype=torch.bfloat16).transpose(1, 2)
    v_cache = torch.zeros(9, 16, 2, 40, dtype=torch.bfloat16)[..., :32]
    arrays = [torch.zeros(n, dtype=torch.int32) for n in (4, 4, 6, 3)]
    BACKEND.append_paged_kv_cache(key, value, arrays[0], arrays[1], k_cache, v_cache, arrays[2], arrays[3])
    args = device.launches[0].args
    for name, new, cache in (("key", key, k_cache), ("value", value, v_cache)):
        steps = (getattr(args, f"{name}_row"), getattr(args, f"{name}_head"))
        assert steps == tuple(2 * stride for stride in new.stride()[:2])
        steps = tuple(getattr(args, f"{name}_cache_{part}") for part in ("page", "slot", "head"))
        assert steps == tuple(2 * stride for stride in cache.stride()[:3])
    assert (args.pool, args.page_size, args.batch, args.rows, args.num_indices) == (9, 16, 2, 4, 6)
    assert args.unit == 16
    assert device.loads == [Instance("append_paged_kv_cache", TARGET, variant="strided")]


def test_an_append_without_pages_launches_nothing(device: Recorder) -> None:
    key, cache = torch.zeros(4, 2, 64), torch.zeros(9, 16, 2, 64)
    none, four, one = (torch.zeros(n, dtype=torch.int32) for n in (0, 4, 1))
    for pool, indices, indptr in ((cache[:0], four, four), (cache, none, four), (cache, four, one)):
        BACKEND.append_paged_kv_cache(key, key, four, four, pool, pool, indices, indptr)
    assert device.launches == []


def test_memory_that_was_freed_is_refused(device: Recorder) -> None:
    a, b, out = state(), state(), state()
    many = torch.zeros(5, 2, 3, 64)
    for tensor in (b[0], many):
        tensor.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="its storage was freed"):
        BACKEND.merge_state(*a, *b, *out)
    with pytest.raises(ValueError, match="its storage was freed"):
        BACKEND.attention_sum(many, out[0])
    assert device.launches == []


def test_code_is_loaded_once_and_never_while_a_graph_is_captured() -> None:
    recorder, capturing = Recorder(), [True]
    gpu = _gpu.Gpu(recorder, 0, lambda: 0, lambda: True, lambda: capturing[0])
    with pytest.raises(RuntimeError, match=r"merge_state-bf16-\S+ is not loaded .* before the capture"):
        gpu.kernel(_states.PAIR, torch.bfloat16)
    assert recorder.loads == []
    capturing[0] = False
    launcher = gpu.kernel(_states.PAIR, torch.bfloat16)
    capturing[0] = True
    assert gpu.kernel(_states.PAIR, torch.bfloat16) is launcher
    assert len(recorder.loads) == 1


def test_code_that_takes_other_arguments_is_not_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    code = build.code(Instance("merge_state", TARGET, "bf16"))
    grown = replace(code, resources=replace(code.resources, kernarg_bytes=code.resources.kernarg_bytes + 8))
    monkeypatch.setattr(build, "code", lambda instance: grown)
    gpu = _gpu.Gpu(Recorder(), 0, lambda: 0, lambda: True, lambda: False)
    with pytest.raises(build.BuildError, match="of one version"):
        gpu.kernel(_states.PAIR, torch.bfloat16)


def test_each_thread_fills_a_block_of_its_own() -> None:
    gpu = _gpu.Gpu(Recorder(), 0, lambda: 0, lambda: True, lambda: False)
    launcher = gpu.kernel(_states.PAIR, torch.float16)
    others: list[Arguments] = []
    thread = threading.Thread(target=lambda: others.append(launcher.arguments()))
    thread.start()
    thread.join()
    assert launcher.arguments() is launcher.arguments() is not others[0]


def test_a_tensor_on_another_device_makes_that_one_current(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = []

    @contextmanager
    def on(index: int) -> Iterator[None]:
        entered.append(index)
        yield

    monkeypatch.setattr(torch.cuda, "device", on)
    recorder = Recorder()
    gpu = _gpu.Gpu(recorder, 3, lambda: 5 if entered else 4, lambda: False, lambda: False)
    monkeypatch.setattr(_states, "gpu_of", lambda tensor: gpu)
    BACKEND.merge_state(*state(), *state(), *state())
    assert entered == [3]
    assert recorder.launches[0].stream == 5  # asked once the device was current


@pytest.mark.parametrize(("target", "library"), [("gfx942", "libamdhip64"), ("sm_90", "libcuda")])
def test_a_machine_without_a_driver_is_told(target: str, library: str) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    (reason,) = BACKEND.absent(Place(target, emulated=False))
    assert (reason.code, library in reason.text) == ("absent", True)
    assert _dispatch.absent("hip", Place(target, emulated=False)) == (reason,)


def test_a_machine_without_code_and_compiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(instance: Instance) -> build.Code:
        raise build.BuildError("there is neither code nor a compiler")

    stub.install("nvidia", monkeypatch)
    monkeypatch.setattr(_gpu, "without_code", _gpu.without_code.__wrapped__)
    monkeypatch.setattr(build, "code", none)
    for place in (Place("sm_90", emulated=False), Place(TARGET, emulated=True)):
        assert [reason.text for reason in BACKEND.absent(place)] == ["there is neither code nor a compiler"]
    (reason,) = BACKEND.absent(Place("sm_89", emulated=True))
    assert "no kernel of this version is for sm_89" in reason.text


def test_a_child_of_a_fork_opens_its_devices_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_gpu._gpus, 0, _gpu.Gpu(Recorder(), 0, lambda: 0, lambda: True, lambda: False))
    pid = os.fork()
    if pid == 0:
        os._exit(len(_gpu._gpus))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(_gpu._gpus) == 1


def test_evidence_rests_on_every_source_that_a_kernel_includes() -> None:
    tree = Tree(ROOT / "packages/kernels/src/rocade_kernels")
    built = [row for row in ROWS.values() if row.kernels and row.status is Status.BUILT]
    assert {row.op for row in built} >= {Op.MERGE_STATE, Op.MERGE_STATES, Op.ATTENTION_SUM}
    for row in built:
        hashed = {path.resolve() for path in source_files(row, ROOT)}
        for kernel in row.kernels:
            assert set(tree.closure(kernel.name)) <= hashed, (row.op, kernel.name)
