"""What the paged and the ragged prefill wrapper share: request, hints, custom masks, graph buffers."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from arch_caps import Layout, Op, Request
from rocade import _checks, _mask, _request
from rocade._arguments import SHARED, pick
from rocade._checks import LevelFacts
from rocade._errors import invalid
from rocade._mask import PackedMask
from rocade._problem import Level, Problem
from rocade._wrapper import persist


def prefill_request(
    op: Op, given: Mapping[str, Any], layout: Layout, lengths: tuple[int, int], *, masked: bool, graph: bool
) -> Request:
    """The request of a plan call; `lengths` are those of the longest query and the longest sequence."""
    known = (op, layout, masked, graph, given.get("page_size", 0), *_ASKED(given))
    make = functools.partial(_request_of, op, given, layout, lengths, masked=masked, graph=graph)
    return _request.remembered(known, lengths, make)


_ASKED = operator.itemgetter(
    *("num_qo_heads", "num_kv_heads", "head_dim_qk", "head_dim_vo"),
    *("q_data_type", "kv_data_type", "o_data_type", "causal"),
    *SHARED,
)


def _request_of(
    op: Op, given: Mapping[str, Any], layout: Layout, lengths: tuple[int, int], *, masked: bool, graph: bool
) -> Request:
    return _request.attention(
        op,
        num_qo_heads=given["num_qo_heads"],
        num_kv_heads=given["num_kv_heads"],
        head_dim_qk=given["head_dim_qk"],
        head_dim_vo=given["head_dim_vo"],
        q_dtype=given["q_data_type"],
        kv_dtype=given["kv_data_type"],
        o_dtype=given["o_data_type"],
        kv_layout=layout,
        page_size=given.get("page_size", 0),
        causal=given["causal"],
        custom_mask=masked,
        max_qo_len=lengths[0],
        max_kv_len=lengths[1],
        graph=graph,
        **pick(given, SHARED),
    )


def check_hints(given: Mapping[str, Any], level: Level, facts: LevelFacts) -> None:
    """Check the arguments that repeat, or bound, what the plan arrays say."""
    if given["seq_lens"] is not None:
        _checks.lengths_match("seq_lens", given["seq_lens"], level.kv_len)
    if given["seq_lens_q"] is not None:
        _checks.lengths_match("seq_lens_q", given["seq_lens_q"], level.qo_indptr.diff())
    _checks.at_least("max_token_per_sequence", given["max_token_per_sequence"], facts.longest)
    _checks.at_least("max_sequence_kv", given["max_sequence_kv"], facts.max_kv_len)


def mask_of(given: Mapping[str, Any], level: Level, device: torch.device) -> PackedMask | None:
    """The custom mask of a plan call, packed; a packed one wins over a plain one."""
    plain, packed = given["custom_mask"], given["packed_custom_mask"]
    if packed is not None:
        return _mask.adopt(packed, level.qo_indptr.diff(), level.kv_len, device)
    if plain is not None:
        return _mask.pack(plain, level.qo_indptr.diff(), level.kv_len, device)
    return None


@dataclass(slots=True)
class GraphRows:
    """Buffers of query rows and mask that a captured graph reads, and the most rows it was captured for."""

    qo_indptr: torch.Tensor
    mask_bits: torch.Tensor | None
    mask_indptr: torch.Tensor | None
    max_rows: int | None = None  # rows of the first plan

    def settle(self, problem: Problem) -> Problem:
        """The problem with its rows and mask in these buffers; a plan without mask needs none."""
        if self.max_rows is None:
            self.max_rows = problem.num_rows
        if problem.num_rows > self.max_rows:
            raise invalid(
                "qo_indptr", f"{problem.num_rows} rows", f"at most {self.max_rows}, as first planned"
            )
        persist("qo_indptr", self.qo_indptr, problem.levels[0].qo_indptr)
        mask = problem.mask
        if mask is None:
            return problem
        if self.mask_bits is None or self.mask_indptr is None:
            raise invalid(
                "custom_mask", "a mask in graph mode", "custom_mask_buf and mask_indptr_buf at construction"
            )
        persist("mask_indptr_buf", self.mask_indptr, mask.indptr)
        bits = persist("custom_mask_buf", self.mask_bits, mask.bits)
        return dataclasses.replace(problem, mask=PackedMask(bits, mask.indptr))
