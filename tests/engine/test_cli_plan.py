"""`greenroom plan` for a prompt of a certain length."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import document

from engine.cli import DONE, REFUSED, main

pytestmark = pytest.mark.usefixtures("data_folder")


def test_the_context_takes_the_prompt_that_is_asked_about(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def plan(*options: str) -> int:
        return main(["plan", str(tiny_model), "--json", *options])

    assert plan("--context", "64", "--prompt-tokens", "64") == DONE
    assert document(capsys)["context"] == 64
    assert plan("--context", "64", "--prompt-tokens", "65") == REFUSED
    why = str(document(capsys)["error"])
    assert "A prompt of 65 tokens cannot be planned" in why
    assert "--context 65" in why
    # No more than the model was made for.
    assert plan("--prompt-tokens", "1000000") == REFUSED
    assert re.search(r"A context of 1000000 tokens cannot be planned", str(document(capsys)["error"]))
