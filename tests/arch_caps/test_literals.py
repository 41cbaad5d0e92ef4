"""The table is data: targets, rows and defects may not compute anything."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.arch_caps.helpers import SOURCES

CONSTRUCTORS = {
    "Accepts",
    "CodeObject",
    "Defect",
    "Fact",
    "Has",
    "Kernel",
    "Matrix",
    "Need",
    "OneOf",
    "AllOf",
    "AnyOf",
    "Range",
    "Row",
}
CONSTRUCTORS |= {"Product", "SameAs", "Sku", "Target", "Window", "replace"}


def files(folder: str) -> list[Path]:
    return [path for path in sorted((SOURCES / folder).glob("*.py")) if path.name != "__init__.py"]


def wrong_nodes(tree: ast.Module) -> list[str]:
    """What is neither an import nor an assignment of literals, names, enum members and constructor calls."""
    found = []
    for statement in tree.body[1:]:
        if isinstance(statement, ast.ImportFrom):
            continue
        if not isinstance(statement, ast.Assign):
            found.append(ast.unparse(statement))
            continue
        for node in ast.walk(statement.value):
            allowed = (ast.Constant, ast.Tuple, ast.Name, ast.Load, ast.keyword, ast.Attribute, ast.Call)
            calls = isinstance(node, ast.Call) and not (
                isinstance(node.func, ast.Name) and node.func.id in CONSTRUCTORS
            )
            sign = isinstance(node, ast.USub) or (
                isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
            )
            if not (isinstance(node, allowed) or sign) or calls:
                found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize(
    "path", [p for f in ("targets", "rows", "defects", "code_objects") for p in files(f)], ids=str
)
def test_only_literals(path: Path) -> None:
    assert wrong_nodes(ast.parse(path.read_text())) == []


@pytest.mark.parametrize("path", files("targets"), ids=lambda p: p.stem)
def test_one_target_a_file(path: Path) -> None:
    assigned = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Assign)]
    assert [ast.unparse(node.targets[0]) for node in assigned] == ["TARGET"]
    assert isinstance(assigned[0].value, ast.Call)


@pytest.mark.parametrize(
    "code",
    [
        "A = 64 * 1024",
        "A = tuple(x for x in (1, 2))",
        "A = [1]",
        "A = sorted((1,))",
        "def f(): pass",
        "if True:\n    A = 1",
        "A = -f(1)",
        "A = -B",
        "A = lambda: 1",
        "A = Row.make(1)",
    ],
)
def test_the_rule_refuses_code(code: str) -> None:
    assert wrong_nodes(ast.parse(f'"""Doc."""\n{code}'))
