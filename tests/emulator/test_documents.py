"""Samples of the emulator's documents run: a page's Python as one program, then its shell lines."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests import needs

from rocade_emulator._cli import _parser

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "packages/emulator/README.md", ROOT / "docs/pages/emulator.md")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = "rocade-emulator "


def blocks(text: str, language: str) -> list[str]:
    return [body for found, body in BLOCK.findall(text) if found == language]


def run(words: list[str], folder: Path) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_samples_run(page: Path, tmp_path: Path) -> None:
    needs.module("ziglang", "ziglang, which compiles the page's kernel, is not installed")
    text = page.read_text(encoding="utf-8")
    assert {language for language, _ in BLOCK.findall(text)} == {"python", "sh"}, "blocks that no test runs"
    script = tmp_path / "page.py"
    script.write_text("".join(blocks(text, "python")), encoding="utf-8")
    run([sys.executable, str(script)], tmp_path)
    lines = "".join(blocks(text, "sh")).splitlines()
    assert lines
    for line in lines:
        assert line.startswith(COMMAND)
        run([sys.executable, "-m", "rocade_emulator", *shlex.split(line.removeprefix(COMMAND))], tmp_path)


def test_examples_of_the_help_text_are_understood() -> None:
    examples = [
        line.strip() for line in _parser().format_help().splitlines() if line.startswith(f"  {COMMAND}")
    ]
    assert len(examples) >= 4
    for line in examples:
        options = _parser().parse_args(shlex.split(line.removeprefix(COMMAND)))
        assert options.command == shlex.split(line)[1]
