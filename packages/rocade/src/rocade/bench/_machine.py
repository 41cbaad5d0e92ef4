"""What this machine can do, measured in the same run: read bandwidth and the rate of fp32 matrix products."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rocade.bench._timing import compete

READ_BYTES = 512 << 20  # well beyond any last-level cache
MM_SIZE = 1024


@dataclass(frozen=True, slots=True)
class Machine:
    """Medians over this run. `read` in bytes/s over all threads, `matmul` in flop/s (fp32)."""

    threads: int
    read: float
    matmul: float

    def __str__(self) -> str:
        """One line for the head of a report."""
        return (
            f"{self.threads} threads, read {self.read / 1e9:.1f} GB/s, "
            f"fp32 matrix product {self.matmul / 1e9:.0f} GFLOP/s"
        )


def measure() -> Machine:
    """Measure both rates, taking turns."""
    data = torch.ones(READ_BYTES // 4)
    a, b, out = (torch.randn(MM_SIZE, MM_SIZE) for _ in range(3))
    samples = compete(
        {"read": lambda _: data.sum(), "matmul": lambda _: torch.mm(a, b, out=out)},
        budget_s=2.0,
        min_rounds=15,
    )
    return Machine(
        threads=torch.get_num_threads(),
        read=READ_BYTES / samples.median("read"),
        matmul=2 * MM_SIZE**3 / samples.median("matmul"),
    )
