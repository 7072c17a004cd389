"""Files that llama.cpp's own converter and quantiser wrote, against what llama.cpp computes from them.

How they were made: tests/engine/llama_cpp_files.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from llama_cpp_files import FOLDER, PROMPT, RECIPES
from tiny_models import make_plan

from engine.checkpoints.opening import open_checkpoint
from engine.executors import load
from engine.models import model_spec

NAMES = sorted(path.stem for path in FOLDER.glob("*.gguf"))

#: Largest difference allowed, in standard deviations of the logits, with every product in float32 on both sides.
EXACT = 1e-4
#: llama.cpp looks GELU up in a table of half precision, 11 bits, which the next layers carry on.
ROUNDED = {"gemma4": 5e-3, "gemma4-dense": 5e-3}


@pytest.mark.parametrize("name", NAMES)
def test_logits_equal_llama_cpp(name: str) -> None:
    checkpoint = open_checkpoint(FOLDER / f"{name}.gguf")
    expected = np.load(FOLDER / f"{name}.npz")
    tokens, positions, logits = expected["tokens"], expected["positions"], expected["logits"]
    executor = load(checkpoint, model_spec(checkpoint), make_plan(context=64))
    try:
        whole = executor.forward(tokens, "all")
        executor.truncate(0)
        steps = np.concatenate([executor.forward(tokens[i : i + 1]) for i in range(len(tokens))])
    finally:
        executor.close()
    for ours in (whole, steps):
        assert np.abs(ours[positions] - logits).max() < ROUNDED.get(name, EXACT) * logits.std()


@pytest.mark.parametrize("name", NAMES)
def test_stored_codes_come_close(name: str) -> None:
    """The blocks as they are, in our own kernels; 8-bit activations may also choose another expert now and then."""
    checkpoint = open_checkpoint(FOLDER / f"{name}.gguf")
    expected = np.load(FOLDER / f"{name}.npz")
    executor = load(checkpoint, model_spec(checkpoint), make_plan(context=64, dense_dtype="quantised"))
    try:
        logits = executor.forward(expected["tokens"], "all")[expected["positions"]]
    finally:
        executor.close()
    errors = np.sqrt(((logits - expected["logits"]) ** 2).mean(axis=1)) / expected["logits"].std()
    assert np.median(errors) < 0.15


@pytest.mark.parametrize("name", NAMES)
def test_tokens_equal_llama_cpp(name: str) -> None:
    tokenizer = open_checkpoint(FOLDER / f"{name}.gguf").tokenizer()
    assert tokenizer.encode(PROMPT) == np.load(FOLDER / f"{name}.npz")["tokens"].tolist()


def test_the_files_stay_small() -> None:
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert max(sizes.values()) < 300_000
    assert set(sizes) == {f"{name}.{kind}" for name in RECIPES for kind in ("gguf", "npz")}
