"""One checkpoint, every place it can be: the CPU, experts in RAM beside a device, all of it on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tiny_models import TOKENS, Tiny

MakeTiny = Callable[[str, str], Tiny]

#: Where the exact plans run.
PLANS: dict[str, dict[str, Any]] = {
    "cpu": {},
    "hybrid": {"device": "sim", "mode": "hybrid"},
    "hybrid with hot experts": {"device": "sim", "mode": "hybrid", "hot_slots": 12},
    "all_gpu": {"device": "sim", "mode": "all_gpu"},
}


def greedy(executor: Any, prompt: np.ndarray, count: int) -> tuple[list[int], np.ndarray]:
    """The text a greedy sampler writes, and the logits that led to it."""
    rows = [executor.forward(prompt)]
    text = [int(rows[-1].argmax())]
    while len(text) < count:
        rows.append(executor.forward(np.array(text[-1:])))
        text.append(int(rows[-1].argmax()))
    return text, np.concatenate(rows)


@pytest.mark.parametrize("name", ["qwen2_moe", "qwen3_moe"])
def test_the_same_text_everywhere(tiny: MakeTiny, run: Callable[..., Any], name: str) -> None:
    """Float weights, exact arithmetic."""
    model = tiny(name, "gguf-F32")
    found = {place: greedy(run(model, **plan), TOKENS[:20], 16) for place, plan in PLANS.items()}
    text, logits = found["cpu"]
    for place, (other, rows) in found.items():
        assert other == text, place
        assert np.abs(rows - logits).max() < 1e-4 * logits.std(), place


@pytest.mark.parametrize("form", ["gguf-Q4_0", "gguf-Q8_0", "gguf-BF16"])
def test_stored_codes_agree_within_their_numerics(tiny: MakeTiny, run: Callable[..., Any], form: str) -> None:
    """bfloat16 rounds weights and activations by 0.2 %, our kernels activations by 0.5 %, ten products in a row."""
    model = tiny("qwen3_moe", form)
    usual = run(model, dense_dtype="quantised").forward(TOKENS, "all")
    for plan in list(PLANS.values())[1:]:
        logits = run(model, dense_dtype="bfloat16", kv_type="bf16", **plan).forward(TOKENS, "all")
        errors = np.sqrt(((logits - usual) ** 2).mean(axis=1)) / usual.std()
        assert np.median(errors) < 0.05
