"""`rocade prebuild-aiter`: has AITER build the libraries that plans ask for, and checks each against fp64.

After it no plan with these features waits for a compiler. A library with LSE also serves runs without, so
only those are built.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

import torch

from rocade import _device, _settings
from rocade.backends.aiter.bootstrap import _variants
from rocade.backends.aiter.bootstrap._errors import BootstrapError
from rocade.backends.aiter.bootstrap._verdicts import Outcome
from rocade_kernels.aiter import names, versions
from rocade_kernels.aiter.errors import AiterError
from rocade_kernels.aiter.names import DTYPES, Family, VariantKey

FAMILIES = (Family.MHA_FWD, Family.MHA_VARLEN_FWD, Family.MHA_BATCH_PREFILL)
HEAD_DIMS = (128,)


def _parser() -> argparse.ArgumentParser:
    text, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="rocade prebuild-aiter",
        description=text.partition(": ")[2].capitalize().replace("aiter", "AITER"),
        epilog=f"{more.strip()} A build takes minutes; {_settings.AITER_BUILD_SECONDS.name} limits it.",
    )
    parser.add_argument("--list", action="store_true", help="only say what is there, and what is known of it")
    parser.add_argument(
        "--family", action="append", choices=list(map(str, FAMILIES)), help="only this; may be repeated"
    )
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="only this; may be repeated")
    parser.add_argument(
        "--mask", choices=("yes", "no"), help="only for causal or windowed attention, or for neither"
    )
    parser.add_argument("--soft-cap", action="store_true", help="with a soft cap, too")
    parser.add_argument(
        "--head-dim",
        action="append",
        type=int,
        metavar="N",
        help="head size to check a library with; may be repeated (128)",
    )
    parser.add_argument(
        "--page-size",
        action="append",
        type=int,
        metavar="N",
        help="page size to check mha_batch_prefill with; may be repeated (those that AITER's version has)",
    )
    parser.add_argument("--device", default="cuda:0", help="where they will run (cuda:0)")
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="compilers at once (AITER: by cores and memory)"
    )
    return parser


def keys(options: argparse.Namespace) -> Iterator[VariantKey]:
    """The libraries that the options ask for."""
    for family in map(Family, options.family or FAMILIES):
        for dtype in options.dtype or DTYPES:
            for mask in (True, False) if options.mask is None else (options.mask == "yes",):
                for cap in (False, True) if options.soft_cap and family is not Family.MHA_FWD else (False,):
                    yield VariantKey(
                        family=family, dtype=dtype, needs_mask=mask, has_lse=True, has_logits_cap=cap
                    )


def _questions(options: argparse.Namespace, version: str) -> Iterator[tuple[VariantKey, int, int]]:
    """Each library with each head size and page size."""
    pages = options.page_size or versions.require(version).page_sizes
    for key in keys(options):
        for head_dim in options.head_dim or HEAD_DIMS:
            for page_size in pages if key.family is Family.MHA_BATCH_PREFILL else (0,):
                yield key, head_dim, page_size


def main(argv: Sequence[str]) -> int:
    """Build and check, one library after the other; 1 when one could not be built or is wrong."""
    parser = _parser()
    options = parser.parse_args(argv)
    numbers = (options.jobs, *(options.head_dim or ()), *(options.page_size or ()))
    if any(number is not None and number < 1 for number in numbers):
        parser.error("--jobs, --head-dim and --page-size take numbers above 0")
    try:
        device = torch.device(options.device)
        target = _device.target(device)
    except (AssertionError, RuntimeError) as error:  # torch's, for a GPU that is not there
        print(
            f"rocade prebuild-aiter: no device {options.device} here ({error}); AITER's libraries are built, "
            "checked and listed on a machine with the GPU and PyTorch for ROCm",
            file=sys.stderr,
        )
        return 1
    try:
        version = versions.version_in_use()
    except AiterError as error:
        print(f"rocade prebuild-aiter: {error}", file=sys.stderr)
        return 1
    failed = 0
    for key, head_dim, page_size in _questions(options, version):
        right = True
        if options.list:
            state = _variants.state(key, target, head_dim=head_dim, page_size=page_size)
        else:
            state, right = _made(key, device, head_dim, page_size, options.jobs)
        pages = f", pages of {page_size}" if page_size else ""
        print(f"{names.module_name(key, version)}, head size {head_dim}{pages}: {state}", flush=True)
        failed += not right
    return 1 if failed else 0


def _made(
    key: VariantKey, device: torch.device, head_dim: int, page_size: int, jobs: int | None
) -> tuple[str, bool]:
    """What became of a library, and whether that is as it should be."""
    try:
        path = _variants.ensure(
            key, device, head_dim=head_dim, page_size=page_size, jobs=jobs, may_build=True
        )
    except AiterError as error:
        verdict = _variants.verdict(key, device, head_dim=head_dim, page_size=page_size)
        if isinstance(error, BootstrapError) and verdict is not None and verdict.outcome is Outcome.NO_KERNEL:
            return ("no kernel, so pages are gathered" if page_size else "no kernel"), True
        return str(error), False
    return f"right, {path}", True
