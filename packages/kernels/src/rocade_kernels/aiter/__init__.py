"""AITER's attention libraries: how each is named, where it is, whether it may be loaded, how it is called.

Nothing here imports torch or aiter: callers give addresses, sizes and a stream.
"""
