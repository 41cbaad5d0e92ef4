"""The calls that make AITER build a library, against AITER's own Python: signatures, and names of libraries.

The sources are those of the wheel that the emulator's tests fetch, and of an installed amd-aiter. Only their
decorator, which compiles, is replaced.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import typing
import zipfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests import needs
from tests.emulator import aiter as wheel_source

from rocade_kernels.aiter import recipes, search, versions
from rocade_kernels.aiter.names import DTYPES, V3, Family, VariantKey, module_name

FLAGS = (False, True)
WHEEL = "0.1.7.post2.dev18"
# Signatures of 0.1.20, as its documentation and sources give them; `=` marks what may be left out.
SIGNATURES = {
    Family.MHA_FWD: """
        q k v dropout_p softmax_scale is_causal window_size_left window_size_right sink_size
        return_softmax_lse return_dropout_randval cu_seqlens_q= cu_seqlens_kv= out= bias= alibi_slopes=
        q_descale= k_descale= v_descale= sink_ptr= gen=
        """,
    Family.MHA_VARLEN_FWD: """
        q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k min_seqlen_q dropout_p softmax_scale
        logits_soft_cap zero_tensors is_causal window_size_left window_size_right sink_size
        return_softmax_lse return_dropout_randval out= block_table= bias= alibi_slopes= q_descale=
        k_descale= v_descale= gen= cu_seqlens_q_padded= cu_seqlens_k_padded= sink_ptr=
        """,
    Family.FMHA_V3_FWD: """
        q k v dropout_p softmax_scale is_causal window_size_left window_size_right return_softmax_lse
        return_dropout_randval how_v3_bf16_cvt out= bias= alibi_slopes= q_descale= k_descale= v_descale= gen=
        """,
    Family.FMHA_V3_VARLEN_FWD: """
        q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k min_seqlen_q dropout_p softmax_scale
        logits_soft_cap zero_tensors is_causal window_size_left window_size_right return_softmax_lse
        return_dropout_randval how_v3_bf16_cvt out= block_table= bias= alibi_slopes= q_descale= k_descale=
        v_descale= gen= cu_seqlens_q_padded= cu_seqlens_k_padded=
        """,
    Family.MHA_BATCH_PREFILL: """
        q k v cu_seqlens_q kv_indptr kv_page_indices max_seqlen_q max_seqlen_k dropout_p= softmax_scale=
        logits_soft_cap= causal= window_size= alibi_slopes= deterministic= return_lse= return_attn_probs=
        out= kv_last_page_lens= block_table= seqlen_k= q_descale= k_descale= v_descale= kv_block_descale=
        sink_ptr= sink_size=
        """,
}


def keys() -> list[VariantKey]:
    """Every library there is."""
    return [
        VariantKey(family=family, dtype=dtype, needs_mask=mask, has_lse=lse, has_logits_cap=cap)
        for family, dtype, mask, lse, cap in product(Family, DTYPES, FLAGS, FLAGS, FLAGS)
        if not (cap and family in (Family.MHA_FWD, *V3)) and not (dtype == "fp16" and family in V3)
    ]


def sources() -> list[str]:
    """Names of the sources to test against."""
    return ["wheel", *(["installed"] if importlib.util.find_spec("aiter") else [])]


def text_of(source: str) -> tuple[str, str]:
    """Version of AITER, and its aiter/ops/mha.py."""
    if source == "installed":
        package, version = search.package_folder(), versions.distribution_version()
        assert package is not None
        assert version is not None
        return version, (package / "ops" / "mha.py").read_text()
    path = wheel_source.wheel()
    if isinstance(path, str):
        needs.missing(path)
    with zipfile.ZipFile(path) as archive:
        return WHEEL, archive.read("aiter/ops/mha.py").decode()


def module_of(text: str, built: list[str]) -> SimpleNamespace:
    """The module, whose functions note the library that they would load or build."""

    def compile_ops(
        name: str, fc_name: str = "", gen_func: Callable[..., dict[str, Any]] | None = None, **_: object
    ) -> Callable[[Any], Any]:
        def decorate(function: Any) -> Any:  # noqa: ANN401
            def call(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
                inspect.signature(function).bind(*args, **kwargs)
                built.append(gen_func(*args, **kwargs)["md_name"] if gen_func else name)
                return [torch.empty(1, 1)] * 4

            return call

        return decorate

    tree = ast.parse(text)
    tree.body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    tree.body = ast.parse("from __future__ import annotations").body + tree.body
    dtypes = SimpleNamespace(fp16=torch.float16, bf16=torch.bfloat16, fp8=torch.float8_e4m3fnuz)
    space = {
        "torch": torch,
        "Tensor": torch.Tensor,
        "Generator": torch.Generator,
        **{name: getattr(typing, name) for name in ("Any", "Optional", "Tuple", "List", "Union")},
        "AITER_CSRC_DIR": "",
        "CK_DIR": "",
        "dtypes": dtypes,
        "compile_ops": compile_ops,
        "get_gfx": lambda: "gfx942",
        "torch_compile_guard": lambda **_: lambda function: function,
    }
    exec(compile(tree, "mha.py", "exec"), space)
    return SimpleNamespace(**space)


def value(given: recipes.Value) -> object:
    """An argument, on the CPU."""
    if not isinstance(given, recipes.TensorSpec):
        return given
    dtype = getattr(torch, given.dtype)
    if given.values is None:
        return torch.zeros(given.shape, dtype=dtype, device="cpu")
    made = torch.tensor(given.values, dtype=dtype, device="cpu")
    assert made.shape == given.shape
    return made


@pytest.mark.parametrize("source", sources())
def test_a_recipe_builds_the_library_it_is_for(source: str) -> None:
    version, text = text_of(source)
    built: list[str] = []
    module = module_of(text, built)
    for key in keys():
        recipe = recipes.recipe(key, version)
        assert recipe.module == "aiter.ops.mha"
        getattr(module, recipe.function)(**{name: value(given) for name, given in recipe.kwargs.items()})
        assert built.pop() == module_name(key, version)
    assert not built


@pytest.mark.parametrize("source", sources())
def test_the_text_is_a_program_that_does_the_same(
    source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    version, text = text_of(source)
    built: list[str] = []
    module = module_of(text, built)
    for key in keys():
        recipe = recipes.recipe(key, version)
        program = recipe.as_text().replace('"cuda"', '"cpu"').replace("import torch, aiter.ops.mha\n", "")
        exec(program, {"torch": torch, "aiter": SimpleNamespace(ops=SimpleNamespace(mha=module))})
        assert built.pop() == module_name(key, version)
        assert recipe.as_text() in recipes.missing(key, version, [tmp_path]).replace("\n  ", "\n")


@pytest.mark.parametrize("version", ["0.1.10", "0.1.14", "0.1.20"])
def test_keywords_are_those_of_newer_versions(version: str) -> None:
    for key in keys():
        given = recipes.recipe(key, version).kwargs.keys()
        names = SIGNATURES[key.family].split()
        assert given <= {name.removesuffix("=") for name in names}
        assert given >= {name for name in names if not name.endswith("=")}


def test_pages_of_a_recipe() -> None:
    key = VariantKey(family=Family.MHA_BATCH_PREFILL, dtype="fp16", needs_mask=False, has_lse=False)

    def cache(version: str, page_size: int | None = None) -> tuple[tuple[int, ...], bool]:
        kwargs = recipes.recipe(key, version, page_size=page_size, head_dim=64).kwargs
        k = kwargs["k"]
        assert isinstance(k, recipes.TensorSpec)
        assert k.dtype == "float16"
        return k.shape, "kv_last_page_lens" in kwargs

    assert cache(WHEEL) == ((4, 2, 64), False)
    assert cache("0.1.10") == ((1, 128, 2, 64), True)
    assert cache("0.1.11") == ((1, 1024, 2, 64), True)
    assert cache("0.1.20") == ((1, 16, 2, 64), True)
    assert cache("0.1.20", 1024) == ((1, 1024, 2, 64), True)
    assert cache("0.1.20", 1) == ((4, 2, 64), False)


def test_data_goes_through_json() -> None:
    for key in keys():
        recipe = recipes.recipe(key, "0.1.20")
        data = json.loads(json.dumps(recipe.as_data()))
        assert (data["module"], data["function"]) == (recipe.module, recipe.function)
        for name, given in recipe.kwargs.items():
            if isinstance(given, recipes.TensorSpec):
                want = {"shape": list(given.shape), "dtype": given.dtype}
                want["values"] = None if given.values is None else list(given.values)
                assert data["kwargs"][name] == {"tensor": want}
            else:
                assert data["kwargs"][name] == (list(given) if isinstance(given, tuple) else given)
