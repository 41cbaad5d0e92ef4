"""Program flow: branches, calls and returns, hardware registers; traps and messages stop the run."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulator import isa_run
from tests.emulator.isa_run import LANES, State
from tests.emulator.isa_table import TARGETS

START_MODE = 0x3F0  # round to nearest even, denormals kept, dx10_clamp and IEEE on


def state(*, scc: int = 0, vcc: int = 0, mask: int = (1 << 64) - 1) -> State:
    """Registers of zeros."""
    return State(np.zeros((32, LANES), np.uint32), np.zeros(32, np.uint32), vcc, mask, 0, scc)


def run_one(target: str, text: str, start: State | None = None) -> State:
    """The state after one sequence; no check may complain."""
    outcome = isa_run.run(target, [text], [start or state()], [(0, 0)])
    assert not outcome.reports, outcome.reports
    return outcome.states[0]


BRANCHES = {
    "s_branch": (lambda s: True),
    "s_cbranch_scc0": (lambda s: not s.scc),
    "s_cbranch_scc1": (lambda s: bool(s.scc)),
    "s_cbranch_vccz": (lambda s: s.vcc == 0),
    "s_cbranch_vccnz": (lambda s: s.vcc != 0),
    "s_cbranch_execz": (lambda s: s.exec == 0),
    "s_cbranch_execnz": (lambda s: s.exec != 0),
}
STARTS = (state(), state(scc=1), state(vcc=1 << 63), state(mask=0), state(scc=1, vcc=4, mask=1 << 40))


@pytest.mark.parametrize("target", TARGETS)
def test_branches(target: str) -> None:
    """Taken and not taken, forward; what a branch jumps over does not run."""
    texts = [f"{name} 1f\ns_mov_b32 s4, 7\n1:\ns_mov_b32 s5, 9" for name in BRANCHES]
    which = [(k, s) for k in range(len(texts)) for s in range(len(STARTS))]
    outcome = isa_run.run(target, texts, STARTS, which)
    for (k, s), after in zip(which, outcome.states, strict=True):
        taken = list(BRANCHES.values())[k](STARTS[s])
        assert (int(after.s[4]), int(after.s[5])) == (0 if taken else 7, 9), (texts[k], s)
    assert not outcome.reports, outcome.reports


@pytest.mark.parametrize("target", TARGETS)
def test_loop(target: str) -> None:
    """A backward branch until a counter ends."""
    text = "1:\ns_addk_i32 s4, 3\ns_add_u32 s5, s5, 1\ns_cmp_lt_u32 s5, 10\ns_cbranch_scc1 1b"
    assert int(run_one(target, text).s[4]) == 30


@pytest.mark.parametrize("target", TARGETS)
def test_calls_and_returns(target: str) -> None:
    """s_swappc, s_call and s_setpc: the return address is that of the next instruction."""
    body = ["s_add_u32 s4, s4, 5", "s_setpc_b64 s[10:11]"]
    by_register = [
        *("s_getpc_b64 s[6:7]", "s_add_u32 s6, s6, 2f-1b", "s_addc_u32 s7, s7, 0"),
        *("s_swappc_b64 s[10:11], s[6:7]", "s_add_u32 s4, s4, 100", "s_branch 3f", "2:", *body, "3:"),
    ]
    by_register.insert(1, "1:")
    by_offset = ["s_call_b64 s[10:11], 2f", "s_add_u32 s4, s4, 100", "s_branch 3f", "2:", *body, "3:"]
    for lines in (by_register, by_offset):
        assert int(run_one(target, "\n".join(lines)).s[4]) == 105


@pytest.mark.parametrize("target", TARGETS)
def test_hardware_registers(target: str) -> None:
    """MODE reads back in slices; a write that leaves rounding and denormals alone is allowed."""
    text = "\n".join(
        [
            "s_getreg_b32 s4, hwreg(HW_REG_MODE)",
            "s_getreg_b32 s5, hwreg(HW_REG_MODE, 4, 4)",
            "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3",
            "s_mov_b32 s8, 0xff\ns_nop 1",
            "s_setreg_b32 hwreg(HW_REG_MODE, 12, 3), s8",
            "s_nop 1\ns_getreg_b32 s6, hwreg(HW_REG_MODE)",
        ]
    )
    after = run_one(target, text)
    assert [int(after.s[k]) for k in (4, 5, 6)] == [START_MODE, 15, START_MODE | 7 << 12]


@pytest.mark.parametrize("target", TARGETS)
def test_clocks_do_not_go_back(target: str) -> None:
    """s_memtime counts executed instructions here, so that a later reading is larger."""
    after = run_one(target, "s_memtime s[4:5]\ns_nop 0\ns_memtime s[6:7]\ns_waitcnt lgkmcnt(0)")
    assert int(after.s[6]) > int(after.s[4])


STOPS = {
    "s_trap 2": "traps",
    "s_sethalt 1": "halts",
    "s_sendmsg sendmsg(MSG_INTERRUPT)": "messages",
    "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 15": "mode that is not modelled",
    "s_getreg_b32 s4, hwreg(HW_REG_LDS_ALLOC)": "hardware register 6",
    "s_setpc_b64 s[4:5]": "jump to no instruction",
    "s_branch 0x7000": "jump to no instruction",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", STOPS)
def test_what_is_not_modelled_stops_the_run(target: str, text: str) -> None:
    """The error says what and where."""
    with pytest.raises(AssertionError, match=STOPS[text]) as caught:
        run_one(target, text)
    assert "pc 0x" in str(caught.value)
    assert text.split()[0] in str(caught.value)
