"""Where native code finds the function that reads this torch's tensors: DLPack's exchange table."""

from __future__ import annotations

import ctypes
import functools

import torch


class _Header(ctypes.Structure):
    """The table as far as it is used: a version, then addresses of functions."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from", ctypes.c_void_p),
        ("managed_to", ctypes.c_void_p),
        ("read", ctypes.c_void_p),
    ]


@functools.cache
def read_address() -> int:
    """Address of `dltensor_from_py_object_no_sync`; 0 where this torch has no table (before 2.10)."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return 0
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    header = _Header.from_address(pointer(capsule, b"dlpack_exchange_api"))
    return int(header.read or 0) if header.major == 1 else 0
