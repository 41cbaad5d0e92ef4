"""Instructions that move data between lanes, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulator import isa_run
from tests.emulator.isa_inputs import states
from tests.emulator.isa_run import LANES, State
from tests.emulator.isa_table import TARGETS

FULL = (1 << 64) - 1
SOME = 0x00FF_3C5A_8001_F00E


def run_one(target: str, text: str, state: State, lds_bytes: int = 0) -> State:
    """The state after one sequence; no check may complain."""
    outcome = isa_run.run(target, [text], [state], [(0, 0)], lds_bytes=lds_bytes)
    assert not outcome.reports, outcome.reports
    return outcome.states[0]


def start(mask: int = FULL, seed: int = 0) -> State:
    """Random registers."""
    rng = np.random.default_rng(seed)
    v = rng.integers(0, 1 << 32, (32, LANES), dtype=np.uint32)
    return State(v, rng.integers(0, 1 << 32, 32, dtype=np.uint32), 0x1234, mask, 0, 0)


def active(mask: int) -> np.ndarray:
    """EXEC as booleans."""
    return np.array([mask >> lane & 1 for lane in range(LANES)], bool)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mask", [FULL, SOME, 1 << 63])
def test_lane_reads_and_writes(target: str, mask: int) -> None:
    """The first active lane is read; readlane and writelane ignore EXEC and wrap the lane number."""
    state = start(mask)
    state.s[10] = 64 + 17
    text = "\n".join(
        [
            "v_readfirstlane_b32 s4, v3",
            "v_readlane_b32 s5, v3, s10",
            "v_readlane_b32 s6, v3, 63",
            "v_writelane_b32 v4, s11, 5",
            "v_writelane_b32 v4, 7, s10",
            "v_writelane_b32 v4, s10, m0",
        ]
    )
    state.m0 = 30
    after = run_one(target, text, state)
    first = (mask & -mask).bit_length() - 1
    assert [int(after.s[k]) for k in (4, 5, 6)] == [int(state.v[3, lane]) for lane in (first, 17, 63)]
    wanted = state.v[4].copy()
    wanted[[5, 17, 30]] = state.s[11], 7, 81
    assert (after.v[4] == wanted).all()


@pytest.mark.parametrize("target", TARGETS)
def test_readfirstlane_without_lanes(target: str) -> None:
    """With no lane active, lane 0 is read."""
    after = run_one(
        target, "s_mov_b64 exec, 0\nv_readfirstlane_b32 s4, v3\ns_mov_b64 exec, -1", state := start()
    )
    assert after.s[4] == state.v[3, 0]


@pytest.mark.parametrize("target", TARGETS)
def test_swap(target: str) -> None:
    """v_swap_b32 exchanges active lanes."""
    state, on = start(SOME), active(SOME)
    after = run_one(target, "v_swap_b32 v2, v3", state)
    assert (after.v[2] == np.where(on, state.v[3], state.v[2])).all()
    assert (after.v[3] == np.where(on, state.v[2], state.v[3])).all()


@pytest.mark.parametrize(
    ("text", "half"), [("v_permlane16_swap_b32 v2, v3", 16), ("v_permlane32_swap_b32 v2, v3", 32)]
)
def test_permlane_swaps(text: str, half: int) -> None:
    """The high half of each block of the first register is exchanged with the low half of the second's."""
    state = start()
    after = run_one("gfx950", text, state)
    first, second = (state.v[k].reshape(-1, 2, half).copy() for k in (2, 3))
    first[:, 1], second[:, 0] = second[:, 0].copy(), first[:, 1].copy()
    assert (after.v[2] == first.reshape(-1)).all()
    assert (after.v[3] == second.reshape(-1)).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mask", [FULL, SOME])
def test_permute_and_bpermute(target: str, mask: int) -> None:
    """Pushing: the highest lane wins, others get 0. Pulling: inactive lanes give 0. Offsets are added."""
    state, on = start(mask, 3), active(mask)
    after = run_one(
        target, "ds_permute_b32 v8, v2, v3 offset:20\nds_bpermute_b32 v9, v2, v3 offset:20", state
    )
    to = (state.v[2] + np.uint32(20)) // 4 % 64
    pushed = np.zeros(LANES, np.uint32)
    for lane in np.nonzero(on)[0]:
        pushed[to[lane]] = state.v[3, lane]
    assert (after.v[8] == np.where(on, pushed, state.v[8])).all()
    assert (after.v[9] == np.where(on, np.where(on[to], state.v[3][to], 0), state.v[9])).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mask", [FULL, SOME])
