"""Speed as a ratio to the yardstick of the same run, the cold start, and the command that prints them."""

from __future__ import annotations

import json

import pytest
from tests import needs
from tests.emulator import aiter

from rocade_emulator import Program, _bench
from rocade_emulator._cli import main

# The floor is 2.5 million wave instructions a second where the yardstick makes 255 million loops.
FLOOR = 2.5 / 255
COLD_START_MS = 20
TARGETS = ("gfx942", "gfx950")


def forward_speed(target: str, seconds: float) -> _bench.Speed:
    """AITER's forward kernel on one head."""
    case = aiter.make(1, (1, 1), (512, 512), 128, False)
    small = aiter.make(1, (1, 1), (256, 64), 128, False)
    aiter.launch(target, small)  # reads the wheel, which is no part of a cold start
    code = aiter.program(target, aiter.forward_name(target, False))._code_object

    def cold() -> None:
        Program.from_bytes(code, target)
        aiter.launch(target, small)

    name = f"{target} AITER forward"
    return _bench.measure(name, lambda checks: aiter.launch(target, case, checks=checks), cold, seconds)


@pytest.mark.parametrize("target", TARGETS)
def test_production_kernel(target: str) -> None:
    speed = forward_speed(target, 0.5)
    assert speed.ratio > FLOOR, speed.line()
    assert speed.cold_start_ms < COLD_START_MS, speed.line()


@pytest.mark.parametrize("target", TARGETS)
def test_command(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    needs.module("ziglang", "ziglang, which compiles the kernel, is not installed")
    assert main(["bench", "--target", target, "--seconds", "0.3", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["ratio"] > FLOOR, record
    assert record["cold_start_ms"] < COLD_START_MS, record
    assert record["name"].startswith(target)


if __name__ == "__main__":
    for name in TARGETS:
        print(forward_speed(name, 3.0).line(), flush=True)
