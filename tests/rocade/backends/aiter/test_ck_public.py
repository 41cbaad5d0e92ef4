"""From the public API to AITER's C++ functions: the library's file, every field, and the results.

The libraries are stubs with AITER's own types, one a variant. They write down what they get, and compute from
it on the CPU; a call that a file's name rules out has no kernel there, as in AITER.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest
import torch
from tests.kernels.aiter.call_cases import Case, expected
from tests.kernels.aiter.stub import VERSIONS, Stub, install
from tests.rocade.backends.aiter import public_calls
from tests.rocade.backends.aiter.model import ints, on_gpu
from tests.rocade.backends.aiter.public_calls import WINDOWS, Flags, Made

from rocade.backends.aiter.bootstrap import Outcome, Verdict, _check, _variants
from rocade_kernels.aiter.errors import CallError, NoKernelError
from rocade_kernels.aiter.names import DTYPES, Family, VariantKey

FAMILIES = (Family.MHA_FWD, Family.MHA_VARLEN_FWD, Family.MHA_BATCH_PREFILL)
# Addresses that are of memory of the plan's or the run's; `Made.arrays` says what some hold.
OWN = ("lse_ptr", "seqstart_q_ptr", "seqstart_k_ptr", "kv_indptr", "kv_page_indices", "kv_last_page_lens")


@pytest.fixture(scope="module", params=VERSIONS)
def stubs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stub]:
    """Every library of one version, by file name."""
    version: str = request.param
    folder = tmp_path_factory.mktemp(f"aiter-{version}")
    made = {}
    for family, dtype, masked, lse, capped in product(FAMILIES, DTYPES, *[(False, True)] * 3):
        if family is Family.MHA_FWD and capped:
            continue
        key = VariantKey(family=family, dtype=dtype, needs_mask=masked, has_lse=lse, has_logits_cap=capped)
        path = install(folder, key, version)
        made[path.name] = Stub(path)
        made[path.name].compute()
    made["version"], made["folder"] = version, folder  # type: ignore[assignment]
    return made


@pytest.fixture
def libraries(stubs: dict[str, Stub], monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Stub]]:
    """The stubs where they will be found, on a GPU, and taken to be right without a check."""
    version, folder = stubs["version"], stubs["folder"]
    on_gpu(monkeypatch, "gfx942", str(version))
    monkeypatch.setenv("AITER_JIT_DIR", str(folder))
    monkeypatch.setenv("ROCADE_ALLOW_KNOWN_BAD", "all")
    monkeypatch.setattr(_check, "verdict", lambda store, path, *_: _right(path))
    _variants.forget()
    yield {name: stub for name, stub in stubs.items() if isinstance(stub, Stub)}
    _variants.forget()


def _right(path: Path) -> Verdict:
    facts = dict.fromkeys(("sha256", "target", "detail", "toolchain", "when"), "")
    return Verdict(library=path.name, head_dim=64, page_size=0, outcome=Outcome.RIGHT, **facts)


def file_name(family: Family, flags: Flags, window: int, version: str) -> str:
    """AITER's name of the library, written out once more."""
    masked = "mask" if flags.causal or window >= 0 else "nmask"
    lse, logits = "lse" if flags.lse else "nlse", "logits" if flags.capped else "nlogits"
    qscale = "" if version.startswith("0.1.7") else "_nqscale"
    if family is Family.MHA_FWD:
        return f"mha_fwd_{flags.dtype}_nbias_{masked}_{lse}_ndropout{qscale}.so"
    if family is Family.MHA_VARLEN_FWD:
        return f"mha_varlen_fwd_{flags.dtype}_{logits}_nbias_{masked}_{lse}_ndropout_nskip{qscale}.so"
    sink = "_nsink" if version in ("0.1.14", "0.1.20") else ""
    return f"mha_batch_prefill_{flags.dtype}_{logits}_nbias_{masked}_{lse}_ndropout{qscale}{sink}.so"


