"""The assembled table: complete, consistent, and not to be changed at run time."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import pytest

import arch_caps
from arch_caps import (
    DEFECTS,
    FAMILIES,
    ROWS,
    TARGETS,
    Feature,
    Level,
    Op,
    Request,
    Status,
    members,
    preference,
)
from arch_caps._row import Accepts
from arch_caps._table import _by_row, _index
from arch_caps._types import EvidenceKind

AXES = {field.name for field in fields(Accepts)}
BACKENDS = {backend for _, backend in ROWS}


def test_mappings_are_read_only() -> None:
    for mapping in (ROWS, TARGETS, DEFECTS):
        with pytest.raises(TypeError):
            mapping["x"] = None  # type: ignore[index]


@pytest.mark.parametrize(
    "item", [*ROWS.values(), *TARGETS.values()], ids=lambda i: getattr(i, "name", str(i.__class__))
)
def test_entries_are_frozen(item: object) -> None:
    name = fields(item)[0].name  # type: ignore[arg-type]
    with pytest.raises(FrozenInstanceError):
        setattr(item, name, None)


@pytest.mark.parametrize("op", Op)
def test_every_operation_has_a_row_of_torch_cpu_and_hip(op: Op) -> None:
    assert {"torch", "cpu", "hip"} <= {backend for row_op, backend in ROWS if row_op is op}


def test_keys_agree_with_rows() -> None:
    assert all(key == (row.op, row.backend) for key, row in ROWS.items())


def test_a_repeated_key_is_refused() -> None:
    row = next(iter(ROWS.values()))
    with pytest.raises(ValueError, match="two rows"):
        _index((row, row))


def test_a_repeated_defect_is_refused() -> None:
    defect = next(iter(DEFECTS.values()))[0]
    with pytest.raises(ValueError, match="recorded twice"):
        _by_row((defect, defect))


def test_axes_are_fields_of_a_request() -> None:
    assert {field.name for field in fields(Request)} | {"group_size"} >= AXES


def test_every_field_of_a_request_is_an_axis_or_cannot_refuse() -> None:
    never_refuse = {
        "op",
        "num_kv_heads",
        "sm_scale",
        "rope_scale",
        "rope_theta",
        "max_qo_len",
    }
    assert {field.name for field in fields(Request)} - AXES == never_refuse


def test_rows_name_known_targets() -> None:
    for row in ROWS.values():
        named = getattr(row.targets, "values", ())
        assert set(named) <= set(TARGETS)


def test_torch_serves_a_device_that_the_table_does_not_know() -> None:
    assert ROWS[Op.CASCADE, "torch"].targets.holds("xpu", None)


def test_every_row_is_built() -> None:
    assert {row.status for row in ROWS.values()} == {Status.BUILT}


def test_needs_name_fields() -> None:
    names = {field.name for field in fields(Request)}
    assert all(need.field in names for row in ROWS.values() for need in row.needs)


@pytest.mark.parametrize("target", TARGETS)
def test_every_feature_has_a_level(target: str) -> None:
    for feature in Feature:
        assert isinstance(TARGETS[target].level(feature), Level)


@pytest.mark.parametrize("target", TARGETS)
def test_preference_ends_with_torch_and_names_backends(target: str) -> None:
    order = preference(target)
    assert order[-1] == "torch"
    assert set(order) <= BACKENDS
    assert len(set(order)) == len(order)


@pytest.mark.parametrize(
    ("target", "order"),
    [
        ("cpu", ("cpu", "torch")),
        ("cpu-generic", ("cpu", "torch")),
        ("gfx942:sramecc+:xnack-", ("hip", "aiter_asm", "aiter_ck", "torch")),
        ("gfx90a", ("hip", "aiter_asm", "aiter_ck", "torch")),
        ("sm_90a", ("hip", "torch")),
        ("xpu", ("torch",)),
    ],
)
def test_preference(target: str, order: tuple[str, ...]) -> None:
    assert preference(target) == order


def test_a_family_stands_for_backends_in_the_order_of_preference() -> None:
    assert members("aiter") == ("aiter_asm", "aiter_ck")
    assert members("hip") == ("hip",)
    assert members("no such backend") == ("no such backend",)
    order = preference("gfx942")
    for name, parts in FAMILIES.items():
        assert name not in BACKENDS
        assert set(parts) <= BACKENDS
        assert list(parts) == sorted(parts, key=order.index)


def test_row_of_nothing_is_none() -> None:
    assert arch_caps.row(Op.CASCADE, "no such backend") is None
    assert arch_caps.row(Op.CASCADE, "torch") is ROWS[Op.CASCADE, "torch"]


def test_a_row_refuses_bad_fields_all_at_once() -> None:
    row = ROWS[Op.CASCADE, "torch"]
    with pytest.raises(ValueError, match=r"entry .* targets .* note"):
        replace(row, entry="no colon", targets="any", note="a|b")


def test_accepts_refuses_what_is_no_predicate() -> None:
    with pytest.raises(TypeError, match="mask, graph"):
        replace(ROWS[Op.CASCADE, "torch"].accepts, mask=True, graph=lambda request: True)


def test_evidence_kinds_are_ordered_weakest_first() -> None:
    assert list(EvidenceKind) == [EvidenceKind.COMPILED, EvidenceKind.EMULATED, EvidenceKind.HARDWARE]


def test_public_names() -> None:
    public = {name for name in vars(arch_caps) if not name.startswith("_")}
    modules = {"code_objects", "defects", "rows", "targets", "export"}
    assert public - modules == set(arch_caps.__all__)
