"""What the README promises: a ten-line example that prints a result, and two commands of one line each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.test_documents import PROGRAMS, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_example_is_ten_lines_and_prints_the_shape(tmp_path: Path) -> None:
    lines = [line for line in PROGRAMS["README.md"].splitlines() if line and not line.startswith("import ")]
    assert len(lines) <= 10
    script = tmp_path / "example.py"
    script.write_text(PROGRAMS["README.md"], encoding="utf-8")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "torch.Size([4, 32, 64])\n", done.stderr


def test_each_command_is_one_line_from_a_fresh_clone() -> None:
    start = "python3 -m venv .venv && .venv/bin/pip install hatch && .venv/bin/hatch run "
    lines = README.splitlines()
    assert lines.count(start + "demo:run") == 1
    assert lines.count(start + "test") == 1


def test_ci_runs_the_command_that_the_readme_gives() -> None:
    assert "grep -m1 -E '^python3 -m venv .*hatch run test$' README.md" in (ROOT / ".ci" / "run").read_text()
