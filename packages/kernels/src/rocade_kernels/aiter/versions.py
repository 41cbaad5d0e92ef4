"""What is known of each AITER version: the C++ functions its libraries export, and how those are called.

AITER's structs carry no size and no version, so a wrong layout is silent. A version that is not listed here
is refused; `ROCADE_AITER_VERSION` names a listed one to treat it as.
"""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from rocade_kernels import _settings
from rocade_kernels._cache import LOG
from rocade_kernels.aiter.errors import UnknownVersionError

DISTRIBUTION = "amd-aiter"
_STREAM = "RKN7ck_tile13stream_configE"
_STRING = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"


class Entry(NamedTuple):
    """A C++ function of AITER: its exported symbol, and the name of its argument layout in the loader."""

    layout: str
    symbol: str


FWD_0_1_7 = Entry(
    "mha_fwd 0.1.7",
    f"_ZN5aiter7mha_fwdE13fmha_fwd_args{_STREAM}{_STRING}b9mask_enum9bias_enumbbiPKvSE_b",
)
_FWD = f"_ZN5aiter7mha_fwdENS_12mha_fwd_argsE{_STREAM}"
FWD_0_1_10 = Entry("mha_fwd 0.1.10", _FWD)
FWD_0_1_10_POST1 = Entry("mha_fwd 0.1.10.post1", _FWD)

_PREFILL = f"_ZN5aiter17mha_batch_prefillE23fmha_batch_prefill_args{_STREAM}{_STRING}b9mask_enum9bias_enumb"
PREFILL_0_1_7 = Entry("mha_batch_prefill 0.1.7", f"{_PREFILL}b")
PREFILL_0_1_10 = Entry("mha_batch_prefill 0.1.10", f"{_PREFILL}16quant_scale_enumb")
PREFILL_0_1_11 = Entry("mha_batch_prefill 0.1.11", f"{_PREFILL}16quant_scale_enumb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """AITER versions from `start` up to, not including, `end` and its pre-releases."""

    start: str
    end: str
    forward: Entry  # of mha_fwd, mha_varlen_fwd and the modules of hand-written kernels
    prefill: Entry | None  # of mha_batch_prefill; None: not established
    qscale_in_name: bool
    prefill_qscale_in_name: bool
    sink_in_name: bool  # of mha_batch_prefill
    sink_argument: bool  # mha_fwd and mha_varlen_fwd require sink_size
    page_sizes: tuple[int, ...]  # that mha_batch_prefill has kernels for; empty: not established

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"


KNOWN = (
    Known(
        start="0.1.7",
        end="0.1.8",
        forward=FWD_0_1_7,
        prefill=PREFILL_0_1_7,
        qscale_in_name=False,
        prefill_qscale_in_name=False,
        sink_in_name=False,
        sink_argument=False,
        page_sizes=(1,),
    ),
    Known(
        start="0.1.10",
        end="0.1.10.post1",
        forward=FWD_0_1_10,
        prefill=PREFILL_0_1_10,
        qscale_in_name=True,
        prefill_qscale_in_name=True,
        sink_in_name=False,
        sink_argument=True,
        page_sizes=(128, 256, 1024),
    ),
    Known(
        start="0.1.10.post1",
        end="0.1.11",
        forward=FWD_0_1_10_POST1,
        prefill=None,  # grew by two fields somewhere in between
        qscale_in_name=True,
        prefill_qscale_in_name=True,
        sink_in_name=False,
        sink_argument=True,
        page_sizes=(),
    ),
    Known(
        start="0.1.11",
        end="0.1.12",
        forward=FWD_0_1_10_POST1,
        prefill=PREFILL_0_1_11,
        qscale_in_name=True,
        prefill_qscale_in_name=True,
        sink_in_name=False,
        sink_argument=True,
        page_sizes=(),
    ),
    Known(
        start="0.1.12",
        end="0.1.14",
        forward=FWD_0_1_10_POST1,
        prefill=PREFILL_0_1_11,
        qscale_in_name=True,
        prefill_qscale_in_name=True,
        sink_in_name=False,
        sink_argument=True,
        page_sizes=(1, 16, 1024),
    ),
    Known(
        start="0.1.14",
        end="0.1.20.post2",
        forward=FWD_0_1_10_POST1,
        prefill=PREFILL_0_1_11,
        qscale_in_name=True,
        prefill_qscale_in_name=True,
        sink_in_name=True,
        sink_argument=True,
        page_sizes=(1, 16, 1024),
    ),
)

# Release numbers, then the stage: -1 before the release, 0 at it, 2 n + 2 at post-release n, 1 less before.
_Parsed: TypeAlias = tuple[tuple[int, ...], int]
_VERSION = re.compile(
    r"v?(\d+(?:\.\d+)*)[._-]?(?:post(\d*)([._-]?dev\d*)?|((?:dev|a|b|rc)\d*))?", re.IGNORECASE
)


def _parse(version: str) -> _Parsed | None:
    """What orders versions; a local suffix (`+rocm7.2`) is dropped."""
    match = _VERSION.match(version.strip())
    if match is None:
        return None
    numbers = tuple(int(part) for part in match[1].split("."))
    if match[4]:
        return numbers, -1
    if match[2] is None:
        return numbers, 0
    return numbers, 2 + 2 * int(match[2] or 0) - bool(match[3])


def known(version: str) -> Known | None:
    """What is known of a version; None when it is not listed, as a pre-release of a range's start is not."""
    parsed = _parse(version)
    if parsed is None:
        return None
    for entry in KNOWN:
        start, end = _parse(entry.start), _parse(entry.end)
        assert start is not None
        assert end is not None
        if start <= parsed < (end[0], end[1] - 1):
            return entry
    return None


def distribution_version() -> str | None:
    """Version of the AITER that is installed, without importing it; None where there is none."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None


def require(version: str) -> Known:
    """What is known of a version.

    Raises:
        UnknownVersionError: it is not listed. The text names the setting that overrides this.
    """
    found = known(version)
    if found is None:
        listed = ", ".join(map(str, KNOWN))
        raise UnknownVersionError(
            f"the argument layout of AITER {version} is not known, and a wrong one gives wrong numbers "
            f"without an error; known are {listed}. If it is the same as that of a known version, set "
            f"{_settings.AITER_VERSION.name} to that version"
        )
    return found


def version_in_use() -> str:
    """The version whose layouts and names are to be used: the override, else the installed one.

    Raises:
        UnknownVersionError: neither is there, or it is not listed.
    """
    installed, override = distribution_version(), _settings.AITER_VERSION.read()
    if override:
        require(override)
        if override != installed:
            name = _settings.AITER_VERSION.name
            LOG.warning("AITER %s is treated as version %s, as %s says", installed, override, name)
        return override
    if installed is None:
        raise UnknownVersionError(
            f"{DISTRIBUTION} is not installed; for libraries that were built elsewhere, "
            f"{_settings.AITER_VERSION.name} names the version they come from"
        )
    require(installed)
    return installed
