"""Generated files are fresh, and `scripts/generate --check` notices every way in which they can be wrong."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KERNELS = "packages/kernels/src/rocade_kernels"
GENERATED = (
    "README.md",
    "docs/pages/reference/arch-support.md",
    "docs/pages/reference/arch-caps.json",
    "docs/pages/reference/settings.md",
    f"{KERNELS}/include/rocade/arch_caps.hpp",
    f"{KERNELS}/_instances.py",
    f"{KERNELS}/_devices.py",
    f"{KERNELS}/hip/args.hpp",
)
SOURCES = ("scripts/generate", f"{KERNELS}/hip_abi.py")
WORDS = ("H100", "H100", "H100", "ROCADE_", "sm_90", "INSTANCES", "DEVICES", "columns")
MARK = "<!-- BEGIN GENERATED: support matrix -->"


def generate(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script without site-packages: it needs nothing but the standard library."""
    command = [sys.executable, "-I", "-S", str(root / "scripts" / "generate"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the script reads and writes, without recorded evidence."""
    root = tmp_path_factory.mktemp("pristine")
    ignored = shutil.ignore_patterns("__pycache__", "cpu-*.json", "gfx*.json", "sm_*.json")
    shutil.copytree(ROOT / "arch_caps", root / "arch_caps", ignore=ignored)
    settings = [path.relative_to(ROOT) for path in ROOT.glob("packages/*/src/*/_settings.py")]
    for name in (*SOURCES, *GENERATED, *settings):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    assert generate(root).returncode == 0
    return root


@pytest.fixture
def copy(pristine: Path, tmp_path: Path) -> Path:
    """A tree to spoil."""
    return shutil.copytree(pristine, tmp_path / "copy")


def test_committed_files_are_fresh() -> None:
    done = generate(ROOT, "--check")
    assert done.returncode == 0, f"run scripts/generate\n{done.stderr}"


@pytest.mark.parametrize(
    ("name", "word"),
    list(zip(GENERATED, WORDS, strict=True)),
)
def test_an_edit_is_noticed_and_undone(copy: Path, name: str, word: str) -> None:
    path = copy / name
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(word, "something else"), encoding="utf-8")
    done = generate(copy, "--check")
    assert done.returncode == 1
    assert f"--- {name}\n+++ {name} (generated)\n@@" in done.stderr
    assert generate(copy).stdout == f"wrote {name}\n"
    assert path.read_text() == text


def test_a_missing_file_is_noticed(copy: Path) -> None:
    (copy / GENERATED[-1]).unlink()
    assert generate(copy, "--check").returncode == 1
    assert not (copy / GENERATED[-1]).exists()


def test_only_the_block_of_the_readme_is_replaced(copy: Path) -> None:
    readme = copy / "README.md"
    readme.write_text("before\n" + readme.read_text() + "after\n")
    assert generate(copy, "--check").returncode == 0


@pytest.mark.parametrize("text", ["no markers\n", f"{MARK}\n", f"{MARK}\n{MARK}\n"])
@pytest.mark.parametrize("arguments", [(), ("--check",)])
def test_missing_markers_are_an_error(copy: Path, text: str, arguments: tuple[str, ...]) -> None:
    (copy / "README.md").write_text(text)
    done = generate(copy, *arguments)
    assert done.returncode == 1
    assert "README.md: needs one line" in done.stderr
    assert (copy / "README.md").read_text() == text


def test_a_row_that_changes_shows(copy: Path) -> None:
    rows = copy / "arch_caps/src/arch_caps/rows/cpu.py"
    rows.write_text(rows.read_text().replace("max=256", "max=128"))
    done = generate(copy, "--check")
    assert done.returncode == 1
    assert "+| `head_dim_qk` | multiples of 8 from 8 to 128" in done.stderr


RECORD = """
import sys
from pathlib import Path
root = Path(sys.argv[1])
sys.path.insert(0, str(root / "arch_caps" / "src"))
from arch_caps import EvidenceKind, Op, gather_evidence, write_evidence
records = gather_evidence(kind=EvidenceKind.HARDWARE, target="cpu-x86_64", on="a CPU",
                          toolchain={"torch": "2"}, cases={(Op.CASCADE, "torch"): 3}, root=root)
write_evidence(records, root)
"""


def test_stale_evidence_fails_a_release_only(copy: Path) -> None:
    backend = copy / "packages/rocade/src/rocade/backends/torch/__init__.py"
    backend.parent.mkdir(parents=True)
    backend.write_text("")
    subprocess.run([sys.executable, "-I", "-S", "-c", RECORD, str(copy)], check=True)
    assert generate(copy, "--check").returncode == 1, "new evidence has to show"
    assert generate(copy).returncode == 0
    assert "| cascade | `torch` | cpu-x86_64 | hardware | 3 |" in (copy / GENERATED[1]).read_text()
    assert generate(copy, "--check", "--release").returncode == 0
    backend.write_text("# edited\n")
    checked = generate(copy, "--check")
    assert checked.returncode == 0
    assert "stale evidence: cascade, torch on cpu-x86_64" in checked.stderr
    assert generate(copy, "--check", "--release").returncode == 1
    assert generate(copy).returncode == 0
    assert "| cascade | `torch` | cpu-x86_64 | hardware, stale | 3 |" in (copy / GENERATED[1]).read_text()


def test_evidence_that_cannot_be_read_is_named(copy: Path) -> None:
    (copy / "arch_caps" / "evidence" / "broken.json").write_text("{}")
    done = generate(copy, "--check")
    assert done.returncode == 1
    assert "broken.json: not an evidence file" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", GENERATED)
def test_the_first_line_says_generated(name: str) -> None:
    text = (ROOT / name).read_text()
    line = text.split(MARK + "\n")[1].splitlines()[0] if name == "README.md" else text.splitlines()[0]
    assert "Generated by scripts/generate" in line
