"""Placeholder of the instruction-level GPU emulator. It has no code yet and emulates nothing.

It exists so that the name, the place in the workspace and the `rocade[emulator]` extra are settled.
"""

from rocade_emulator._version import __version__

__all__ = ["__version__"]
