"""The version of rocade-arch-caps, in this one place."""

__version__ = "0.1.0.dev0"
