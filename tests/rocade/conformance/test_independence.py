"""The oracle stands alone: what it imports is torch, the standard library and itself."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from rocade.conformance import oracle, oracle_states

ALLOWED = {"torch"} | sys.stdlib_module_names


@pytest.mark.parametrize("module", [oracle, oracle_states])
def test_the_oracle_shares_no_code(module: object) -> None:
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    imported = {
        alias.name if isinstance(node, ast.Import) else node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert {name.partition(".")[0] for name in imported} <= ALLOWED
