"""Every rule by which a GGUF's texts are cut into words, against what llama.cpp does by the same name.

How the expected tokens were made: pretokenizer_files.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import write_gguf
from pretokenizer_files import TARGET, settings

from engine.checkpoints.opening import open_checkpoint
from engine.checkpoints.pretokenizers import PRE_TOKENIZERS

#: Where llama.cpp departs from the pattern that the models' tokenizer.json holds (capitals beyond ASCII, combining
#: marks, the borders of words beyond ASCII, digits one by one); test_tokenizer.py tests these against that pattern.
DEPARTING = {"gpt-4o", "tekken", "tiny_aya", "kimi-k2", "youtu", "deepseek-llm"}


def cases() -> list[Any]:
    record = json.loads(TARGET.read_text(encoding="utf-8"))
    return [
        pytest.param(name, rule["ids"], record, id=name)
        for rule in record["rules"]
        if not DEPARTING & set(rule["names"])
        for name in rule["names"]
    ]


@pytest.mark.parametrize(("name", "expected", "record"), cases())
def test_texts_are_cut_as_llama_cpp_cuts_them(
    name: str, expected: list[list[int]], record: dict[str, Any], tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "m.gguf", **settings(name, record["tokens"], record["merges"]))
    tokenizer = open_checkpoint(path).tokenizer()
    assert [tokenizer.encode(text, special=False) for text in record["texts"]] == expected


def test_every_rule_was_compared() -> None:
    record = json.loads(TARGET.read_text(encoding="utf-8"))
    named = {name for rule in record["rules"] for name in rule["names"]}
    # Other names that files of the same rules carry, which llama.cpp does not know.
    assert set(PRE_TOKENIZERS) - named == {"gpt2"}