@pytest.mark.parametrize("pattern", [0x801B, 0x80E4, 0x041F, 0x7C1F, 0x0210, 0x1234])
def test_swizzle(target: str, mask: int, pattern: int) -> None:
    """Bit 15: four lanes by 2-bit fields; else and, or, xor masks on the lane within 32."""
    state, on = start(mask, 4), active(mask)
    after = run_one(target, f"ds_swizzle_b32 v8, v3 offset:{pattern:#x}", state)
    lane = np.arange(LANES)
    if pattern >> 15:
        source = lane & ~3 | np.array([pattern >> 2 * (k & 3) & 3 for k in lane])
    else:
        low = (lane & 31 & pattern & 31 | pattern >> 5 & 31) ^ pattern >> 10 & 31
        source = lane & 32 | low
    assert (after.v[8] == np.where(on, np.where(on[source], state.v[3][source], 0), state.v[8])).all()


@pytest.mark.parametrize(
    ("bits", "mnemonic"), [(16, "ds_read_b64_tr_b16"), (8, "ds_read_b64_tr_b8"), (4, "ds_read_b64_tr_b4")]
)
def test_transposing_reads(bits: int, mnemonic: str) -> None:
    """16 lanes read a matrix of 16 columns row by row; each gets one column."""
    state = start(seed=5)
    state.v[0] = np.arange(LANES) * 8
    text = f"ds_write_b64 v0, v[4:5]\ns_waitcnt lgkmcnt(0)\n{mnemonic} v[8:9], v0"
    after = run_one("gfx950", text, state, lds_bytes=512)
    raw = (
        np.ascontiguousarray(state.v[4:6].T).view(np.uint8).reshape(4, -1)
    )  # 128 bytes of each block of 16 lanes
    elements = np.unpackbits(raw, axis=1, bitorder="little").reshape(4, -1, bits)
    columns = elements.reshape(4, -1, 16, bits).transpose(0, 2, 1, 3).reshape(LANES, 64)
    wanted = np.packbits(columns, axis=1, bitorder="little").view(np.uint32)
    assert (wanted == after.v[8:10].T).all()


def _dpp_source(control: str) -> np.ndarray:
    """Lane that each lane reads, -1 for none."""
    name, _, value = control.partition(":")
    lane, n = np.arange(LANES), int(value) if value.isdigit() else 0
    row, place = lane & ~15, lane & 15
    match name:
        case "quad_perm":
            order = [int(c) for c in value.strip("[]").split(",")]
            return lane & ~3 | np.array([order[k & 3] for k in lane])
        case "row_shl":
            return np.where(place + n < 16, lane + n, -1)
        case "row_shr":
            return np.where(place - n >= 0, lane - n, -1)
        case "row_ror":
            return row | (place - n) % 16
        case "row_newbcast":
            return row | n
        case "wave_shl":
            return np.where(lane < 63, lane + 1, -1)
        case "wave_shr":
            return lane - 1
        case "wave_rol":
            return (lane + 1) % 64
        case "wave_ror":
            return (lane - 1) % 64
        case "row_mirror":
            return row | 15 - place
        case "row_half_mirror":
            return lane & ~7 | 7 - (lane & 7)
        case "row_bcast":
            return np.where(lane >= 32, 31, -1) if n == 31 else row - 1
    raise ValueError(control)


