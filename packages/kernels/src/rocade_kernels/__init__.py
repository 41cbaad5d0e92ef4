"""rocade's kernels: sources, their builder, and what loads and calls them. Standard library only."""
