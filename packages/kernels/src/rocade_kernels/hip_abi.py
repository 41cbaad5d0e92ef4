"""The argument structs of the HIP kernels: the one place that says what a kernel is given.

`scripts/generate` writes hip/args.hpp from these classes. Each kernel takes one struct by value. Strides are
in elements. Eight-byte fields come first, so that there is no padding between fields.

H is heads, D head dims, n result rows. A pack is 16 bytes of one head's values in the input.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from functools import cache
from struct import Struct

Field = tuple[str, type]


def _state(name: str) -> list[Field]:
    """A tensor of values `[rows, H, D]` and its fp32 lse `[rows, H]`, each with strides of row and head."""
    return [
        (f"v_{name}", c_void_p),
        (f"v_{name}_row", c_int64),
        (f"v_{name}_head", c_int64),
        (f"s_{name}", c_void_p),
        (f"s_{name}_row", c_int64),
        (f"s_{name}_head", c_int64),
    ]


# How threads find their place: a result row has `columns` packs, `packs` of them a head. A block takes
# `width` columns of `side_rows` rows; `blocks` blocks side by side have all columns. The magic numbers divide
# by blocks, packs and width: see hip_launch.Tiles and hip/cascade/place.hpp.
_TILES: list[Field] = [
    ("rows", c_int64),
    ("blocks_magic", c_uint64),
    ("blocks", c_uint32),
    ("columns", c_uint32),
    ("packs", c_uint32),
    ("packs_magic", c_uint32),
    ("width", c_uint32),
    ("width_magic", c_uint32),
    ("side_rows", c_uint32),
    ("form", c_uint32),  # of the tensors: hip_launch.DENSE, ALIGNED or UNALIGNED
]

# Where state j of result row i is: at `i * v_row + j * v_state`. Without `indptr` j is in 0:`fixed`; with it,
# int32 [n + 1], j is in indptr[i]:indptr[i + 1], cut to 0:`states`, and v_row is 0.
_LISTS: list[Field] = [
    ("v", c_void_p),
    ("v_row", c_int64),
    ("v_state", c_int64),
    ("v_head", c_int64),
]


class MergeStateArgs(Structure):
    """Merges states a and b row by row into out, which may be either of them.

    `mask` is null or one byte a row; rows where it is 0 are neither read nor written.
    """

    _fields_ = [
        *_state("a"),
        *_state("b"),
        *_state("out"),
        ("mask", c_void_p),
        *_TILES,
    ]


class MergeStateDenseArgs(Structure):
    """As MergeStateArgs, for tensors whose rows and heads follow each other without gaps, and no mask.

    A block takes `width` packs, which are whole heads; all tensors together have `total` packs each.
    """

    _fields_ = [
        ("v_a", c_void_p),
        ("s_a", c_void_p),
        ("v_b", c_void_p),
        ("s_b", c_void_p),
        ("v_out", c_void_p),
        ("s_out", c_void_p),
        ("total", c_uint32),
        ("packs", c_uint32),  # of a head
        ("packs_magic", c_uint32),
        ("width", c_uint32),
        ("crosses", c_uint32),  # 1: s_out is s_a or s_b, and a head may lie in several waves
        ("reserved", c_uint32),
    ]


class MergeStatesArgs(Structure):
    """Merges the states of each row, a fixed or a variable number of them. `s` and `s_out` are fp32."""

    _fields_ = [
        *_LISTS,
        ("s", c_void_p),
        ("s_row", c_int64),
        ("s_state", c_int64),
        ("s_head", c_int64),
        ("v_out", c_void_p),
        ("v_out_row", c_int64),
        ("v_out_head", c_int64),
        ("s_out", c_void_p),
        ("s_out_row", c_int64),
        ("s_out_head", c_int64),
        ("indptr", c_void_p),
        ("states", c_int64),
        *_TILES,
        ("fixed", c_uint32),
        ("slice_shift", c_uint32),  # 2 to this power parts of a block share the states of its rows
    ]


class AttentionSumArgs(Structure):
    """Adds up the values of each row, a fixed or a variable number of them, without weights."""

    _fields_ = [
        *_LISTS,
        ("v_out", c_void_p),
        ("v_out_row", c_int64),
        ("v_out_head", c_int64),
        ("indptr", c_void_p),
        ("states", c_int64),
        *_TILES,
        ("fixed", c_uint32),
        ("slice_shift", c_uint32),
    ]


def _tokens(name: str) -> list[Field]:
    """New tokens `[rows, H, D]` and the cache `[pages, page_size, H, D]` that they go to."""
    return [
        (name, c_void_p),
        (f"{name}_row", c_int64),
        (f"{name}_head", c_int64),
        (f"{name}_cache", c_void_p),
        (f"{name}_cache_page", c_int64),
        (f"{name}_cache_slot", c_int64),
        (f"{name}_cache_head", c_int64),
    ]


class AppendPagedKvCacheArgs(Structure):
    """Writes the keys and values of new tokens into a paged cache. Strides are in bytes here.

    A token is skipped when its batch index is outside 0:`batch`, its position is negative or beyond its
    request's pages, or its page is outside the pool. Blocks with y = 0 write keys, those with 1 values.
    """

    _fields_ = [
        *_tokens("key"),
        *_tokens("value"),
        ("batch_indices", c_void_p),  # int32 [rows]
        ("positions", c_void_p),  # int32 [rows]
        ("indices", c_void_p),  # int32 [num_indices]: pages of all requests
        ("indptr", c_void_p),  # int32 [batch + 1]
        ("num_indices", c_int64),
        ("page_magic", c_uint64),  # divides by page_size
        ("rows", c_int64),
        ("batch", c_uint32),
        ("pool", c_uint32),  # pages of the cache
        ("page_size", c_uint32),
        ("key_columns", c_uint32),  # units of a token's keys; `unit` bytes each
        ("key_columns_magic", c_uint32),  # 1, which makes every quotient 0, for one token a block
        ("key_units", c_uint32),  # units of one head's keys
        ("key_units_magic", c_uint32),
        ("value_columns", c_uint32),
        ("value_columns_magic", c_uint32),
        ("value_units", c_uint32),
        ("value_units_magic", c_uint32),
        ("rows_a_block", c_uint32),  # tokens
        ("unit", c_uint32),  # 16, 8, 4, 2 or 1 bytes: what everything is a multiple of
        ("reserved", c_uint32),
    ]


class AppendPagedKvCacheDenseArgs(Structure):
    """As AppendPagedKvCacheArgs, where tokens and slots have no gaps, alike for keys and values.

    A unit is 16 bytes; there are `total` units of keys, and as many of values.
    """

    _fields_ = [
        ("key", c_void_p),
        ("value", c_void_p),
        ("batch_indices", c_void_p),
        ("positions", c_void_p),
        ("indptr", c_void_p),
        ("indices", c_void_p),
        ("key_cache", c_void_p),
        ("value_cache", c_void_p),
        ("page_units", c_int64),  # from one page of a cache to its next
        ("num_indices", c_int64),
        ("page_magic", c_uint64),
        ("total", c_uint32),
        ("columns", c_uint32),  # units of a token
        ("columns_magic", c_uint32),
        ("batch", c_uint32),
        ("pool", c_uint32),
        ("page_size", c_uint32),
    ]


class AttentionItem(Structure):
    """A tile of query rows of one request, against a range of keys, for some KV heads in turn.

    Row r of the tile is token (row_begin + r) // group of those from q_begin on, and head
    (row_begin + r) % group of the group; there are q_len * group - row_begin rows, at most the kernel's. Keys
    are counted from the first of the request at its level; positions are global. See
    docs/pages/design/attention.md.
    """

    _fields_ = [
        ("mask_bit", c_int64),  # bit of the custom mask for the tile's first token and key 0
        ("kv_base", c_int64),  # dense: row of key 0 in k and v; paged: place of the first page in `pages`
        ("q_begin", c_int32),  # row of the tile's first token in q and out
        ("q_len", c_int32),  # tokens of the tile
        ("row_begin", c_int32),  # row_begin times group stays below 2^32
        ("kv_head", c_int32),  # the first of kv_heads
        ("kv_begin", c_int32),  # keys to attend to: [kv_begin, kv_end)
        ("kv_end", c_int32),
        ("q_position", c_int32),  # global position of the tile's first token
        ("kv_position", c_int32),  # global position of key 0
        ("flags", c_uint32),  # 1: causal; 2: positions of tokens are in `positions`
        (
            "state",
            c_int32,
        ),  # place of the first token among the partial states; negative: the result is final
        ("kv_heads", c_int32),  # 1 when the result is partial
        ("mask_step", c_int32),  # bits of the custom mask from a token to the next
    ]


class AttentionArgs(Structure):
    """Attention over a list of work items; block b takes the items from first_item[b] to first_item[b + 1].

    Tensors: q, out `[tokens, Hq, D]`; dense k, v by row and head; paged k, v by page, row and head; lse
    `[tokens, Hq]`, fp32, log2, or null; partial_out `[states, group, D]` and partial_lse `[states, group]`,
    fp32 and contiguous, of one KV head each; state_out, state_lse: a state of all rows that final results are
    merged with, or null. All addresses and strides but those of lse are multiples of 16 bytes.
    """

    _fields_ = [
        ("items", c_void_p),  # AttentionItem: item b is the first one of block b, or has no KV heads
        ("first_item", c_void_p),  # int32 [blocks + 1], in `items`: a block's others, up to the next block's
        ("q", c_void_p),
        ("k", c_void_p),
        ("v", c_void_p),
        ("out", c_void_p),
        ("lse", c_void_p),
        ("partial_out", c_void_p),
        ("partial_lse", c_void_p),
        ("state_out", c_void_p),
        ("state_lse", c_void_p),
        ("pages", c_void_p),  # int32 page numbers of all requests; for dense k and v, the number 0
        ("positions", c_void_p),  # int32, global position of each token, for items that ask for it
        (
            "mask",
            c_void_p,
        ),  # bits, little-endian: which keys each token sees, beside the other rules; null: all
        *((name, c_int64) for name in ("q_row", "q_head", "out_row", "out_head", "lse_row", "lse_head")),
        *((name, c_int64) for name in ("k_page", "k_row", "k_head", "v_page", "v_row", "v_head")),
        *((name, c_int64) for name in ("state_row", "state_head", "state_lse_row", "state_lse_head")),
        ("heads", c_uint32),  # query heads
        ("group", c_uint32),  # query heads of a KV head
        ("head_dim", c_uint32),  # a multiple of 8, at most the kernel's
        ("group_magic", c_uint32),  # divides by group; see hip/division.hpp
        ("page_size", c_uint32),  # 2^31: k and v are dense
        ("page_magic", c_uint32),  # divides by page_size
        ("num_pages", c_uint32),  # pages beyond are not read; 1 when dense
        ("window_left", c_int32),  # negative: none
        ("scale", ctypes.c_float),  # of the logits, natural
        ("soft_cap", ctypes.c_float),  # 0: none
        ("out_scale", ctypes.c_float),  # of the values
        ("reserved", c_uint32),
    ]


class MergeItem(Structure):
    """Rows whose partial states of one KV head are merged: state j of row i is `pieces[first + j] + i`."""

    _fields_ = [
        ("row", c_int32),  # the first, in out
        ("rows", c_int32),
        ("kv_head", c_int32),
        ("first", c_int32),
        ("count", c_int32),
        ("reserved", c_int32),
    ]


class MergePartialsArgs(Structure):
    """Merges the partial states of attention; blocks with x = b take item b, if there is one.

    Tensors: partial_out `[states, group, D]` and partial_lse `[states, group]`, fp32 and contiguous; out, lse
    and state_out, state_lse as in AttentionArgs, a state being one more of every row.
    """

    _fields_ = [
        ("merges", c_void_p),  # MergeItem
        ("pieces", c_void_p),  # int32
        ("count", c_void_p),  # int32: how many items there are
        *((name, c_void_p) for name in ("partial_out", "partial_lse", "out", "lse")),
        *((name, c_void_p) for name in ("state_out", "state_lse")),
        *((name, c_int64) for name in ("out_row", "out_head", "lse_row", "lse_head")),
        *((name, c_int64) for name in ("state_row", "state_head", "state_lse_row", "state_lse_head")),
        ("group", c_uint32),  # query heads of a KV head
        ("group_magic", c_uint32),  # divides by group; see hip/division.hpp
        ("packs", c_uint32),  # head_dim / 4
        ("packs_magic", c_uint32),
        ("slices", c_uint32),  # parts of a block that share the states of a row: a power of two
        ("parts", c_uint32),  # blocks that share an item: the grid's y
    ]


ARGS: tuple[type[Structure], ...] = (
    MergeStateArgs,
    MergeStateDenseArgs,
    MergeStatesArgs,
    AttentionSumArgs,
    AppendPagedKvCacheArgs,
    AttentionItem,
    AttentionArgs,
    MergeItem,
    MergePartialsArgs,
    AppendPagedKvCacheDenseArgs,
)

_C_TYPES = {
    c_void_p: "void*",
    c_int64: "i64",
    c_uint64: "u64",
    c_int32: "i32",
    c_uint32: "u32",
    ctypes.c_float: "float",
}
_FORMATS = {
    c_void_p: "Q",
    c_int64: "q",
    c_uint64: "Q",
    c_int32: "i",
    c_uint32: "I",
    ctypes.c_float: "f",
}


@cache
def packer(args: type[Structure]) -> Struct:
    """Packs the values of a struct's fields, in order, into its bytes: faster than filling the struct."""
    return Struct("<" + "".join(_FORMATS[field[1]] for field in args._fields_))


def _declaration(args: type[Structure]) -> str:
    name = args.__name__
    comment = [line.strip() for line in (args.__doc__ or "").strip().splitlines()]
    fields = [field[0] for field in args._fields_]
    offsets = [f"__builtin_offsetof({name}, {field}) == {getattr(args, field).offset}" for field in fields]
    return "\n".join(
        [
            *(f"/// {line}".rstrip() for line in comment),
            f"struct {name} {{",
            *(f"  {_C_TYPES[field[1]]} {field[0]};" for field in args._fields_),
            "};",
            f"static_assert(sizeof({name}) == {ctypes.sizeof(args)});",
            *(f"static_assert({offset});" for offset in offsets),
        ]
    )


def header() -> str:
    """The text of hip/args.hpp, without its notice."""
    structs = "\n\n".join(map(_declaration, ARGS))
    includes = '#pragma once\n#include "arch/device.hpp"\n'
    return f"{includes}\nnamespace rocade {{\n\n{structs}\n\n}} // namespace rocade\n"
