"""rocade's kernels: sources, their builder, and what loads and calls them. Standard library only."""

from rocade_kernels._settings import cache_dir

__all__ = ["cache_dir"]
