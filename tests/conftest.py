"""What every test shares: skips in the words of the capability table, and one thread a worker.

`@pytest.mark.caps(op, backend, **facts)` skips a test whose request the table refuses; facts are fields of
`arch_caps.Request`. Tests that build their own requests call the `caps` fixture: `caps(request, backend)`.
Our packages are imported inside functions, so that a broken one fails its own tests, not all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import arch_caps

Need = Callable[["arch_caps.Request", str], None]


def pytest_configure(config: pytest.Config) -> None:
    """Under xdist each worker has one core; more torch threads would only get in each other's way."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        import torch

        torch.set_num_threads(1)


def request_for(op: arch_caps.Op, **facts: object) -> arch_caps.Request:
    """A plain request for `op`, changed by `facts`: fp32, 8 query and 2 KV heads, head dim 64, page 16."""
    from arch_caps import DType, Op, Request

    paged = (Op.BATCH_PREFILL_PAGED, Op.BATCH_DECODE, Op.CASCADE, Op.APPEND_PAGED_KV_CACHE)

    plain: dict[str, object] = {
        "q_dtype": DType.FP32,
        "kv_dtype": DType.FP32,
        "o_dtype": DType.FP32,
        "num_qo_heads": 8,
        "num_kv_heads": 2,
        "head_dim_qk": 64,
        "head_dim_vo": 64,
        "page_size": 16 if op in paged else 0,
    }
    return Request(op=op, **{**plain, **facts})  # type: ignore[arg-type]


def skip_unless_served(request: arch_caps.Request, backend: str) -> None:
    """Skip with every reason of the table, or of the backend when it is not present in this process."""
    from arch_caps import reasons, target_of
    from rocade._place import Place
    from rocade.backends import REGISTRY

    why = reasons(request, backend=backend, target="cpu")
    if not why and backend in REGISTRY:
        why = REGISTRY[backend].absent(Place(target_of("cpu"), emulated=False))
    if why:
        pytest.skip(f"{backend}: " + "; ".join(map(str, why)))


@pytest.fixture
def caps() -> Need:
    """`caps(request, backend)` skips the test where the table has a reason against the request."""
    return skip_unless_served


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Apply `caps` markers before the test's own fixtures are made."""
    for marker in item.iter_markers("caps"):
        op, backend = marker.args
        skip_unless_served(request_for(op, **marker.kwargs), backend)
