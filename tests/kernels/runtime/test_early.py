"""Launches that may start before the kernel in front of them has ended, against stub drivers."""

from __future__ import annotations

import struct

import pytest
from tests.kernels.runtime import stub as stubs
from tests.kernels.runtime.stub import LAUNCH, TARGETS
from tests.kernels.runtime.test_drivers import NAMES, Args

from rocade_kernels import _native
from rocade_kernels.runtime import Arguments, DeviceError, Layout, device


@pytest.mark.parametrize("native", [True, False])
def test_an_early_launch_hands_over_a_config_with_one_attribute(
    native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte by byte, as cuda.h lays both structs out."""
    stub = stubs.install("nvidia", monkeypatch)
    if not native:
        monkeypatch.setattr(_native, "library_or_none", lambda: None)
    function = device("nvidia", 0, "sm_90").load(stubs.code("nvidia"))
    args = Layout(Args, NAMES).make()
    args.fill(1 << 47, -3, 7, 0.5)
    function.launch((5, 6, 7), 256, 1024, 0xABCDEF0123, args, early=True)
    (launched,) = (line for line in stub.calls if line.startswith("cuLaunch"))
    words = "cuLaunchKernelEx 100f grid 5 6 7 block 256 1 1 lds 1024 stream abcdef0123 extra 0"
    assert launched.startswith(words)
    assert stub.block(24) == bytes(args)
    config, attribute = stub.config
    assert struct.unpack("<7I", config[:28]) == (5, 6, 7, 256, 1, 1, 1024)
    assert struct.unpack("<Q", config[32:40]) == (0xABCDEF0123,)
    assert struct.unpack("<I", config[48:52]) == (1,)
    assert attribute == struct.pack("<iiii", 6, 0, 1, 0) + bytes(56)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("vendor", "defines", "version"),
    [("amd", (), 12080), ("nvidia", ("STUB_OLD",), 12080), ("nvidia", (), 12020)],
    ids=["AMD", "without the function", "of a version whose graphs cannot hold it"],
)
def test_a_driver_that_knows_no_early_launch_makes_a_plain_one(
    vendor: str, defines: tuple[str, ...], version: int, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = stubs.install(vendor, monkeypatch, *defines)
    stub.version(version)
    if not native:
        monkeypatch.setattr(_native, "library_or_none", lambda: None)
    function = device(vendor, 0, TARGETS[vendor]).load(stubs.code(vendor))
    function.launch((1, 2, 3), 64, 32, 0, Arguments(Args()), early=True)
    (launched,) = (line for line in stub.calls if "Launch" in line)
    assert launched.startswith(f"{LAUNCH[vendor]} 100f grid 1 2 3 block 64 1 1 lds 32 ")
    assert function.early_entry == 0


def test_an_early_launch_is_mended_and_refused_as_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = stubs.install("nvidia", monkeypatch)
    function = device("nvidia", 0, "sm_90").load(stubs.code("nvidia"))
    stub.fail("cuLaunchKernelEx", 201)
    function.launch((1, 1, 1), 64, 0, 0, Arguments(Args()), early=True)
    assert (stub.count("cuLaunchKernelEx"), stub.count("cuCtxSetCurrent")) == (2, 1)
    stub.fail("cuLaunchKernelEx", 1)
    with pytest.raises(
        DeviceError, match=r"grid \(9, 1, 1\), block 64, 32 bytes .*cuLaunchKernelEx returned 1"
    ):
        function.launch((9, 1, 1), 64, 32, 0, Arguments(Args()), early=True)
    assert not stub.count("cuLaunchKernel")
