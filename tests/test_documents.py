"""Code in the README and in the documentation runs: the blocks of a page, in order, as one program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def _program(page: Path) -> str:
    """All python blocks of a page, at their own line numbers so that a traceback points into the page."""
    text, program, line = page.read_text(encoding="utf-8"), "", 0
    for match in BLOCK.finditer(text):
        start = text.count("\n", 0, match.start(1))
        program += "\n" * (start - line) + match.group(1)
        line = start + match.group(1).count("\n")
    return program


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "pages").rglob("*.md"))]
PROGRAMS = {page.relative_to(ROOT).as_posix(): program for page in PAGES if (program := _program(page))}


@pytest.mark.parametrize(
    "page", [page for page in PROGRAMS if page != "README.md"]
)  # tests/test_readme.py runs that one
def test_page_runs(page: str, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text(PROGRAMS[page], encoding="utf-8")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{page}\n{done.stderr}"


def test_pages_with_code_are_found() -> None:
    assert {"README.md", "docs/pages/quickstart.md", "docs/pages/guides/cascade.md"} <= PROGRAMS.keys()
