"""Both driver runtimes against stub libraries: what they call, in which order, and what errors say."""

from __future__ import annotations

import ctypes
import os
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.kernels.runtime import stub as stubs
from tests.kernels.runtime.stub import LAUNCH, LOAD, TARGETS, Stub

from rocade_kernels import _native
from rocade_kernels.runtime import (
    Arguments,
    DeviceError,
    Layout,
    Loaded,
    _amd,
    _devices,
    _library,
    _nvidia,
    device,
    missing,
    relaxed,
)

MOST_MICROSECONDS = 5.0  # of the CPU's time, for one launch with 20 arguments


class Args(ctypes.Structure):
    _fields_ = (
        ("where", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
        ("rows", ctypes.c_int32),
        ("scale", ctypes.c_float),
    )


NAMES = ("where", "stride", "rows", "scale")
Pair = tuple[str, Stub]


@pytest.fixture(params=["amd", "nvidia"])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Pair:
    return request.param, stubs.install(request.param, monkeypatch)


@pytest.mark.parametrize("native", [True, False])
def test_a_launch_hands_over_the_grid_the_stream_and_the_whole_struct(
    driver: Pair, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the native library's help, and on a machine that has none."""
    vendor, stub = driver
    if not native:
        monkeypatch.setattr(_native, "library_or_none", lambda: None)
    function = device(vendor, 0, TARGETS[vendor]).load(stubs.code(vendor))
    args = Layout(Args, NAMES).make()
    args.fill(1 << 47, -3, 7, 0.5)
    function.launch((5, 6, 7), 256, 1024, 0xABCDEF0123, args)
    (launched,) = (line for line in stub.calls if line.startswith(LAUNCH[vendor]))
    assert "100f grid 5 6 7 block 256 1 1 lds 1024 stream abcdef0123 extra 0" in launched
    assert stub.block(24) == bytes(Args(1 << 47, -3, 7, 0.5)) == bytes(args)


def test_a_module_is_loaded_on_its_own_device_and_the_threads_device_comes_back(driver: Pair) -> None:
    vendor, stub = driver
    device(vendor, 1, TARGETS[vendor]).load(stubs.code(vendor, image=b"some code"))
    around = {
        "amd": ("hipSetDevice 1", "hipSetDevice 0"),
        "nvidia": ("cuCtxPushCurrent 49163", "cuCtxPopCurrent "),
    }
    before, after = around[vendor]
    at = next(k for k, line in enumerate(stub.calls) if line.startswith(f"{LOAD[vendor]} some code"))
    assert stub.calls[at - 1] == before
    assert stub.calls[at + 1].endswith("ModuleGetFunction rocade_merge")
    assert stub.calls[at + 2] == after


def test_nvidia_works_in_the_primary_context(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = stubs.install("nvidia", monkeypatch)
    device("nvidia", 1, "sm_90")
    assert stub.calls == ["cuInit 0", "cuDeviceGet 1", "cuDevicePrimaryCtxRetain 11"]


def test_a_thread_without_a_context_gets_one_and_no_other_thread_is_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stub = stubs.install("nvidia", monkeypatch)
    function = device("nvidia", 0, "sm_90").load(stubs.code("nvidia"))
    args = Arguments(Args())
    stub.fail("cuLaunchKernel", 201)
    function.launch((1, 1, 1), 64, 0, 0, args)
    assert [line.split()[0] for line in stub.calls[-3:]] == [
        "cuLaunchKernel",
        "cuCtxSetCurrent",
        "cuLaunchKernel",
    ]
    stub.current(0xBAD)  # a context of somebody else: not ours to replace
    stub.fail("cuLaunchKernel", 201)
    with pytest.raises(DeviceError, match="cuLaunchKernel returned 201"):
        function.launch((1, 1, 1), 64, 0, 0, args)
    assert stub.count("cuCtxSetCurrent") == 1


def test_local_memory_above_the_default_limit_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = stubs.install("nvidia", monkeypatch)
    function = device("nvidia", 0, "sm_90").load(stubs.code("nvidia"))
    args = Arguments(Args())
    for lds in (49152, 100_000, 90_000, 100_000):
        function.launch((1, 1, 1), 64, lds, 0, args)
    assert [line for line in stub.calls if "Attribute" in line] == ["cuFuncSetAttribute 8 100000"]


@pytest.mark.parametrize(
    ("vendor", "code", "words"),
    [
        (
            "amd",
            209,
            ["hipModuleLoadData returned 209", "hipErrorNoBinaryForGpu", "no kernel image is available"],
        ),
        (
            "nvidia",
            218,
            ["cuModuleLoadDataEx returned 218", "CUDA_ERROR_INVALID_PTX", "a PTX JIT", "ptxas: line 3"],
        ),
        ("nvidia", 7777, ["returned 7777, unknown code"]),
    ],
)
def test_an_error_names_function_code_text_instance_and_device(
    vendor: str, code: int, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = stubs.install(vendor, monkeypatch)
    runtime = device(vendor, 1, TARGETS[vendor])
    stub.fail(LOAD[vendor], code)
    with pytest.raises(DeviceError) as caught:
        runtime.load(stubs.code(vendor))
    for word in (*words, f"merge-bf16-d0-{TARGETS[vendor]} on device 1"):
        assert word in str(caught.value)
    assert caught.value.code == code


def test_a_refused_launch_tells_its_size(driver: Pair) -> None:
    vendor, stub = driver
    function = device(vendor, 0, TARGETS[vendor]).load(stubs.code(vendor))
    stub.fail(LAUNCH[vendor], 1)
    with pytest.raises(
        DeviceError, match=r"merge-bf16-d0-\S+, grid \(9, 1, 1\), block 64, 32 bytes .*returned 1"
    ):
        function.launch((9, 1, 1), 64, 32, 0, Arguments(Args()))


def test_a_device_that_does_not_exist_is_an_error(driver: Pair) -> None:
    vendor, _ = driver
    with pytest.raises(DeviceError, match="device 5"):
        device(vendor, 5, TARGETS[vendor])


def test_facts_come_from_the_driver(driver: Pair) -> None:
    vendor, _ = driver
    facts = device(vendor, 0, TARGETS[vendor]).facts()
    numbers = {"amd": (63, 87, 74), "nvidia": (16, 10, 97)}[vendor]
    assert (facts.compute_units, facts.wave_size, facts.lds_bytes) == tuple(1000 + n for n in numbers)
    assert facts.name == {"amd": "Stub 0", "nvidia": "Stub 10"}[vendor]
    assert facts.driver == {"amd": "HIP 7.2.123", "nvidia": "CUDA 12.8"}[vendor]


def test_the_chip_is_what_the_system_says_of_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stubs.install("amd", monkeypatch)
    monkeypatch.setattr(stubs.MODULES["amd"], "PCI", tmp_path)
    assert device("amd", 1, TARGETS["amd"]).facts().chip is None
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:01:00.0" / "device").write_text("0x74a2\n")
    assert device("amd", 1, TARGETS["amd"]).facts().chip == 0x74A2
    (tmp_path / "0000:01:00.0" / "device").write_text("what?\n")
    assert device("amd", 1, TARGETS["amd"]).facts().chip is None


def test_a_missing_driver_or_device_is_told(driver: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    vendor, stub = driver
    assert missing(vendor) == ""
    stub.devices(0)
    assert missing(vendor).endswith(": the driver has no device")
    start = {"amd": "hipInit", "nvidia": "cuInit"}[vendor]
    stub.fail(start, 3, times=2)
    assert f"{start} returned 3" in missing(vendor)
    with pytest.raises(DeviceError, match=f"{start} returned 3"):
        device(vendor, 0, TARGETS[vendor])
    module = stubs.MODULES[vendor]
    monkeypatch.setattr(module, "NAMES", ("libnot-there.so.1",))
    module._library.cache_clear()
    assert "libnot-there.so.1" in missing(vendor)


def test_a_thread_leaves_relaxed_mode_as_it_entered_it(driver: Pair) -> None:
    vendor, stub = driver
    name = "ThreadExchangeStreamCaptureMode"

    def modes() -> list[str]:
        return [line.split()[1] for line in stub.calls if line.startswith(name)]

    with suppress(KeyError), relaxed(vendor):
        assert modes() == ["2"]
        raise KeyError
    assert modes() == ["2", "0"]
    stub.fail(name, 3)
    with pytest.raises(DeviceError, match=f"{name} returned 3"), relaxed(vendor):
        pytest.fail("the mode is not known")
    assert modes() == ["2", "0", "2"]


def test_a_driver_without_relaxed_mode_is_told(driver: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_devices._EXCHANGES, driver[0], "noSuchFunction")
    with pytest.raises(DeviceError, match="noSuchFunction"), relaxed(driver[0]):
        pytest.fail("there is no such mode")


def test_a_child_of_a_fork_does_not_ask_a_device_of_its_parent(driver: Pair) -> None:
    vendor, stub = driver
    device(vendor, 0, TARGETS[vendor])
    pid = os.fork()
    if pid == 0:
        stub.reset()
        try:
            with relaxed(vendor):
                os._exit(1)
        except DeviceError:
            os._exit(len(stub.calls))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_library_without_the_functions_is_passed_over(driver: Pair) -> None:
    vendor, stub = driver
    other = {"amd": _nvidia, "nvidia": _amd}[vendor]
    with pytest.raises(_library.MissingError, match="undefined symbol"):
        _library.open_library((str(stub.path),), other._PROTOTYPES, other._text)


def test_a_copy_that_the_process_has_mapped_comes_first(driver: Pair) -> None:
    vendor, stub = driver
    found = _library._mapped(f"lib{vendor}")
    assert str(stub.path) in found
    assert _library._mapped("libnot-there") == []


def test_threads_that_want_one_instance_load_it_once(driver: Pair) -> None:
    vendor, stub = driver
    fetched = []

    def fetch() -> stubs.Code:
        fetched.append(1)
        time.sleep(0.02)
        return stubs.code(vendor)

    loaded = Loaded(device(vendor, 0, TARGETS[vendor]))
    instance = stubs.code(vendor).instance
    assert loaded.get(instance) is None
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(loaded.load(instance, fetch))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(map(id, found))) == 1
    assert len(fetched) == stub.count(LOAD[vendor]) == 1
    assert loaded.get(instance) is found[0]


def in_child(check: Callable[[], bool]) -> bool:
    """Whether `check` holds in a forked child."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if check() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_of_a_process_without_a_device_starts_anew(driver: Pair) -> None:
    vendor, _ = driver

    def works() -> bool:
        device(vendor, 0, TARGETS[vendor]).load(stubs.code(vendor)).launch(
            (1, 1, 1), 64, 0, 0, Arguments(Args())
        )
        return missing(vendor) == ""

    assert in_child(works)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_of_a_process_that_used_a_device_is_refused_and_calls_no_driver(driver: Pair) -> None:
    vendor, stub = driver
    function = device(vendor, 0, TARGETS[vendor]).load(stubs.code(vendor))

    def refused() -> bool:
        before = len(stub.calls)
        for attempt in (
            lambda: device(vendor, 1, TARGETS[vendor]),
            lambda: function.launch((1, 1, 1), 64, 0, 0, Arguments(Args())),
        ):
            with pytest.raises(DeviceError, match="spawn"):
                attempt()
        return "spawn" in missing(vendor) and len(stub.calls) == before

    assert in_child(refused)
    function.launch((1, 1, 1), 64, 0, 0, Arguments(Args()))  # the parent goes on as before


def test_a_field_that_moves_stops_its_caller() -> None:
    with pytest.raises(ImportError, match="Args has the fields"):
        Layout(Args, ("stride", "where", "rows", "scale"))


def test_a_launch_takes_little_time(driver: Pair) -> None:
    """The fastest of many short runs: other work on the machine only ever adds to a run."""
    vendor, stub = driver
    function = device(vendor, 0, TARGETS[vendor]).load(stubs.code(vendor))
    names = [f"field{k}" for k in range(20)]
    kind = type("Twenty", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_int64) for name in names]})
    args = Layout(kind, names).make()
    values = [1 << 40] * 20
    stub.record(False)
    grid = (4, 5, 6)
    times = []
    for _ in range(200):
        start = time.perf_counter()
        for _ in range(50):
            args.fill(*values)
            function.launch(grid, 256, 0, 77, args)
        times.append((time.perf_counter() - start) / 50 * 1e6)
    print(f"fill and launch: {min(times):.2f} us at best, {statistics.median(times):.2f} us median")
    assert min(times) <= MOST_MICROSECONDS
