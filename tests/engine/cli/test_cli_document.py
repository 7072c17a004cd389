"""docs/command-line.md: the fields that it promises are those that the verbs write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import answer, document

from engine.cli.main import DONE, VERBS, main
from engine.runtime import bench

PAGE = Path(__file__).parents[3] / "docs" / "command-line.md"


def promised() -> dict[str, list[str]]:
    rows = re.findall(r"^\| `(\w+)` \| (`.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {verb: re.findall(r"`(\w+)`", fields.partition(";")[0]) for verb, fields in rows if verb in VERBS}


def test_every_verb_is_described() -> None:
    assert sorted(promised()) == sorted(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_writes_the_fields_that_are_promised(
    verb: str, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The RAM's speed is measured on less than usual: its figure does not matter here.
    monkeypatch.setattr(bench, "_BUFFER_BYTES", 1 << 20)
    monkeypatch.setattr(bench, "_SMALLEST_BUFFER_BYTES", 1 << 16)
    text = tmp_path / "text.txt"
    text.write_text("Ein Männlein steht im Walde " * 3, encoding="utf-8")
    arguments = {
        "plan": ["plan", str(tiny_model)],
        "compare": ["compare", str(tiny_model)],
        "generate": answer(tiny_model),
        "bench": ["bench", str(tiny_model), "-p", "8", "-n", "2", "-r", "1", "-t", "1"],
        "perplexity": ["perplexity", str(tiny_model), "--file", str(text), "--window", "32"],
    }
    assert main([*arguments.get(verb, [verb]), "--json"]) == DONE
    assert set(promised()[verb]) <= document(capsys).keys()
