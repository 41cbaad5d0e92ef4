"""The version of rocade-kernels, in this one place."""

__version__ = "0.1.0.dev0"
