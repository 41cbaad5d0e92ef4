"""K and V as the caller keeps them, to NHD views: one 5-D cache or a (K, V) pair, NHD or HND, any strides.

Letters: N pages, S page size, n dense rows, Hkv heads, D head dims. Nothing is copied here.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from arch_caps import Layout, Request
from rocade._dtypes import torch_dtype
from rocade._errors import invalid
from rocade._plan import KV

PagedCache = torch.Tensor | tuple[torch.Tensor, torch.Tensor]

_LAYOUTS = {layout.value: layout for layout in Layout}


def kv_layout(value: object, name: str = "kv_layout") -> Layout:
    """The `Layout` called "NHD" or "HND"."""
    layout = _LAYOUTS.get(value) if isinstance(value, str) else None
    if layout is None:
        raise invalid(name, repr(value), "'NHD' or 'HND'")
    return layout


def flat(cache: PagedCache | Sequence[torch.Tensor], name: str = "paged_kv_cache") -> Sequence[torch.Tensor]:
    """A paged cache as one or two tensors, as operators take it."""
    if isinstance(cache, torch.Tensor):
        return (cache,)
    return _pair(cache, name)


def paged(cache: PagedCache | Sequence[torch.Tensor], layout: Layout, name: str = "paged_kv_cache") -> KV:
    """NHD views `[N, S, Hkv, D]` of a paged cache: one 5-D tensor with K and V in dim 1, or a (K, V) pair."""
    if isinstance(cache, torch.Tensor):
        if cache.dim() != 5 or cache.shape[1] != 2:
            order = "page_size, num_kv_heads" if layout is Layout.NHD else "num_kv_heads, page_size"
            raise invalid(name, _shape(cache), f"[pages, 2, {order}, head_dim] or a (K, V) tuple")
        k, v = cache.unbind(1)
    else:
        k, v = _pair(cache, name)
        if k.dim() != 4 or v.dim() != 4:
            raise invalid(name, f"{_shape(k)} and {_shape(v)}", "4-D K and V caches")
    return KV(k, v) if layout is Layout.NHD else KV(k.transpose(1, 2), v.transpose(1, 2))


def dense(k: torch.Tensor, v: torch.Tensor, layout: Layout, names: tuple[str, str] = ("k", "v")) -> KV:
    """NHD views `[n, Hkv, D]` of dense K and V."""
    _check_dense_shape(names[0], k, layout)
    _check_dense_shape(names[1], v, layout)
    return KV(k, v) if layout is Layout.NHD else KV(k.transpose(0, 1), v.transpose(0, 1))


def check_paged(kv: KV, request: Request, max_page: int, device: torch.device, name: str) -> None:
    """Check NHD page pools against the plan; `max_page` is the largest page id that will be read."""
    pages = kv.k.shape[0]
    heads, size = request.num_kv_heads, request.page_size
    _check(kv.k, (pages, size, heads, request.head_dim_qk), request, device, f"{name} (K)")
    _check(kv.v, (pages, size, heads, request.head_dim_vo), request, device, f"{name} (V)")
    if max_page >= pages:
        raise invalid(
            name, f"{pages} pages", f"at least {max_page + 1}: the planned page indices go up to {max_page}"
        )


def check_dense(
    kv: KV, request: Request, rows: int, device: torch.device, names: tuple[str, str] = ("k", "v")
) -> None:
    """Check dense NHD K and V against the plan, which reads `rows` of them."""
    n = kv.k.shape[0]
    _check(kv.k, (n, request.num_kv_heads, request.head_dim_qk), request, device, names[0])
    _check(kv.v, (n, request.num_kv_heads, request.head_dim_vo), request, device, names[1])
    if n < rows:
        raise invalid(names[0], f"{n} rows", f"at least {rows}, as planned")


def check_rows_contiguous(name: str, tensor: torch.Tensor) -> None:
    """Refuse a tensor whose last dimension is strided; every other stride is free.

    Nor may its memory hold the negatives of its values, as that of `x.conj().imag` does: kernels read memory.
    """
    if tensor.stride(-1) != 1 and tensor.shape[-1] > 1:
        raise invalid(
            name, f"stride {tensor.stride(-1)} in the last dimension", "a contiguous last dimension"
        )
    if tensor.is_neg():
        raise invalid(name, "a lazily negated view", "a tensor of stored values, as .resolve_neg() makes")


def check_no_grad(name: str, tensor: torch.Tensor) -> None:
    """Refuse an input that wants a gradient: none would flow, and training would go wrong without a word."""
    if tensor.requires_grad and torch.is_grad_enabled():
        raise invalid(
            name, "a tensor that requires grad", "a call under torch.no_grad(): there is no backward"
        )


def check_writable(name: str, tensor: torch.Tensor) -> None:
    """Refuse a tensor to write into whose elements share memory, that wants a gradient, or is negated."""
    check_no_grad(name, tensor)
    if tensor.is_neg():
        raise invalid(name, "a lazily negated view", "a tensor of stored values, as .resolve_neg() makes")
    if not tensor.is_contiguous() and not _is_spread(tensor.shape, tensor.stride()):
        raise invalid(name, f"strides {list(tensor.stride())}", "memory of its own for every element")


@functools.lru_cache(maxsize=1024)
def _is_spread(shape: torch.Size, strides: tuple[int, ...]) -> bool:
    """Whether each dimension steps over all that smaller steps reach, as in any slice of a dense tensor."""
    reach = 0
    for step, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if step <= reach:
                return False
            reach += (size - 1) * step
    return True


def _check_dense_shape(name: str, tensor: object, layout: Layout) -> None:
    if not isinstance(tensor, torch.Tensor) or tensor.dim() != 3:
        order = "[n, heads, head_dim]" if layout is Layout.NHD else "[heads, n, head_dim]"
        raise invalid(name, _shape(tensor), f"a 3-D tensor {order}")


def _check(
    tensor: torch.Tensor, shape: tuple[int, ...], request: Request, device: torch.device, name: str
) -> None:
    """Shape (as NHD), dtype, device and last stride of one of K and V."""
    if tensor.shape != shape:
        raise invalid(name, f"NHD shape {_shape(tensor)}", f"NHD shape {list(shape)}")
    if tensor.dtype is not torch_dtype(request.kv_dtype):
        raise invalid(name, tensor.dtype, f"{torch_dtype(request.kv_dtype)}, the kv dtype of the plan")
    if tensor.device != device:
        raise invalid(name, f"device {tensor.device}", f"device {device}")
    check_rows_contiguous(name, tensor)
    check_no_grad(name, tensor)


def _pair(cache: object, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The two tensors of a (K, V) cache."""
    if not isinstance(cache, (tuple, list)) or len(cache) != 2:
        raise invalid(name, type(cache).__name__, "one 5-D tensor or a (K, V) tuple of 4-D tensors")
    k, v = cache
    if not isinstance(k, torch.Tensor) or not isinstance(v, torch.Tensor):
        raise invalid(name, f"({type(k).__name__}, {type(v).__name__})", "a (K, V) tuple of 4-D tensors")
    return k, v


def _shape(tensor: object) -> str:
    """A tensor's shape for a message, or the type of what is no tensor."""
    return str(list(tensor.shape)) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
