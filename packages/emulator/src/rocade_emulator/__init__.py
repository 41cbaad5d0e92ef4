"""Runs machine code of AMD Instinct GPUs (gfx942, gfx950) on a CPU, and finds what a GPU hides.

A functional model: it computes what the instructions compute and checks how they are used (missing waits, LDS
races, accesses out of bounds, uninitialised data). It knows no time: no latency, no caches, no clocks.
"""

from rocade_emulator._assembler import AssemblyError
from rocade_emulator._build import BuildError
from rocade_emulator._kernarg import ArgumentError
from rocade_emulator._launch import SCHEDULES, launch
from rocade_emulator._metadata import Argument, Kernel
from rocade_emulator._program import Instruction, Program, ProgramError
from rocade_emulator._result import CHECKS, Counters, EmulationError, Report, Result
from rocade_emulator._sparse import SparseBuffer
from rocade_emulator._targets import BY_NAME as TARGETS
from rocade_emulator._version import __version__
from rocade_emulator._views import ReadOnly, Undefined

__all__ = [
    "CHECKS",
    "SCHEDULES",
    "TARGETS",
    "Argument",
    "ArgumentError",
    "AssemblyError",
    "BuildError",
    "Counters",
    "EmulationError",
    "Instruction",
    "Kernel",
    "Program",
    "ProgramError",
    "ReadOnly",
    "Report",
    "Result",
    "SparseBuffer",
    "Undefined",
    "__version__",
    "launch",
]
