"""The table and the JSON of a launch: findings, instruction mix, cycles, memory, occupancy and the bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rocade_emulator._bound import Bound, bound
from rocade_emulator._occupancy import Occupancy, occupancy
from rocade_emulator._result import Result, as_dict
from rocade_emulator._targets import CACHE_LINE, SIMDS

_RULE = "-" * 78


def _ratio(part: float, whole: float) -> str:
    return f"{part / whole:6.1%}" if whole else "     -"


def _head(result: Result) -> Iterator[str]:
    shape, counters = result.shape, result.counters
    yield f"{result.kernel.name} ({result.program}) on {result.target.name}"
    yield f"grid {shape.grid}, block {shape.block}: {counters.groups} workgroups, {counters.waves} waves"
    rate = counters.instructions / result.seconds / 1e6 if result.seconds else 0.0
    yield f"{counters.instructions:,} wave instructions in {result.seconds:.3f} s, {rate:.2f} million/s"


def _findings(result: Result) -> Iterator[str]:
    if result.stopped:
        yield f"stopped: {result.stopped}"
    yield f"{len(result.errors)} kinds of fault, {len(result.reports) - len(result.errors)} remarks"
    yield from (f"  {report}" for report in result.reports)


def _mix(result: Result) -> Iterator[str]:
    yield "instructions by unit          count   share   per wave"
    counters = result.counters
    waves = max(counters.waves, 1)
    for unit, count in counters.by_unit.items():
        if count:
            yield f"  {unit:18} {count:>14,}  {_ratio(count, counters.instructions)} {count / waves:>10,.1f}"


def _cycles(result: Result) -> Iterator[str]:
    c = result.counters
    waves, units = max(c.waves, 1), max(min(result.target.compute_units, c.groups), 1)
    yield "issue cycles (model)          total         per wave          per CU"
    rows = {
        "mfma": c.mfma_cycles,
        "valu": c.valu_cycles,
        "transcendental": c.trans_cycles,
        "salu": c.salu_cycles,
    }
    for name, cycles in rows.items():
        yield f"  {name:18} {cycles:>14,} {cycles / waves:>16,.1f} {cycles / SIMDS / units:>15,.1f}"
    yield f"  {'lds':18} {c.lds_cycles:>14,} {c.lds_cycles / waves:>16,.1f} {c.lds_cycles / units:>15,.1f}"
    extra = c.lds_cycles - c.lds_ideal_cycles
    yield f"  LDS bank conflicts (model): {extra:,} cycles beyond the ideal {c.lds_ideal_cycles:,}"


def _traffic(result: Result) -> Iterator[str]:
    c = result.counters
    yield f"global memory: {c.bytes_read:,} bytes read, {c.bytes_written:,} written"
    yield f"  arguments: {c.bytes_arguments:,} bytes through the scalar cache"
    coalesced = _ratio(c.cache_lines_ideal, c.cache_lines).strip()
    lines = f"{c.cache_lines:,} cache lines of {CACHE_LINE} bytes touched"
    yield f"  {lines}, {c.cache_lines_ideal:,} at best: coalescing {coalesced}"


def _resources(result: Result, fit: Occupancy) -> Iterator[str]:
    kernel = result.kernel
    split = f", AGPRs from {kernel.accum_offset}" if kernel.accum_offset else ""
    lds = kernel.lds_bytes + result.shape.dynamic_lds
    yield f"registers: {kernel.vgprs} vector{split}, {kernel.sgprs} scalar"
    yield f"memory: LDS {lds:,} bytes a workgroup, scratch {kernel.scratch_bytes:,} bytes a lane"
    yield (
        f"occupancy: {fit.groups_per_cu} workgroups a CU, {fit.waves_per_simd:g} waves a SIMD, "
        f"limited by {fit.limited_by}"
    )


def _bound_lines(limit: Bound) -> Iterator[str]:
    yield f"bound: {limit.text()}"
    rest = ", ".join(f"{name} {clocks:,.0f}" for name, clocks in limit.busy.items())
    yield f"  busy clocks of a CU: {rest}"


def table(result: Result) -> str:
    """All of it as text."""
    fit = occupancy(result.target, result.kernel, result.shape)
    parts = (
        _head(result),
        _findings(result),
        _mix(result),
        _cycles(result),
        _traffic(result),
        _resources(result, fit),
        _bound_lines(bound(result.target, result.counters)),
    )
    return f"\n{_RULE}\n".join("\n".join(part) for part in parts)


def data(result: Result) -> dict[str, Any]:
    """All of it for JSON."""
    fit = occupancy(result.target, result.kernel, result.shape)
    limit = bound(result.target, result.counters)
    kernel = result.kernel
    return {
        "program": result.program,
        "target": result.target.name,
        "kernel": kernel.name,
        "grid": result.shape.grid,
        "block": result.shape.block,
        "settings": result.settings,
        "stopped": result.stopped,
        "ok": result.ok,
        "seconds": result.seconds,
        "reports": [as_dict(report) for report in result.reports],
        "counters": asdict(result.counters),
        "resources": {
            "vector_registers": kernel.vgprs,
            "accum_offset": kernel.accum_offset,
            "scalar_registers": kernel.sgprs,
            "lds_bytes": kernel.lds_bytes + result.shape.dynamic_lds,
            "scratch_bytes": kernel.scratch_bytes,
        },
        "occupancy": {
            "waves_per_group": fit.waves_per_group,
            "groups_per_cu": fit.groups_per_cu,
            "waves_per_simd": fit.waves_per_simd,
            "limits": fit.limits,
            "limited_by": fit.limited_by,
        },
        "bound": {
            "unit": limit.unit,
            "clocks": limit.clocks,
            "busy": limit.busy,
            "matrix_share": limit.matrix_share,
            "matrix_share_serial": limit.matrix_share_serial,
        },
    }
