"""Models whose layers forget: windows, chunks and convolutions through whole conversations, against transformers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tiny_families
from tiny_models import Tiny, make_plan

from engine.checkpoints.opening import open_checkpoint
from engine.errors import Cancelled
from engine.executors import load
from engine.executors.loaded_model import LoadedModel
from engine.models import model_spec
from engine.models import spec as spec_module

#: So few that windows of 8 overwrite old tokens, and convolutions keep several states, within a test.
ROLLBACK, INTERVAL = 16, 16
TOKENS = np.random.default_rng(11).integers(0, tiny_families.VOCAB, 90)
NAMES = ["gpt_oss", "gemma4", "llama4", "lfm2_moe", "mistral-windowed"]
EXACT = 1e-4


@pytest.fixture(autouse=True)
def short_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec_module, "ROLLBACK", ROLLBACK)
    monkeypatch.setattr("engine.executors.loaded_model.ROLLBACK", ROLLBACK)
    monkeypatch.setattr(spec_module, "CHECKPOINT_INTERVAL", INTERVAL)
    for module in ("device.states", "native.blocks"):
        monkeypatch.setattr(f"engine.executors.{module}.CHECKPOINT_INTERVAL", INTERVAL)


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Tiny]:
    made: dict[str, Tiny] = {}

    def make(name: str) -> Tiny:
        if name not in made:
            model = tiny_families.build(name)
            folder = tiny_families.save(model, tmp_path_factory.mktemp(name))
            checkpoint = open_checkpoint(folder)
            made[name] = Tiny(checkpoint, model_spec(checkpoint), tiny_families.logits(model, TOKENS))
        return made[name]

    return make


def error(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(got - expected).max() / expected.std())


def in_chunks(executor: LoadedModel, sizes: list[int]) -> np.ndarray:
    """Logits of the next tokens of TOKENS, in pieces of these sizes."""
    return np.concatenate([executor.forward(TOKENS[executor.length : executor.length + size], "all") for size in sizes])


PLANS: dict[str, dict[str, Any]] = {
    "cpu": {},
    "native": {"dense_dtype": "quantised"},
    "hybrid": {"device": "sim", "mode": "hybrid"},
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("name", NAMES)
def test_long_conversations(family: Callable[[str], Tiny], run: Any, name: str, plan: dict[str, Any]) -> None:
    model = family(name)
    executor = run(model, **plan)
    # Longer than a window's memory, in pieces that end before, at and behind its borders; then token by token.
    assert error(in_chunks(executor, [7, 1, 16, 9, 16, 11]), model.logits[:60]) < EXACT
    assert error(in_chunks(executor, [1] * 30), model.logits[60:]) < EXACT
    # A few tokens back.
    kept = executor.truncate(80)
    assert kept == executor.length == 80
    assert error(in_chunks(executor, [1, 9]), model.logits[80:]) < EXACT
    # Before the last piece of several tokens, whose start some layers have a copy of: all is repeated, and right.
    kept = executor.truncate(37)
    assert kept == executor.length <= 37
    pieces = [16] * ((70 - kept) // 16) + [1] * ((70 - kept) % 16)
    assert error(in_chunks(executor, pieces), model.logits[kept:70]) < EXACT


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("name", NAMES)
def test_a_long_answer_is_taken_back_to_its_prompt(
    family: Callable[[str], Tiny], run: Any, name: str, plan: dict[str, Any]
) -> None:
    """Answered anew, as a thinking model's next prompt drops its thoughts: only the prompt's last piece is repeated."""
    model = family(name)
    executor = run(model, **plan)
    in_chunks(executor, [16, 16, 8])
    answer = np.random.default_rng(2).integers(0, tiny_families.VOCAB, 50)
    for token in answer:
        executor.forward(np.array([token]))
    kept = executor.truncate(39)
    assert kept == 32
    assert error(in_chunks(executor, [8, 1]), model.logits[32:41]) < EXACT
    # Once more, behind what was just repeated.
    for token in answer[:45]:
        executor.forward(np.array([token]))
    assert executor.truncate(41) == 32
    assert error(in_chunks(executor, [9, 7, 1]), model.logits[32:49]) < EXACT


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("name", NAMES)
def test_an_interrupted_call_leaves_no_trace(
    family: Callable[[str], Tiny], run: Any, monkeypatch: pytest.MonkeyPatch, name: str, plan: dict[str, Any]
) -> None:
    model = family(name)
    # Native plans are one call, whose interruption test_native_decoder.py tests; here are its blocks.
    executor = run(model, by_blocks=True, **plan)
    in_chunks(executor, [16, 16, 8])
    last = executor._layers[-1].ffn
    add = type(last).add

    def cancelled_meanwhile(self: Any, *arguments: Any) -> None:
        if self is last:
            other = threading.Thread(target=executor.cancel)
            other.start()
            other.join()
            raise Cancelled
        add(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(type(last), "add", cancelled_meanwhile)
        with pytest.raises(Cancelled):
            executor.forward(TOKENS[::-1][:ROLLBACK])
    assert executor.length == 40
    assert error(in_chunks(executor, [1, 13]), model.logits[40:54]) < EXACT


def test_more_tokens_at_once_than_can_be_taken_back_are_refused(family: Callable[[str], Tiny], run: Any) -> None:
    executor = run(family("gpt_oss"))
    with pytest.raises(ValueError, match="17 tokens where 16"):
        executor.forward(TOKENS[:17])


def test_the_memory_of_a_windowed_model_is_what_the_spec_says(family: Callable[[str], Tiny], run: Any) -> None:
    model = family("gpt_oss")
    executor = run(model, device="sim", mode="hybrid")
    assert executor._cache.nbytes == model.spec.kv_bytes(96, "f32")
    assert model.spec.kv_bytes(96, "f32") == 2 * 2 * 16 * 4 * (2 * 96 + 2 * 2 * (8 + ROLLBACK))


@pytest.mark.parametrize("name", NAMES)
def test_closing_gives_everything_back(family: Callable[[str], Tiny], name: str) -> None:
    model = family(name)
    executor = load(model.checkpoint, model.spec, make_plan())
    executor.forward(TOKENS[:4])
    executor.close()
    assert not hasattr(executor, "_cache")


@pytest.mark.parametrize("name", NAMES)
def test_drafts_are_taken_back_token_by_token_and_cost_no_earlier_turn(
    family: Callable[[str], Tiny], run: Any, name: str
) -> None:
    """The same bits as if what came to nothing had never been there; and the prompt can still be gone back to."""
    model = family(name)
    executor = run(model, dense_dtype="quantised")
    assert executor.takes_drafts
    in_chunks(executor, [16, 16, 8])
    expected = in_chunks(executor, [1] * 50)
    assert executor.truncate(39) == 32
    in_chunks(executor, [8])
    rng = np.random.default_rng(3)
    while executor.length < 90:
        start, right, wrong = executor.length, int(rng.integers(0, 8)), int(rng.integers(0, 8))
        right = min(right, 89 - start)
        draft = np.concatenate([TOKENS[start : start + 1 + right], rng.integers(0, tiny_families.VOCAB, wrong)])
        got = executor.forward(draft[: 96 - start], "draft")[: 1 + right]
        np.testing.assert_array_equal(got, expected[start - 40 : start - 39 + right])
        assert executor.truncate(start + 1 + right) == start + 1 + right
    assert executor.truncate(39) == 32


@pytest.mark.parametrize("plan", [{}, {"device": "sim", "mode": "hybrid"}], ids=["torch", "hybrid"])
def test_no_drafts_where_a_calls_length_changes_the_bits(
    family: Callable[[str], Tiny], run: Any, plan: dict[str, Any]
) -> None:
    assert not run(family("gpt_oss"), **plan).takes_drafts
