"""What stands against gathering a page pool, besides what the table says of the request itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import arch_caps
from arch_caps import Op, Reason, Request
from rocade import _device, _settings

NAME = "aiter_ck"


def gather_reasons(request: Request, target: str) -> Sequence[Reason]:
    """Why the keys of a paged request may not be gathered; empty means that they may.

    The table judged pages of one size as read in place. Where they are not, another function of AITER serves,
    with its own defects: that of ragged requests, which the table is asked about.
    """
    if _settings.aiter_strict():
        text = (
            f"{_settings.AITER_STRICT.name} is set, and pages of {request.page_size} tokens are not read in "
            "place: their keys would be gathered by every run"
        )
        return [Reason("page_size", text)]
    ragged = replace(request, op=Op.BATCH_PREFILL_RAGGED, page_size=0)
    return arch_caps.reasons(ragged, backend=NAME, target=target, toolchain=_device.toolchain())
