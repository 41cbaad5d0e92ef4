"""AITER's attention libraries: how each is named, where it is, whether it may be loaded, how it is called."""
