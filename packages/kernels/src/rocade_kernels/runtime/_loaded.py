"""The functions that are loaded on one device, by kernel. Loading happens once, whatever the threads do."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rocade_kernels.runtime._interface import Function, Image, Named, Runtime


class Loaded:
    """Kernel to function, for one runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._functions: dict[Named, Function] = {}
        self._lock = threading.Lock()

    def get(self, instance: Named) -> Function | None:
        """The function if it is loaded; what happens under graph capture may only ask this."""
        return self._functions.get(instance)

    def load(self, instance: Named, code: Callable[[], Image]) -> Function:
        """The function; if it is not there, what `code()` returns is loaded now.

        Raises:
            DeviceError: the driver refused the code.
        """
        with self._lock:
            found = self._functions.get(instance)
            if found is None:
                found = self.runtime.load(code())
                self._functions[instance] = found
            return found
