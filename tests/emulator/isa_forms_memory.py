"""Assembly lines of every operand form that memory instructions may have; see isa_forms.py."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tests.emulator.isa_operands import Line, Pick, join
from tests.emulator.isa_table import Row


def smem_lines(row: Row) -> Iterator[Line]:
    """SMEM: immediate, register and both offsets."""
    pick = Pick(row)
    dst = pick.scalar(row.dst) if row.width else ""
    if not row.src:
        yield Line(row, join(row.mnemonic, dst), True)
        return
    base = pick.scalar(row.src[0])
    for k, offset in enumerate(("0x0", "0x14", "0xffffc", "-0x14", "s7", "m0", "vcc_lo", "s7 offset:0x12")):
        for cache in ("", " glc"):
            yield Line(row, join(row.mnemonic, dst, base, offset + cache), k == 0 and not cache)


def ds_lines(row: Row) -> Iterator[Line]:
    """DS: offsets, data in either file."""
    for file in "va":
        pick = Pick(row)
        dst = pick.vector(row.dst, file) if row.width else ""
        address = pick.vector("b32") if row.src and row.src[0] != "none" else ""
        data = [pick.vector(kind, file) for kind in row.src[1:]]
        base = join(row.mnemonic, dst, address, *data)
        for tail in (
            "",
            " offset:4660",
            " offset:65535",
            " offset0:1 offset1:255",
            " offset0:7",
            " offset1:9",
            " gds",
        ):
            yield Line(row, base + tail, not tail and file == "v")


CACHE = ("", " sc0", " nt", " sc1", " sc0 nt sc1")


def flat_lines(row: Row) -> Iterator[Line]:
    """FLAT, GLOBAL and SCRATCH: every kind of address, offset and cache bits."""
    segment = row.mnemonic.partition("_")[0]
    required = True
    for file in "va":
        pick = Pick(row)
        dst = pick.vector(row.dst, file) if row.width else ""
        data = pick.vector(row.src[1], file) if len(row.src) > 1 else ""
        for address, base in _flat_addresses(segment, pick):
            for offset in ("", " offset:4095", " offset:-4096"):
                for cache in CACHE if not offset else ("", " sc0"):
                    returning = [dst] if "atomic" not in row.mnemonic or "sc0" in cache else []
                    text = join(row.mnemonic, *returning, address, data, base) + offset + cache
                    yield Line(row, text, required)
                    required = False


def _flat_addresses(segment: str, pick: Pick) -> list[tuple[str, str]]:
    if segment == "flat":
        return [(pick.vector("b64"), "")]
    if segment == "global":
        return [
            (pick.vector("b64"), "off"),
            (pick.vector("b32"), pick.scalar("b64")),
            (pick.vector("b32"), "vcc"),
        ]
    return [
        (pick.vector("b32"), "off"),
        ("off", pick.scalar("b32")),
        (pick.vector("b32"), "s9"),
        ("off", "off"),
    ]


def buffer_lines(row: Row) -> Iterator[Line]:
    """MUBUF: every kind of address, offset, cache bits, and loads to LDS."""
    if not row.width and len(row.src) < 2:
        for cache in CACHE:
            yield Line(row, row.mnemonic + cache, not cache)
        return
    required = True
    for file in "va":
        pick = Pick(row)
        data = pick.vector(row.src[1] if len(row.src) > 1 else row.dst, file)
        resource = pick.scalar("b128")
        addresses = (("off", ""), ("v9", " offen"), ("v9", " idxen"), ("v[10:11]", " idxen offen"))
        for (address, mode), soffset, offset in itertools.product(
            addresses, ("0", "s13", "m0", "64", "1.0"), ("", " offset:4095")
        ):
            for cache in CACHE if soffset == "0" else ("", " sc0"):
                operands = f"{address}, {resource}, {soffset}{mode}{offset}{cache}"
                yield Line(row, f"{row.mnemonic} {data}, {operands}", required)
                required = False
                if file == "v":
                    yield Line(row, f"{row.mnemonic} {operands} lds")
