"""What `greenroom generate` does with what a model thinks before it answers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from engine.cli import generate as module
from engine.cli.main import DONE, main
from engine.placement.plan import Prediction, Range
from engine.runtime.events import GenerationEvent, GenerationStats
from engine.status import EngineStatus

STATS = GenerationStats(prompt_tokens=1, prefilled_tokens=1, completion_tokens=3)
PREDICTION = Prediction(Range(1, 2, 3), Range(1, 2, 3), "Limited by RAM bandwidth.")


def generate(*_: Any, **__: Any) -> Iterator[GenerationEvent]:
    yield GenerationEvent("", (1,), STATS, thought="Capital")
    yield GenerationEvent("", (2,), STATS, thought=" of?")
    yield GenerationEvent("Par", (3,), STATS)
    yield GenerationEvent("is", (), STATS, "end")


@pytest.fixture(autouse=True)
def _thinking_model(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def loaded(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(kernel="int4", generate=generate, status=EngineStatus), lambda stats: PREDICTION

    monkeypatch.setattr(module, "loaded", loaded)


def test_thoughts_stand_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "m", "--prompt", "Hi"]) == DONE
    shown = capsys.readouterr()
    assert shown.out == "Paris\n"
    assert shown.err.startswith("Capital of?\n\n3 tokens")


def test_thoughts_can_be_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "m", "--prompt", "Hi", "--hide-thoughts"]) == DONE
    shown = capsys.readouterr()
    assert shown.out == "Paris\n"
    assert shown.err.startswith("3 tokens")


def test_programs_get_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "m", "--prompt", "Hi", "--json"]) == DONE
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert (told["text"], told["thought"]) == ("Paris", "Capital of?")
    assert "Capital" not in shown.err
