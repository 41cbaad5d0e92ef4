"""Host memory that goes to a GPU: nothing waits, and the caller may change its arrays at once."""

from __future__ import annotations

import pytest
import torch

import rocade
from rocade._upload import upload, write

CPU = torch.device("cpu")
INT = {"dtype": torch.int32}


def test_what_is_there_already_is_not_copied() -> None:
    given = torch.arange(5)
    assert upload(given, CPU) is given


def test_other_devices_get_a_plain_copy() -> None:
    assert upload(torch.arange(5), torch.device("meta")).device.type == "meta"


def test_values_are_written_in_place() -> None:
    to = torch.zeros(5, dtype=torch.int64)
    write(to[1:3], torch.tensor([4, 5]))
    assert to.tolist() == [0, 4, 5, 0, 0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device")
@pytest.mark.parametrize("graph", [False, True])
def test_a_plan_of_host_arrays_waits_for_nothing_and_keeps_none_of_them(graph: bool) -> None:
    pages, size = 4, 16
    table = [torch.tensor(x, **INT) for x in ([0, 2, pages], [3, 1, 0, 2], [size, 5])]
    q = torch.randn(2, 4, 64, dtype=torch.float16, device="cuda")
    cache = torch.randn(pages, 2, size, 2, 64, dtype=torch.float16, device="cuda")
    space = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    if graph:
        buffers = [torch.empty_like(x, device="cuda") for x in table]
        wrapper = rocade.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(space, *buffers)
    else:
        wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(space)
    kinds = {"q_data_type": "float16"}
    wrapper.plan(*table, 4, 2, 64, size, **kinds)  # type: ignore[arg-type]
    expected = wrapper.run(q, cache).clone()
    pinned = [x.pin_memory() for x in table]
    torch.cuda.synchronize()
    for arrays in (table, pinned):
        given = [x.clone() if arrays is table else x for x in arrays]
        torch.cuda._sleep(50_000_000)
        torch.cuda.set_sync_debug_mode("error")
        try:
            wrapper.plan(*given, 4, 2, 64, size, **kinds)  # type: ignore[arg-type]
        finally:
            torch.cuda.set_sync_debug_mode("default")
        for array in given:
            array.fill_(-1)
        found = wrapper.run(q, cache)
        assert torch.equal(found, expected)
