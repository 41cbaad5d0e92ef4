"""Prebuilt kernels of other projects that were executed, one file per project."""
