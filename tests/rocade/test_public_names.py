"""The public surface: one `__all__`, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rocade

NAMES = [
    "ArchCapabilityError",
    "BatchDecodeWithPagedKVCacheWrapper",
    "BatchDecodeWithSharedPrefixPagedKVCacheWrapper",
    "BatchPrefillWithPagedKVCacheWrapper",
    "BatchPrefillWithRaggedKVCacheWrapper",
    "BatchPrefillWithSharedPrefixPagedKVCacheWrapper",
    "CUDAGraphBatchDecodeWithPagedKVCacheWrapper",
    "CascadeLevels",
    "Emulation",
    "Explanation",
    "MultiLevelCascadeAttentionWrapper",
    "NotPlannedError",
    "RefusedError",
    "__version__",
    "append_paged_kv_cache",
    "emulate",
    "explain",
    "fast_decode_plan",
    "find_shared_prefixes",
    "get_batch_indices_positions",
    "get_seq_lens",
    "merge_state",
    "merge_state_in_place",
    "merge_states",
    "packbits",
    "segment_packbits",
    "single_decode_with_kv_cache",
    "single_prefill_with_kv_cache",
    "single_prefill_with_kv_cache_return_lse",
]


def test_exactly_these_names_are_public() -> None:
    assert rocade.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    assert name.startswith("__") or getattr(rocade, name).__doc__


def test_every_public_module_has_an_all_that_holds() -> None:
    for module in (
        rocade.prefill,
        rocade.decode,
        rocade.cascade,
        rocade.page,
        rocade.quantization,
        rocade.prefix,
    ):
        for name in module.__all__:
            assert getattr(module, name).__doc__


def test_import_leaves_the_heavy_things_alone() -> None:
    """No compiler front end, no numpy of ours, no backend before it is needed."""
    code = """if True:
        import sys, torch
        before = set(sys.modules)
        import rocade
        new = set(sys.modules) - before - {"rocade.backends._base"}
        heavy = ("torch._dynamo", "torch._inductor", "sympy", "rocade.backends.")
        print(*(name for name in new if name.startswith(heavy)))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