def check(
    libraries: dict[str, Stub], version: str, flags: Flags, page_size: int, call: Callable[[], Made]
) -> None:
    """One call: one library was called once, with these fields, and the results are right."""
    before = {name: stub.calls for name, stub in libraries.items()}
    made = call()
    called = {name: stub.calls - before[name] for name, stub in libraries.items()}
    name = file_name(made.family, flags, made.window, version)
    assert {n: count for n, count in called.items() if count} == {name: 1}
    _check_fields(libraries[name].last, made, flags, page_size, version)

    out, lse = made.out.double(), made.lse
    tolerance = {"fp16": 2e-3, "bf16": 1.5e-2}[flags.dtype]
    torch.testing.assert_close(out, made.expected_out, atol=tolerance, rtol=tolerance)
    assert (lse is None) is not flags.lse
    if lse is not None:
        torch.testing.assert_close(lse.double(), made.expected_lse, atol=1e-4, rtol=1e-5)


def _check_fields(got: dict[str, str], made: Made, flags: Flags, page_size: int, version: str) -> None:
    case = Case(flags.dtype, flags.causal, made.window, flags.capped, flags.lse, page_size)
    wanted = expected(made.family, case, version) | made.fields
    wanted |= {"batch_stride_lse": 0, "nhead_stride_lse": made.out.shape[0] if flags.lse else 0}
    addresses = {address: int(got[address]) for address in (*OWN, *made.copied) if address in got}
    for address, value in addresses.items():
        assert (value != 0) is (wanted.pop(address) != 0), address
    for address, numbers in made.arrays.items():
        assert ints(addresses[address], len(numbers)) == numbers, address
    rest = {field: value for field, value in got.items() if field not in addresses}
    assert rest.keys() == wanted.keys()
    shown = {field: str(value) for field, value in wanted.items()}
    assert rest == shown


def grid(dtype: str, *, causal: bool) -> list[Flags]:
    """The points of one dtype; decode has no causal."""
    both = (False, True)
    return [Flags(dtype, *rest) for rest in product(both if causal else (False,), WINDOWS, both, both)]


DENSE = {
    "single_prefill": public_calls.single_prefill,
    "single_decode": public_calls.single_decode,
    "ragged": public_calls.ragged,
}
PAGED = {"paged_prefill": public_calls.paged_prefill, "paged_decode": public_calls.paged_decode}
IN_PLACE = {("0.1.10", 1024), ("0.1.14", 1024), ("0.1.20", 1024)}

pytestmark = pytest.mark.filterwarnings("ignore::arch_caps.KnownBadWarning")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("entry", DENSE)
def test_dense(entry: str, dtype: str, libraries: dict[str, Stub], stubs: dict[str, Stub]) -> None:
    version = str(stubs["version"])
    for flags in grid(dtype, causal=entry != "single_decode"):
        check(libraries, version, flags, 0, lambda flags=flags: DENSE[entry](flags))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("page_size", [16, 1024])
@pytest.mark.parametrize("entry", PAGED)
def test_paged(
    entry: str, page_size: int, dtype: str, libraries: dict[str, Stub], stubs: dict[str, Stub]
) -> None:
    version = str(stubs["version"])
    in_place = (version, page_size) in IN_PLACE
    for flags in grid(dtype, causal=entry == "paged_prefill"):
        check(
            libraries, version, flags, page_size, lambda flags=flags: PAGED[entry](flags, page_size, in_place)
        )


def test_a_negative_answer_or_an_exception_is_an_error(libraries: dict[str, Stub]) -> None:
    for stub in libraries.values():
        stub.answer(-1.0)
    flags = Flags("bf16", False, 31, False, True)
    with pytest.raises(NoKernelError):
        public_calls.single_prefill(flags)
    for stub in libraries.values():
        stub.answer(0.0)
        stub.throw(1)
    with pytest.raises(CallError, match="told to throw"):
        public_calls.single_prefill(flags)
    for stub in libraries.values():
        stub.throw(0)
