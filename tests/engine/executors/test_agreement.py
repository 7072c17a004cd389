"""One checkpoint, every place it can be: the CPU, experts in RAM beside a device, all of it on the device."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import TOKENS, Tiny

from engine.checkpoints import open_checkpoint
from engine.executors import load
from engine.executors.expert_slots import HybridExperts
from engine.executors.native_router import NativeRouter
from engine.executors.torch_router import Router
from engine.models import model_spec
from engine.placement.planner import plan as planned

sys.path.insert(0, str(Path(__file__).parents[1] / "placement"))
from fake_machines import make_report

HERE = make_report(ram=64_000_000_000, free=60_000_000_000, cores=1)

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


PROMPTS = (
    "The capital of France is",
    "Once upon a time there was a small boat that",
    "def add(a, b):\n",
)


@pytest.mark.timeout(600)
def test_the_demo_model_writes_the_same_text_everywhere(demo_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Float weights, 64 tokens of several prompts: the first token by token, the others as the choice at each place.

    Experts in VRAM stay, and each place takes the experts that the CPU chose: the demo's routers are so even that the
    seventh and the eighth best of twelve often differ by less than float32 does from one order of adding to another.
    """
    places: dict[str, dict[str, Any]] = {
        "cpu": {"device": "cpu"},
        "hybrid": {"device": "sim:vram=450e6", "leave_vram": 0},
        "all_gpu": {"device": "sim:vram=4e9", "leave_vram": 0},
    }
    chosen: list[tuple[np.ndarray, np.ndarray]] = []
    texts: list[np.ndarray] = []
    with contextlib.closing(open_checkpoint(demo_model)) as checkpoint:
        spec, encode = model_spec(checkpoint), checkpoint.tokenizer().encode
        prompts = [np.array(encode(prompt), np.int64) for prompt in PROMPTS]
        for place, wishes in places.items():
            plan = planned(checkpoint, HERE, 128, dtype="float32", **wishes)
            assert plan.mode == place
            executor: Any = load(checkpoint, spec, plan)
            try:
                if place == "cpu":
                    texts = [written(executor, prompt) for prompt in prompts]
                    record_choices(monkeypatch, chosen)
                    expected = answers(executor, prompts, texts)
                    assert (expected[0] == texts[0]).all()
                    continue
                if place == "hybrid":
                    assert isinstance(executor._experts, HybridExperts)
                    assert executor._experts.uploads is not None
                    monkeypatch.setattr(executor._experts.uploads, "ask", lambda room: None)
                with monkeypatch.context() as patch:
                    repeat_choices(patch, executor, chosen)
                    for text, same in zip(answers(executor, prompts, texts), expected, strict=True):
                        assert text.tolist() == same.tolist(), place
                assert place != "hybrid" or executor.status().hits > 0
            finally:
                executor.close()


def written(executor: Any, prompt: np.ndarray) -> np.ndarray:
    """64 tokens behind a prompt."""
    executor.truncate(0)
    return np.array(greedy(executor, prompt, 64)[0])


def answers(executor: Any, prompts: list[np.ndarray], texts: list[np.ndarray]) -> list[np.ndarray]:
    """What is written behind the first prompt; behind the others the likeliest token after each of their texts'."""
    found = [written(executor, prompts[0])]
    for prompt, text in zip(prompts[1:], texts[1:], strict=True):
        executor.truncate(0)
        rows = executor.forward(np.concatenate([prompt, text[:-1]]), "all")
        found.append(rows[len(prompt) - 1 :].argmax(1))
    return found


def record_choices(patch: pytest.MonkeyPatch, chosen: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Weights and numbers of experts that our router gives from now on, call by call."""
    route = NativeRouter.__call__

    def noted(self: NativeRouter, x: torch.Tensor, residual: torch.Tensor) -> Any:
        weights, ids, factors = route(self, x, residual)
        chosen.append((weights.numpy().copy(), ids.numpy().copy()))
        return weights, ids, factors

    patch.setattr(NativeRouter, "__call__", noted)


def repeat_choices(patch: pytest.MonkeyPatch, executor: Any, chosen: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """The device's router gives these; nearly all are its own."""
    route, left = Router.__call__, iter(chosen)
    upload = executor._device.device.upload

    def told(self: Router, x: torch.Tensor, residual: torch.Tensor) -> Any:
        weights, ids = next(left)
        return upload(torch.from_numpy(weights)), upload(torch.from_numpy(ids)), route(self, x, residual)[2]

    patch.setattr(Router, "__call__", told)
