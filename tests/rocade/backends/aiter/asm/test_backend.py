"""Backend `aiter_asm` beside its results: presence, refusals, products, limits, and what is launched."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.rocade.backends.aiter.asm.batch import TARGETS, Batch, check

import rocade
from arch_caps import AITER_OBJECTS, ArchCapabilityError, DType, Op, Request, reasons
from rocade import _dispatch
from rocade._place import Place
from rocade.backends import _emulator, _gpu
from rocade.backends.aiter.asm import BACKEND, _objects, _plan
from rocade_kernels import hip_abi
from rocade_kernels.aiter.kernarg import LIMIT
from rocade_kernels.runtime import DeviceFacts, Image, Layout

FIELDS = [name for name, *_ in hip_abi.MergeStateDenseArgs._fields_]

REQUEST = Request(
    op=Op.BATCH_PREFILL_RAGGED,
    q_dtype=DType.BF16,
    kv_dtype=DType.BF16,
    o_dtype=DType.BF16,
    num_qo_heads=4,
    num_kv_heads=2,
    head_dim_qk=128,
    head_dim_vo=128,
)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dispatch forgets who was present."""
    monkeypatch.setattr(_dispatch, "_found", {})
    monkeypatch.setattr(_dispatch, "_planned", {})


@pytest.fixture
def copied(objects: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation to change."""
    shutil.copytree(objects, tmp_path / "hsa")
    monkeypatch.setenv("AITER_ASM_DIR", str(tmp_path / "hsa"))
    return tmp_path / "hsa"


def test_absent_without_code_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AITER_ASM_DIR", str(tmp_path))
    (reason,) = BACKEND.absent(Place("gfx950", emulated=True))
    assert "was not found" in reason.text
    assert str(tmp_path / "gfx950" / "fmha_v3_fwd") in reason.text
    assert "AITER_ASM_DIR" in reason.text


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("target", TARGETS)
def test_an_unknown_code_object_is_refused(target: str, copied: Path) -> None:
    """As another version of AITER would bring it: of the same name, of other content."""
    for path in copied.rglob("*_group.co"):
        path.write_bytes(path.read_bytes() + b"\0")
    (reason,) = BACKEND.absent(Place(target, emulated=True))
    assert "is not the code object that was executed" in reason.text
    with pytest.raises(ArchCapabilityError, match="what this one does is unknown"):
        Batch([(3, 40)], heads=(2, 1)).ragged(target, "aiter_asm", causal=False)


@pytest.mark.usefixtures("fresh")
def test_only_the_requests_of_an_unknown_code_object_are_refused(copied: Path) -> None:
    path = copied / "gfx950" / "fmha_v3_fwd" / "fwd_hd128_bf16_causal_group.co"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    batch = Batch([(3, 40)], heads=(2, 1))
    out, lse = batch.ragged("gfx950", "aiter_asm", causal=False)
    check(batch, out, lse, causal=False)
    with pytest.raises(ArchCapabilityError, match=r"fwd_hd128_bf16_causal_group\.co"):
        batch.ragged("gfx950", "aiter_asm", causal=True)


def test_a_folder_that_others_can_write_is_refused(copied: Path) -> None:
    for path in copied.rglob("fmha_v3_fwd"):
        path.chmod(0o777)
    (reason,) = BACKEND.absent(Place("gfx950", emulated=True))
    assert "is writable by others" in reason.text


def test_the_variable_may_name_a_targets_own_folder(objects: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AITER_ASM_DIR", f"{objects}/gfx950/")
    assert BACKEND.absent(Place("gfx950", emulated=True)) == []


@pytest.mark.usefixtures("objects")
def test_auto_prefers_hip_and_the_family_means_this() -> None:
    batch = Batch([(3, 40)], heads=(2, 1))
    with rocade.emulate("gfx942"):
        assert batch.planned("auto", causal=True).backend == "hip"
        assert batch.planned("aiter", causal=True).backend == "aiter_asm"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"q_dtype": DType.FP16, "kv_dtype": DType.FP16, "o_dtype": DType.FP16}, "q_dtype is fp16"),
        ({"head_dim_qk": 192}, "head_dim_qk is 192"),
        ({"window_left": 3}, "window_left is 3"),
        ({"logits_soft_cap": 2.0}, "logits_soft_cap is 2.0"),
        ({"graph": True}, "graph is yes"),
        ({"fixed_split_size": 64}, "fixed_split_size is 64"),
    ],
)
@pytest.mark.parametrize("target", TARGETS)
def test_the_table_refuses(target: str, change: dict[str, Any], why: str) -> None:
    found = reasons(dataclasses.replace(REQUEST, **change), backend="aiter_asm", target=target)
    assert why in found[0].text


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize("target", TARGETS)
def test_a_partial_state_is_refused_by_the_run(target: str) -> None:
    batch = Batch([(3, 20)], heads=(2, 1))
    k, v, arrays = batch.pool(16, "NHD")
    state = (torch.zeros(3, 2, 128, dtype=torch.bfloat16), torch.zeros(3, 2))
    with rocade.emulate(target):
        wrapper = rocade.BatchPrefillWithPagedKVCacheWrapper(
            torch.empty(1 << 20, dtype=torch.uint8), "NHD", backend="aiter_asm"
        )
        indptr = torch.tensor(batch.qo_indptr, dtype=torch.int32)
        wrapper.plan(indptr, *arrays, 2, 1, 128, 16, q_data_type=torch.bfloat16)
        with pytest.raises(ArchCapabilityError, match="partial_state is given; accepted: none"):
            wrapper.run(batch.q, (k, v), partial_state=state)


@pytest.mark.parametrize("chip", [0x74A2, 0x74A8, 0x74B6, 0x74BC])
def test_mi308_by_its_chip(chip: int) -> None:
    assert _objects.product_of("gfx942", chip) == "MI308"


def test_other_chips_get_the_targets_first() -> None:
    assert _objects.product_of("gfx942", 0x74A1) == _objects.product_of("gfx942", None) == "MI300"
    assert _objects.product_of("gfx950", 0x74A2) == _objects.product_of("gfx950", 0x75A0) == ""


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize("causal", [False, True])
def test_mi308_is_executed(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = _emulator.EmulatedRuntime.facts
    monkeypatch.setattr(
        _emulator.EmulatedRuntime, "facts", lambda self: dataclasses.replace(facts(self), chip=0x74A2)
    )
    loaded = []
    read = _objects.image_of
    monkeypatch.setattr(_objects, "image_of", lambda found: loaded.append(found.product) or read(found))
    batch = Batch([(5, 9), (300, 333), (40, 0)], heads=(4, 2))
    out, lse = batch.ragged("gfx942", "aiter_asm", causal=causal)
    check(batch, out, lse, causal=causal)
    assert loaded[-1] == "MI308"


@pytest.mark.usefixtures("objects")
def test_tensors_beyond_32_bits_of_offset_are_refused() -> None:
    """Only the first and last rows exist: the memory between them is never touched."""
    batch = Batch([(2, 40)], heads=(2, 1))
    with rocade.emulate("gfx942"):
        wrapper = batch.planned("aiter_asm", causal=False)
        far = torch.empty(LIMIT // 2 + 1024, dtype=torch.bfloat16).as_strided(
            (2, 2, 128), (LIMIT // 2, 128, 1)
        )
        with pytest.raises(ValueError, match=r"q: got \d+ bytes from first to last element"):
            wrapper.run(far, batch.k, batch.v)


@pytest.mark.usefixtures("objects")
def test_many_requests_take_several_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_plan, "MAX_REQUESTS", 3)
    batch = Batch([(2, 40)] * 7, heads=(2, 1))
    with rocade.emulate("gfx942") as emulation:
        out, lse = batch.planned("aiter_asm", causal=True).run(batch.q, batch.k, batch.v, return_lse=True)
    check(batch, out, lse, causal=True)
    assert len(emulation.results) == 3


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize(("target", "launches"), [("gfx942", 2), ("gfx950", 1)])
def test_short_requests_go_to_the_causal_kernel_where_they_must(target: str, launches: int) -> None:
    batch = Batch([(4, 31), (4, 32)], heads=(2, 1))
    with rocade.emulate(target) as emulation:
        out, lse = batch.planned("aiter_asm", causal=False).run(batch.q, batch.k, batch.v, return_lse=True)
    check(batch, out, lse, causal=False)
    assert len(emulation.results) == launches


class Recorder:
    """A runtime that counts what it loads."""

    target = "gfx942"
    loads = 0
    name = "nothing"

    def load(self, code: Image) -> Recorder:
        self.loads += 1
        assert (code.instance.entry, code.image) == ("symbol", b"code")
        return self

    def facts(self) -> DeviceFacts:
        return DeviceFacts("none", 304, 64, 65536, "none")

    def launch(self, *_: object) -> None:
        """Never called."""


def test_foreign_code_is_loaded_once_and_never_while_a_graph_is_captured() -> None:
    recorder, capturing = Recorder(), [True]
    gpu = _gpu.Gpu(recorder, 0, lambda: 0, lambda: True, lambda: capturing[0])
    kernel = _gpu.Foreign("name", "symbol", "digest", Layout(hip_abi.MergeStateDenseArgs, FIELDS))
    with pytest.raises(RuntimeError, match="name is not loaded on this device yet"):
        gpu.foreign(kernel, lambda: b"code")
    capturing[0] = False
    gpu.foreign(kernel, lambda: b"code")
    capturing[0] = True
    gpu.foreign(kernel, lambda: b"code")
    assert recorder.loads == 1


def test_every_product_has_a_pair() -> None:
    kinds = {(entry.target, entry.product) for entry in AITER_OBJECTS}
    for target, product in kinds:
        pair = _objects.pair_of(REQUEST, target, product)
        assert pair is not None
        assert pair.causal.causal
        assert not pair.plain.causal
        assert pair.causal.min_keys == 1, "requests that are short for the other go here"
