"""The argument structs of AITER 0.1.7 against the headers in its wheel; newer versions ship none on PyPI."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from tests import needs
from tests.emulator import aiter as wheel_source

import rocade_kernels

HEADER = "aiter_meta/3rdparty/composable_kernel/example/ck_tile/01_fmha/fmha_fwd.hpp"
STREAM = "aiter_meta/3rdparty/composable_kernel/include/ck_tile/host/stream_config.hpp"
LOADER = Path(rocade_kernels.__file__).parent / "aiter" / "loader"
FIELD = re.compile(r"(\w+)(?:\s*=[^;]*)?;")
THEIR_STREAM = "ck_tile::stream_config"
STREAM_FIELDS = (
    *("stream", "time_kernel", "log_level", "cold_iterations", "repeats"),
    *("is_gpu_timer", "flush_cache", "rotating_count"),
)
PROGRAM = """\
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>
#include "mha_batch_prefill_0_1_7.hpp"
#include "mha_fwd_0_1_7.hpp"
using hipStream_t = void*;
namespace ck_tile {{ using index_t = int32_t; {stream} }}
{structs}
using namespace rocade::aiter;
{checks}
"""


def struct_of(text: str, name: str) -> str:
    """A struct without nested braces but in initialisers."""
    found = re.search(rf"^struct {name}\n\{{.*?^\}};", text, re.DOTALL | re.MULTILINE)
    assert found is not None, name
    return re.sub(r"^#if 0.*?^#endif", "", found.group(), flags=re.DOTALL | re.MULTILINE)


def fields(struct: str) -> list[str]:
    """Names of the fields, in order."""
    return FIELD.findall(re.sub(r"//[^\n]*", "", struct))


def checks(theirs: str, ours: str, names: list[str]) -> list[str]:
    """Assertions that two structs have each field at one place, and that a call passes a copy."""
    same = [f"static_assert(offsetof({theirs}, {name}) == offsetof({ours}, {name}));" for name in names]
    return [
        f"static_assert(sizeof({theirs}) == sizeof({ours}));",
        f"static_assert(std::is_trivially_copy_constructible_v<{theirs}>);",
        f"static_assert(std::is_trivially_destructible_v<{theirs}>);",
        *same,
    ]


@pytest.fixture(scope="module")
def headers() -> tuple[str, str]:
    path = wheel_source.wheel()
    if isinstance(path, str):
        needs.missing(path)
    if shutil.which("g++") is None:
        needs.missing("g++ is not installed: AITER's interface is made of libstdc++'s types")
    with zipfile.ZipFile(path) as archive:
        return archive.read(HEADER).decode(), archive.read(STREAM).decode()


@pytest.mark.parametrize(
    ("struct", "layout", "count"),
    [
        ("fmha_fwd_args", "MhaFwd_0_1_7::Args", 52),
        ("fmha_batch_prefill_args", "MhaBatchPrefill_0_1_7::Args", 49),
    ],
)
def test_each_field_of_0_1_7_lies_where_its_header_says(
    struct: str, layout: str, count: int, headers: tuple[str, str], tmp_path: Path
) -> None:
    header, stream_header = headers
    text = struct_of(header, struct)
    names = fields(text)
    assert len(names) == count
    stream = struct_of(stream_header, "stream_config")
    both = zip(fields(stream), STREAM_FIELDS, strict=True)
    asserted = [
        *checks(struct, layout, names),
        *(f"static_assert(offsetof({THEIR_STREAM}, {a}) == offsetof(StreamConfig, {b}));" for a, b in both),
    ]
    program = tmp_path / "probe.cpp"
    program.write_text(PROGRAM.format(stream=stream, structs=text, checks="\n".join(asserted)))
    command = ["g++", "-std=c++20", "-fsyntax-only", "-Wno-invalid-offsetof", f"-I{LOADER}", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
