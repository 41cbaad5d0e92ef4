"""The command line: exit status, what is printed, saved buffers, and words that are no arguments."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.emulator.hip_kernels import program

from rocade_emulator._cli import FAILED, FOUND_FAULTS, INTERRUPTED, main
from rocade_emulator._cli_args import WordError, parse


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "k.co"
    path.write_bytes(program("gfx942")._code_object)
    return str(path)


def sums(file: str, *more: str, command: str = "run", out: str = "undefined:8") -> list[str]:
    words = [command, file, "--kernel", "block_sum", "--grid", "2", "--block", "256", *more]
    return [*words, "--args", "random-f32:512", out]


def test_run_saves_results(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs, outputs = tmp_path / "in", tmp_path / "out"
    assert main(sums(file, "--save", f"0={inputs}", "--save", f"1={outputs}")) == 0
    assert "0 kinds of fault" in capsys.readouterr().out
    x = np.fromfile(inputs, np.float32)
    np.testing.assert_allclose(
        np.fromfile(outputs, np.float32), x.reshape(2, 256).sum(1), rtol=1e-4, atol=1e-4
    )
    assert main([*sums(file)[:-2], f"file:{inputs}", "zeros:8"]) == 0


def test_faults_give_status_1(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(sums(file, out="zeros:4")) == FOUND_FAULTS
    assert "write out of bounds" in capsys.readouterr().out
    assert main(sums(file, "--step-limit", "50")) == FOUND_FAULTS
    assert "step limit of 50" in capsys.readouterr().err


def test_report(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(sums(file, command="report")) == 0
    assert "bound: " in capsys.readouterr().out
    assert main(sums(file, "--json", command="report")) == 0
    assert json.loads(capsys.readouterr().out)["counters"]["waves"] == 8


def test_trace(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(sums(file, "--group", "1", "--wave", "2", command="trace")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("1,0,0 w2 ") for line in lines)
    assert lines[-1].endswith("s_endpgm")
    assert main(sums(file, "--lines", "7", command="trace")) == 0
    assert len(capsys.readouterr().out.splitlines()) == 7


def test_list_and_disasm(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", file]) == 0
    listed = capsys.readouterr().out
    assert "block_sum (gfx942)" in listed
    assert "8 bytes, global_buffer" in listed
    assert main(["disasm", file]) == 0
    assert "\nblock_sum:\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"block_sum": "blocksum"}, "no kernel 'blocksum'"),
        ({"256": "2048"}, "allows 1024"),
        ({"undefined:8": "zeros:0"}, "'zeros:0': a buffer of 0 bytes was asked for"),
        ({"undefined:8": "i32:8"}, "argument 1 has 4 bytes|expected a tensor, None or an address"),
        ({"undefined:8": "nonsense:8"}, "'nonsense:8' is no kernel argument"),
        ({"undefined:8": "zeros:many"}, "'zeros:many'"),
        ({"undefined:8": "file:/nowhere/at/all"}, "No such file"),
    ],
)
def test_mistakes_give_status_2_and_one_line(
    file: str, change: dict[str, str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([change.get(word, word) for word in sums(file)]) == FAILED
    error = capsys.readouterr().err
    assert error.startswith("rocade-emulator: ")
    assert "Traceback" not in error
    assert re.search(text, error), error


def test_a_buffer_that_cannot_be_saved(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for spec in ("5=x", "x=5", "1"):
        assert main(sums(file, "--save", spec)) == FAILED
        assert "expected N=PATH" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("i8:-1", b"\xff"),
        ("u16:0xffff", b"\xff\xff"),
        ("i32:-2", b"\xfe\xff\xff\xff"),
        ("u64:1", b"\1" + bytes(7)),
        ("f32:1.5", np.float32(1.5).tobytes()),
        ("f16:-2", np.float16(-2).tobytes()),
        ("f64:0.1", np.float64(0.1).tobytes()),
        ("null", None),
    ],
)
def test_words(word: str, value: object) -> None:
    assert parse(word).value == value


@pytest.mark.parametrize("word", ["i8:128", "u8:-1", "i32:x", "f32:", "zeros:0x", "i128:1", "zeros", ""])
def test_words_that_are_none(word: str) -> None:
    with pytest.raises(WordError):
        parse(word)


def test_random_buffers_repeat() -> None:
    first, second, other = (parse("random-bf16:100", seed).value.read(200) for seed in (1, 1, 2))
    assert first == second != other
    assert parse("undefined:16").undefined


def test_as_a_module(file: str) -> None:
    command = [sys.executable, "-m", "rocade_emulator", "list", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "transpose (gfx942)" in done.stdout


def test_a_reader_that_has_seen_enough(file: str) -> None:
    """As in `rocade-emulator disasm FILE | head -1`."""
    command = [sys.executable, "-m", "rocade_emulator", "disasm", file]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_an_interrupt_is_no_traceback(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rocade_emulator._cli.launch", interrupted)
    assert main(sums(file)) == INTERRUPTED
    assert capsys.readouterr().err == "rocade-emulator: interrupted\n"
