"""The runtime whose device is the emulator: tensors lie in host memory; a launch ends before it returns."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

from arch_caps import TARGETS
from rocade._emulation import Emulation
from rocade_kernels.runtime import Arguments, DeviceFacts, Image


@functools.cache
def _emulator() -> Any:  # noqa: ANN401  an optional package, and no part of what evidence for a GPU rests on
    return importlib.import_module("rocade_emulator")


@functools.lru_cache(maxsize=512)
def _program(image: bytes, target: str, name: str) -> Any:  # noqa: ANN401  a rocade_emulator.Program
    return _emulator().Program.from_bytes(image, target, name=name)


class EmulatedFunction:
    """One kernel under one emulation."""

    def __init__(self, emulation: Emulation, program: Any, name: str, entry: str) -> None:  # noqa: ANN401
        self.name = name
        self._emulation = emulation
        self._program = program
        self._entry = entry

    def launch(
        self,
        grid: tuple[int, int, int],
        block: int,
        lds: int,
        stream: int,
        args: Arguments,
        reads: Sequence[object] = (),
        writes: Sequence[object] = (),
        early: bool = False,  # no matter: one launch ends before the next begins
    ) -> None:
        """See `Function.launch`. The kernel has the elements of `reads` and `writes`, and no other memory.

        It may read what is only in `writes` after it wrote it, not before.

        Raises:
            EmulationError: the run stopped early or, unless the emulation keeps findings, has one.
        """
        emulator, emulation = _emulator(), self._emulation
        buffers = [*map(emulator.ReadOnly, reads), *map(emulator.Undefined, writes)]
        try:
            result = emulator.launch(
                self._program,
                self._entry,
                grid,
                block,
                bytes(args),
                buffers=buffers,
                dynamic_lds=lds,
                **emulation.settings,
            )
        except emulator.EmulationError as error:
            emulation.results.append(error.result)
            raise
        emulation.results.append(result)
        if emulation.raises:
            result.check()


class EmulatedRuntime:
    """The GPU that an emulation stands for."""

    def __init__(self, emulation: Emulation) -> None:
        self.target = emulation.target
        self._emulation = emulation

    def load(self, code: Image) -> EmulatedFunction:
        """Decode a code object; one that other emulations of this process run is decoded once."""
        instance = code.instance
        program = _program(code.image, self.target, instance.name)
        return EmulatedFunction(self._emulation, program, instance.name, instance.entry)

    def facts(self) -> DeviceFacts:
        """The table's, for the largest product with this silicon, so that its launch geometry is tested."""
        table = TARGETS[self.target]
        units = max(sku.compute_units or 1 for sku in table.skus)
        assert table.wave_size.value is not None
        assert table.lds_bytes.value is not None
        return DeviceFacts(
            name=f"emulated {table.title}",
            compute_units=units,
            wave_size=table.wave_size.value,
            lds_bytes=table.lds_bytes.value,
            driver="rocade_emulator",
        )
