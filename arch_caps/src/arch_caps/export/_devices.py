"""The facts of GPUs that the kernels' builder needs, as a module of a package that has no arch_caps."""

from __future__ import annotations

from collections.abc import Mapping

from arch_caps._target import Fact, Target, Vendor

PROLOGUE = """\
from rocade_kernels.devices import Device

"""


def device_list(targets: Mapping[str, Target]) -> str:
    """The module's text, below its docstring; `ValueError` when a GPU lacks one of the facts."""
    lines = [_definition(target) for target in targets.values() if target.vendor is not Vendor.CPU]
    return f"{PROLOGUE}DEVICES: dict[str, Device] = {{\n{''.join(lines)}}}\n"


def _definition(target: Target) -> str:
    numbers = {
        "wave_size": target.wave_size,
        "simds": target.simds,
        "lds_bytes": target.lds_bytes,
        "vector_registers": target.vector_registers,
        "vector_granule": target.vector_granule,
        "waves_per_simd": target.waves_per_simd,
    }
    listed = "".join(f"        {name}={_known(target, name, fact)},\n" for name, fact in numbers.items())
    return f'    "{target.name}": Device(\n{listed}    ),\n'


def _known(target: Target, name: str, fact: Fact[int]) -> int:
    if fact.value is None:
        raise ValueError(f"target {target.name}: {name} is not known")
    return fact.value
