"""Logits against transformers in float32, for every family, file form and way of running."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tiny_models
import torch
from tiny_configs import VOCAB
from tiny_models import TOKENS, Tiny, make_plan

from engine.errors import Cancelled, GreenroomError
from engine.executors import load
from engine.executors.loaded_model import LoadedModel
from engine.models.spec import KV_TYPES

MakeTiny = Callable[[str, str], Tiny]
Run = Callable[..., LoadedModel]

#: Largest error allowed in float32 mode, in standard deviations of the logits: about 50 times what rounding gives.
EXACT = 1e-4

CASES = [
    *((name, "safetensors") for name in tiny_models.CONFIGS),
    *((name, "gguf-F32") for name in tiny_models.CONFIGS),
    *((name, kind) for name in ("llama", "qwen2_moe", "qwen3_moe") for kind in ("gguf-Q8_0", "gguf-Q4_0", "gguf-BF16")),
    ("qwen2_moe", "fused"),
    ("qwen3_moe", "fused"),
    ("qwen3_moe", "sharded"),
    ("qwen2_moe", "gguf-Q4_1"),
    ("qwen2_moe", "bfloat16"),
    ("qwen3_moe", "float16"),
]


def error(got: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference in standard deviations of the expected logits."""
    return float(np.abs(got - expected).max() / expected.std())


