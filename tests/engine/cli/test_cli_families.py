"""`greenroom generate` answers with a tiny random model of every family, from both kinds of files, as others would."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_configs
import tiny_families
from llama_cpp_files import FOLDER, PROMPT

from engine.cli.main import DONE, main
from engine.models.families import FAMILIES

#: Every product in float32, so that the likeliest token is the other program's.
EXACT = "--raw --temperature 0 --dtype float32 --kv-type f32 --device cpu --threads 1 --context 64 --json"
#: Tokens that end an answer and are no part of it.
STOPS = {tiny_configs.BOS, tiny_configs.EOS}


def generated(capsys: pytest.CaptureFixture[str], model: Path, prompt: str, count: int) -> list[int]:
    assert main(["generate", str(model), "--prompt", prompt, "--max-tokens", str(count), *EXACT.split()]) == DONE
    return json.loads(capsys.readouterr().out)["token_ids"]


@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
def test_from_safetensors(family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_families.build(family)
    tiny_families.save(model, tmp_path / "model")
    prompt = "Hello the world"
    found = generated(capsys, tmp_path / "model", prompt, 6)
    ids = tiny_families.encode(prompt)
    expected: list[int] = []
    while len(expected) < 6 and not STOPS & set(expected):
        expected.append(int(tiny_families.logits(model, np.array(ids + expected))[-1].argmax()))
    assert found == [token for token in expected if token not in STOPS]


@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
def test_from_gguf(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    """llama.cpp wrote the file and computed the logits after the whole prompt."""
    best = int(np.load(FOLDER / f"{family}.npz")["logits"][-1].argmax())
    assert generated(capsys, FOLDER / f"{family}.gguf", PROMPT, 1) == ([] if best in STOPS else [best])
