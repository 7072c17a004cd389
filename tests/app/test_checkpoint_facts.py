"""What a model's files say about how to talk to it, and that nonsense there is not believed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.checkpoint_facts import limit_of, suggested_sampling, thinking_choices
from engine.checkpoints.chat_template import ChatTemplate


def folder(path: Path, values: Any) -> SimpleNamespace:
    (path / "generation_config.json").write_text(values if isinstance(values, str) else json.dumps(values))
    return SimpleNamespace(path=path, form="safetensors", config={})


def test_sampling_beside_the_weights(tmp_path: Path) -> None:
    values = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [1, 2]}
    assert suggested_sampling(folder(tmp_path, values)) == {"temperature": 0.6, "top_k": 20, "top_p": 0.95}


@pytest.mark.parametrize(
    "values",
    [
        "",
        "[1]",
        {"temperature": 0.6},
        {"do_sample": True, "temperature": "warm", "top_p": 7, "top_k": True},
        '{"do_sample": true, "temperature": NaN}',
    ],
)
def test_sampling_that_makes_no_sense_is_left_out(tmp_path: Path, values: Any) -> None:
    assert suggested_sampling(folder(tmp_path, values)) == {}


def test_sampling_in_a_gguf(tmp_path: Path) -> None:
    folder(tmp_path, {"do_sample": True, "temperature": 0.1})
    config = {"general.sampling.temp": 1.0, "general.sampling.top_k": 64}
    gguf = SimpleNamespace(path=tmp_path / "m.gguf", form="gguf", config=config)
    assert suggested_sampling(gguf) == {"temperature": 1.0, "top_k": 64}
    gguf.config = {}
    assert suggested_sampling(gguf) == {}, "the file beside it may be of another model"


@pytest.mark.parametrize(
    ("source", "choices"),
    [
        ("{{ messages[0].content }}", ()),
        ("{% if enable_thinking is false %}<no>{% endif %}{{ messages[0].content }}", ("off", "on")),
        ("R: {{ reasoning_effort or 'medium' }}{{ messages[0].content }}", ("low", "medium", "high")),
    ],
)
def test_choices_of_thinking(source: str, choices: tuple[str, ...]) -> None:
    assert thinking_choices(SimpleNamespace(chat_template=lambda: ChatTemplate(source))) == choices


def test_a_model_that_says_nothing(tmp_path: Path) -> None:
    def broken() -> ChatTemplate:
        raise ValueError("no template")

    checkpoint = SimpleNamespace(path=tmp_path, form="safetensors", config={}, chat_template=broken)
    assert suggested_sampling(checkpoint) == {}
    assert thinking_choices(checkpoint) == ()
    assert limit_of(checkpoint) == 0
