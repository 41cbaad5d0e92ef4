"""GPU kernels as code: found in the wheel or in the cache, or compiled on demand by a clang from anywhere."""

from __future__ import annotations

from rocade_kernels._cache import BuildError, CompilerMissingError
from rocade_kernels._instances import INSTANCES
from rocade_kernels.build._code_object import ImageError
from rocade_kernels.build._compile import compile_instance, toolchain_for
from rocade_kernels.build._many import build_all, write_shipped
from rocade_kernels.build._packed import Code
from rocade_kernels.build._resources import Resources
from rocade_kernels.build._store import Store
from rocade_kernels.build._toolchain import Toolchain
from rocade_kernels.instances import Instance

__all__ = [
    "INSTANCES",
    "BuildError",
    "Code",
    "CompilerMissingError",
    "ImageError",
    "Instance",
    "Resources",
    "Store",
    "Toolchain",
    "build_all",
    "code",
    "compile_instance",
    "toolchain_for",
    "write_shipped",
]


def code(instance: Instance) -> Code:
    """The code of an instance: shipped, else cached, else built now (0.3 to 3 s, one log line).

    Raises:
        BuildError: there is none and it cannot be built; the text names the instance and both ways to get it.
    """
    return Store().code(instance)
