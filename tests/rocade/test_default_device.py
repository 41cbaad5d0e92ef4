"""A program may set a default device or dtype: what the library allocates itself must not follow it.

Plan arrays belong on the host: native code cannot read an address of another device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from tests.rocade.paged import BACKENDS

import rocade
from rocade import cascade, prefix

Call = Callable[[str], list[torch.Tensor]]
CPU = torch.device("cpu")


def int32(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32, device=CPU)


def rand(*shape: int) -> torch.Tensor:
    generator = torch.Generator(CPU).manual_seed(len(shape))
    return torch.randn(*shape, generator=generator, device=CPU, dtype=torch.float32)


def workspace(size: int = 1 << 20) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=CPU)


def prefill(backend: str, **options: object) -> list[torch.Tensor]:
    wrapper = rocade.BatchPrefillWithPagedKVCacheWrapper(workspace(), backend=backend)
    table = int32(0, 3, 4), int32(3, 0, 2, 1), int32(2, 4)
    wrapper.plan(int32(0, 5, 7), *table, 4, 2, 16, 4, q_data_type=torch.float32, **options)  # type: ignore[arg-type]
    return list(wrapper.run(rand(7, 4, 16), rand(4, 2, 4, 2, 16), return_lse=True))


def masked(backend: str) -> list[torch.Tensor]:
    return prefill(backend, custom_mask=torch.arange(58, device=CPU) % 3 != 0)


def packed(backend: str) -> list[torch.Tensor]:
    return prefill(backend, packed_custom_mask=torch.arange(8, dtype=torch.uint8, device=CPU) + 90)


def decode(backend: str) -> list[torch.Tensor]:
    """Long enough to be split over threads, with a workspace too small for that."""
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace(16), backend=backend)
    pages = torch.arange(100, dtype=torch.int32, device=CPU)
    options = {"q_data_type": torch.float32, "fixed_split_size": 20}
    wrapper.plan(int32(0, 100), pages, int32(4), 4, 2, 16, 4, **options)  # type: ignore[arg-type]
    return list(wrapper.run(rand(1, 4, 16), rand(100, 2, 4, 2, 16), return_lse=True))


def shared(backend: str) -> list[torch.Tensor]:
    levels = prefix.find_shared_prefixes(int32(0, 3, 6), int32(0, 1, 2, 0, 1, 3), int32(2, 4), 4)
    wrapper = cascade.MultiLevelCascadeAttentionWrapper(levels.num_levels, workspace(), backend=backend)
    wrapper.plan(*levels, 4, 2, 16, 4, q_data_type=torch.float32)
    return list(wrapper.run(rand(2, 4, 16), rand(4, 2, 4, 2, 16), return_lse=True))


def single(backend: str) -> list[torch.Tensor]:
    k, v = rand(9, 2, 16), rand(9, 2, 16)
    out, lse = rocade.single_prefill_with_kv_cache(
        rand(3, 4, 16), k, v, causal=True, return_lse=True, backend=backend
    )
    return [out, lse, rocade.single_decode_with_kv_cache(rand(3, 4, 16)[0], k, v, backend=backend)]


def states(backend: str) -> list[torch.Tensor]:
    v, s, ends = rand(6, 4, 16), rand(6, 4), int32(0, 2, 2, 6)
    merged = cascade.variable_length_merge_states(v, s, ends, backend=backend)
    return [*merged, cascade.variable_length_attention_sum(v, ends, backend=backend)]


CALLS: list[Call] = [prefill, masked, packed, decode, shared, single, states]


@pytest.fixture
def other_defaults() -> Iterator[None]:
    torch.set_default_device("meta")
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


@pytest.fixture
def expected(call: Call, backend: str) -> list[torch.Tensor]:
    """Asked for before `other_defaults`, so it is made under the usual ones."""
    return call(backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("call", CALLS)
def test_results_do_not_depend_on_defaults(
    call: Call, backend: str, expected: list[torch.Tensor], other_defaults: None
) -> None:
    for result, want in zip(call(backend), expected, strict=True):
        assert result.device == CPU
        assert torch.equal(result, want)
