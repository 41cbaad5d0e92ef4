"""Stands for `aiter/jit/core.py` in tests: checks a call's keywords, and has the library "compiled".

As in AITER, a lock file that was left behind is waited for without end, a failed compiler raises SystemExit,
and compilers are in process groups of their own, as ninja has it.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CK_DIR = AITER_CSRC_DIR = "/nowhere"
COMPILER = Path(__file__).with_name("compiler.py")
BEHAVIOUR = Path(__file__).parents[2] / "behaviour.json"


def build_module(name: str) -> None:
    """Compile a library into AITER_JIT_DIR, unless it is there."""
    jit = Path(os.environ["AITER_JIT_DIR"])
    target = jit / f"{name}.so"
    if target.exists():
        return
    baton = jit / "build" / f"lock_{name}"
    baton.parent.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            os.close(os.open(baton, os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            time.sleep(0.05)
    try:
        done = subprocess.run([sys.executable, COMPILER, name, target], check=False, process_group=0)
        if done.returncode:
            raise SystemExit(f"[aiter] build [{name}] failed !!!!!!")
    finally:
        baton.unlink()


def compile_ops(
    module: str,
    fc_name: str | None = None,
    gen_func: Callable[..., dict[str, Any]] | None = None,
    gen_fake: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A call of the function builds the library that it needs, and gives tensors of the right shape."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            inspect.signature(function).bind(*args, **kwargs)
            build_module(gen_func(*args, **kwargs)["md_name"] if gen_func else module)
            after = json.loads(BEHAVIOUR.read_text())["after"]
            if after == "raise":
                raise RuntimeError("invalid argument for fmha_fwd")
            if after == "abort":
                os.abort()
            return gen_fake(*args, **kwargs) if gen_fake else None

        return call

    return decorate
