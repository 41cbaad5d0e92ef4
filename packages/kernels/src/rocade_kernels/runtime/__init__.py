"""Device runtimes: load compiled kernels, launch them on a stream, and say what the device is.

`device(vendor, index, target)` is the one runtime of a GPU in this process. Nothing here imports torch: a
stream is the driver's handle as a number, and memory is addresses inside an argument block.
"""

from rocade_kernels.runtime._arguments import Arguments, Layout
from rocade_kernels.runtime._calls import Calls, Step, StepLayout
from rocade_kernels.runtime._devices import device, missing, relaxed
from rocade_kernels.runtime._function import DriverFunction
from rocade_kernels.runtime._interface import DeviceFacts, Function, Image, Named, Runtime
from rocade_kernels.runtime._library import DeviceError, Library
from rocade_kernels.runtime._loaded import Loaded
from rocade_kernels.runtime._packed import Launched
from rocade_kernels.runtime._replay import Place, Replay, replay

__all__ = [
    "Arguments",
    "Calls",
    "DeviceError",
    "DeviceFacts",
    "DriverFunction",
    "Function",
    "Image",
    "Launched",
    "Layout",
    "Library",
    "Loaded",
    "Named",
    "Place",
    "Replay",
    "Runtime",
    "Step",
    "StepLayout",
    "device",
    "missing",
    "relaxed",
    "replay",
]
