"""The command itself: the real model answers where its file is present, and wrong usage is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocade import demo
from rocade.demo import _prompt


def test_the_real_model_answers_and_all_ways_agree(
    model_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.main(["--quick", "--model", str(model_file)]) == 0
    out = capsys.readouterr().out
    assert "A The library is founded by a retired carpenter" in out
    assert "A The library is in the old fire station" in out
    assert out.count("equal to those of PyTorch SDPA") == 2
    assert "cascade: 2 levels found" in out


@pytest.mark.parametrize(
    "arguments",
    [["--tokens", "1"], ["--batch", "0"], ["--threads", "0"], ["--dtype", "fp8"], ["--backend", "fastest"]],
)
def test_wrong_arguments_are_usage_errors(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        demo.main(arguments)
    assert error.value.code == 2


def test_a_missing_model_is_told_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.main(["--model", str(tmp_path / "none.gguf")]) == 1
    assert "none.gguf is not a readable GGUF file" in capsys.readouterr().err


def test_the_texts_belong_together() -> None:
    assert len(set(_prompt.questions(16))) == 16
    assert _prompt.questions(17)[16] == _prompt.questions(1)[0]
    assert [role for role, _ in _prompt.examples()] == ["user", "assistant"] * 2
    assert _prompt.system_prompt().startswith("You are the help desk")