DPP = (
    *(
        "quad_perm:[3,0,1,2]",
        "quad_perm:[1,1,0,2]",
        "row_shl:1",
        "row_shl:15",
        "row_shr:1",
        "row_shr:7",
        "row_ror:3",
    ),
    *(
        "wave_shl:1",
        "wave_shr:1",
        "wave_rol:1",
        "wave_ror:1",
        "row_mirror",
        "row_half_mirror",
        "row_bcast:15",
    ),
    *("row_bcast:31", "row_newbcast:0", "row_newbcast:11"),
)
MASKS = ((15, 15, ""), (15, 15, " bound_ctrl:0"), (5, 15, ""), (15, 9, " bound_ctrl:0"), (10, 6, ""))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mask", [FULL, SOME])
def test_dpp_controls(target: str, mask: int) -> None:
    """Each control, with row and bank masks and bound_ctrl; inactive lanes give nothing."""
    state, on = start(mask, 6), active(mask)
    forms = [(c, *m) for c in DPP for m in MASKS]
    tails = [f"{c} row_mask:{rows:#x} bank_mask:{banks:#x}{bound}" for c, rows, banks, bound in forms]
    sequences = [f"v_add_u32_dpp v8, v2, v3 {tail}\nv_mov_b32_dpp v9, v2 {tail}" for tail in tails]
    outcome = isa_run.run(target, sequences, [state], [(k, 0) for k in range(len(sequences))])
    assert not outcome.reports, outcome.reports
    lane = np.arange(LANES)
    for (control, rows, banks, bound), after in zip(forms, outcome.states, strict=True):
        source = _dpp_source(control)
        valid = (source >= 0) & on[np.maximum(source, 0)]
        enabled = (rows >> (lane >> 4) & 1).astype(bool) & (banks >> (lane >> 2 & 3) & 1).astype(bool)
        written = on & enabled & (valid | bool(bound))
        moved = np.where(valid, state.v[2][np.maximum(source, 0)], np.uint32(0))
        assert (after.v[9] == np.where(written, moved, state.v[9])).all(), (control, rows, banks, bound)
        assert (after.v[8] == np.where(written, moved + state.v[3], state.v[8])).all(), (
            control,
            rows,
            banks,
            bound,
        )


@pytest.mark.parametrize("target", TARGETS)
def test_accumulation_registers(target: str) -> None:
    """Writes to and reads from AGPRs, register to register and from constants, under EXEC."""
    state, on = start(SOME, 7), active(SOME)
    lines = ("s_mov_b64 exec, -1", "v_accvgpr_write_b32 a5, v4", f"s_mov_b64 exec, {SOME & 0xFFFF}")
    text = "\n".join(
        [
            *lines,
            "v_accvgpr_write_b32 a5, v2",
            "s_mov_b64 exec, -1",
            "v_accvgpr_mov_b32 a6, a5",
            "v_accvgpr_write_b32 a7, 1.0",
            "v_accvgpr_write_b32 a8, s9",
            "v_accvgpr_read_b32 v8, a6",
            "v_accvgpr_read_b32 v9, a7",
            "v_accvgpr_read_b32 v10, a8",
        ]
    )
    after = run_one(target, text, state)
    low = on & (np.arange(LANES) < 16)
    assert (after.v[8] == np.where(low, state.v[2], state.v[4])).all()
    assert (after.v[9] == 0x3F800000).all()
    assert (after.v[10] == state.s[9]).all()


@pytest.mark.parametrize("table", [0x00, 0x96, 0xE8, 0xCA, 0xFF, 0x1B])
def test_bitop3(table: int) -> None:
    """Any function of three bits; the 16-bit form clears the high half."""
    state = start(seed=8)
    text = f"v_bitop3_b32 v8, v2, v3, v4 bitop3:{table:#x}\nv_bitop3_b16 v9, v2, v3, v4 bitop3:{table:#x}"
    after = run_one("gfx950", text, state)
    a, b, c = (np.unpackbits(state.v[k].view(np.uint8)) for k in (2, 3, 4))
    truth = np.array([table >> k & 1 for k in range(8)], np.uint8)
    wanted = np.packbits(truth[a << 2 | b << 1 | c]).view(np.uint32)
    assert (after.v[8] == wanted).all()
    assert (after.v[9] == wanted & 0xFFFF).all()


def test_start_states_have_signalling_nans() -> None:
    """The inputs of the other files reach the cases that IEEE mode distinguishes."""
    bits = states()[0].v[0].astype(np.int64) & 0x7FFFFFFF
    assert ((bits > 0x7F800000) & (bits < 0x7FC00000)).any()