def token_errors(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Root mean square difference of each token's logits, in standard deviations of all."""
    return np.sqrt(((got - expected) ** 2).mean(axis=1)) / expected.std()


def stepwise(executor: LoadedModel, ids: np.ndarray) -> np.ndarray:
    return np.concatenate([executor.forward(ids[i : i + 1]) for i in range(len(ids))])


@pytest.mark.parametrize(("name", "form"), CASES)
def test_float32_logits_equal_transformers(tiny: MakeTiny, run: Run, name: str, form: str) -> None:
    model = tiny(name, form)
    executor = run(model)
    assert error(executor.forward(TOKENS, "all"), model.logits) < EXACT
    executor.truncate(0)
    assert error(stepwise(executor, TOKENS), model.logits) < EXACT
    # After truncating, the same positions again: in chunks of other sizes.
    executor.truncate(9)
    chunks = [executor.forward(part, "all") for part in np.split(TOKENS[9:], [1, 3, 20])]
    assert error(np.concatenate(chunks), model.logits[9:]) < EXACT
    assert executor.length == len(TOKENS)


@pytest.mark.parametrize("form", ["gguf-Q8_0", "gguf-Q4_0", "gguf-Q4_1", "gguf-BF16", "safetensors", "float16"])
@pytest.mark.parametrize("name", ["llama", "qwen2_moe", "qwen3_moe"])
def test_stored_codes_differ_only_by_the_rounding_of_activations(
    tiny: MakeTiny, run: Run, name: str, form: str
) -> None:
    model = tiny(name, form)
    executor = run(model, dense_dtype="quantised")
    errors = token_errors(executor.forward(TOKENS, "all"), model.logits)
    # Activations rounded to int8 per 32 carry 0.5 % of noise (a step of 2.3 sigma / 127, divided by sqrt(12));
    # some ten products in a row make it 1 to 2.5 %. Where the router was nearly undecided, another expert may win:
    # that shows in a few tokens, not in most. Float weights leave the activations as they are, or round them to
    # bfloat16 (0.15 %).
    limit = 0.03 if "Q" in form else 0.01
    assert np.median(errors) < limit
    assert np.quantile(errors, 0.8) < 2 * limit
    executor.truncate(0)
    steps = token_errors(stepwise(executor, TOKENS), model.logits)
    assert np.median(steps) < limit
    assert np.quantile(steps, 0.8) < 2 * limit


@pytest.mark.parametrize("experts", ["int8", "int4"])
def test_experts_can_be_recoded_at_load(tiny: MakeTiny, run: Run, experts: str) -> None:
    model = tiny("qwen3_moe", "safetensors")
    executor = run(model, dense_dtype="quantised", experts=experts)
    assert executor.kernel.startswith(experts)
    # int4 in groups of 32 rounds weights by about 7 %, int8 by 0.4 %.
    assert np.median(token_errors(executor.forward(TOKENS, "all"), model.logits)) < (0.3 if experts == "int4" else 0.03)


@pytest.mark.parametrize("name", ["llama", "qwen2_moe", "qwen3_moe"])
@pytest.mark.parametrize(
    "changes", [{"mode": "hybrid"}, {"mode": "all_gpu"}], ids=["experts in RAM", "experts on the device"]
)
def test_an_accelerator_gives_the_same_logits(tiny: MakeTiny, run: Run, name: str, changes: dict[str, Any]) -> None:
    model = tiny(name, "gguf-F32")
    executor = run(model, device="sim", **changes)
    assert error(executor.forward(TOKENS, "all"), model.logits) < EXACT
    executor.truncate(5)
    assert error(stepwise(executor, TOKENS[5:]), model.logits[5:]) < EXACT
    executor.close()
    rough = run(model, device="sim", dense_dtype="bfloat16", **changes)
    # bfloat16 rounds weights and activations by 0.1 to 0.2 % each, over some ten products in a row.
    assert np.median(token_errors(rough.forward(TOKENS, "all"), model.logits)) < 0.03


@pytest.mark.parametrize(("kv_type", "limit"), [("f16", 2e-3), ("bf16", 2e-2), ("q8", 2e-2)])
def test_narrow_kv_cache(tiny: MakeTiny, run: Run, kv_type: str, limit: float) -> None:
    model = tiny("llama", "gguf-F32")
    executor = run(model, kv_type=kv_type)
    assert np.median(token_errors(executor.forward(TOKENS, "all"), model.logits)) < limit


@pytest.mark.parametrize("kv_type", ["q8", "f16"])
def test_narrow_kv_cache_on_a_device(tiny: MakeTiny, run: Run, kv_type: str) -> None:
    model = tiny("qwen3_moe", "gguf-F32")
    executor = run(model, device="sim", mode="hybrid", kv_type=kv_type)
    assert np.median(token_errors(executor.forward(TOKENS, "all"), model.logits)) < 2e-2
    executor.truncate(7)
    assert np.median(token_errors(stepwise(executor, TOKENS[7:]), model.logits[7:])) < 2e-2
    assert executor._cache.nbytes == model.spec.kv_bytes(executor.context, kv_type)


def test_last_logits_are_the_last_row_of_all(tiny: MakeTiny, run: Run) -> None:
    executor = run(tiny("qwen2_moe", "gguf-Q8_0"))
    every = executor.forward(TOKENS, "all")
    executor.truncate(0)
    last = executor.forward(TOKENS)
    assert last.shape == (1, VOCAB)
    np.testing.assert_allclose(last[0], every[-1], atol=1e-4 * every.std())


@pytest.mark.parametrize("name", ["llama", "qwen2_moe", "qwen3_moe"])
def test_quantised_logits_do_not_depend_on_threads(tiny: MakeTiny, run: Run, name: str) -> None:
    model = tiny(name, "gguf-Q4_0")
    results = []
    for threads in (1, 2, 3):
        executor = run(model, dense_dtype="quantised", threads=threads)
        results.append((executor.forward(TOKENS[:40], "all"), stepwise(executor, TOKENS[40:])))
    for prompt, steps in results[1:]:
        np.testing.assert_array_equal(prompt, results[0][0])
        np.testing.assert_array_equal(steps, results[0][1])


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("name", tiny_models.CONFIGS)
def test_quantised_logits_do_not_depend_on_chunks(tiny: MakeTiny, run: Run, name: str, kv_type: str) -> None:
    """In one piece, in chunks and token by token: the same bits."""
    executor = run(tiny(name, "gguf-Q8_0"), dense_dtype="quantised", kv_type=kv_type, threads=2)
    expected = executor.forward(TOKENS, "all")
    executor.truncate(0)
    chunks = [executor.forward(part, "all") for part in np.split(TOKENS, [1, 3, 20, 37])]
    np.testing.assert_array_equal(np.concatenate(chunks), expected)
    executor.truncate(0)
    np.testing.assert_array_equal(stepwise(executor, TOKENS), expected)


def test_the_status_names_the_kernel(tiny: MakeTiny, run: Run) -> None:
    assert run(tiny("qwen3_moe", "gguf-Q4_0"), dense_dtype="quantised", threads=1).kernel.startswith("int4 ")
    assert run(tiny("llama", "gguf-Q8_0"), dense_dtype="quantised").kernel.endswith(", 1 thread")
    assert "float32" in run(tiny("llama", "gguf-Q8_0")).kernel


def test_forward_refuses_what_does_not_fit(tiny: MakeTiny, run: Run) -> None:
    executor = run(tiny("llama", "gguf-F32"), context=10)
    executor.forward(TOKENS[:8])
    for wrong in (TOKENS[:3], TOKENS[:0], np.array([VOCAB]), np.array([-1])):
        with pytest.raises(ValueError, match="token"):
            executor.forward(wrong)
    with pytest.raises(ValueError, match="some"):
        executor.forward(TOKENS[:1], "some")
    with pytest.raises(ValueError, match="keep"):
        executor.truncate(9)
    assert executor.length == 8
    executor.forward(TOKENS[8:10])
    assert executor.length == executor.context == 10


@pytest.mark.parametrize("changes", [{}, {"device": "sim", "mode": "hybrid"}, {"dense_dtype": "quantised"}])
def test_cancel_leaves_the_sequence_as_it_was(
    tiny: MakeTiny, run: Run, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    model = tiny("qwen3_moe", "gguf-F32")
    executor = run(model, by_blocks=True, **changes)
    executor.forward(TOKENS[:20])
    expected = executor.forward(TOKENS[20:24])
    executor.truncate(20)

    # Cancelled from another thread while the second layer is being computed, block by block.
    ffn = executor._layers[1].ffn
    add = type(ffn).add

    def cancelled_meanwhile(self: Any, x: Any, out: Any) -> None:
        if self is ffn:
            other = threading.Thread(target=executor.cancel)
            other.start()
            other.join()
        add(self, x, out)

    with monkeypatch.context() as patch:
        patch.setattr(type(ffn), "add", cancelled_meanwhile)
        with pytest.raises(Cancelled):
            executor.forward(TOKENS[20:24])
    assert executor.length == 20
    np.testing.assert_array_equal(executor.forward(TOKENS[20:24]), expected)


def test_cancelling_an_idle_executor_changes_nothing(tiny: MakeTiny, run: Run) -> None:
    executor = run(tiny("qwen3_moe", "gguf-Q8_0"), dense_dtype="quantised")
    expected = executor.forward(TOKENS)
    executor.cancel()
    executor.truncate(0)
    np.testing.assert_array_equal(executor.forward(TOKENS), expected)


@pytest.mark.parametrize(
    "error", [MemoryError("std::bad_alloc"), torch.OutOfMemoryError("CUDA out of memory. Tried ...\nmore")]
)
def test_running_out_of_memory_is_a_clear_error(
    tiny: MakeTiny, run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    model = tiny("llama", "gguf-F32")
    executor = run(model)

    def full(*_: Any) -> None:
        raise error

    monkeypatch.setattr(executor, "_embedding", full)
    with pytest.raises(GreenroomError, match="does not fit in memory") as caught:
        executor.forward(TOKENS)
    assert "bad_alloc" not in str(caught.value)
    assert executor.length == 0


def test_close_may_be_called_twice(tiny: MakeTiny) -> None:
    model = tiny("qwen3_moe", "gguf-F32")
    executor = load(model.checkpoint, model.spec, make_plan(device="sim", mode="hybrid"))
    executor.close()
    executor.close()


def test_a_missing_device_is_a_clear_error(tiny: MakeTiny) -> None:
    model = tiny("llama", "gguf-F32")
    with pytest.raises(GreenroomError, match="cuda:63"):
        load(model.checkpoint, model.spec, make_plan(device="cuda:63", mode="all_gpu"))
