"""Executors count the experts that routers choose, and tell which path they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tiny_models import TOKENS, Tiny

from engine.models.spec import MoeSpec

MakeTiny = Callable[[str, str], Tiny]
Run = Callable[..., Any]

PLANS = {
    "native": {"dense_dtype": "quantised"},
    "blocks": {"dense_dtype": "quantised", "by_blocks": True},
    "float": {"dense_dtype": "float32"},
    "hybrid": {"dense_dtype": "float32", "device": "sim", "mode": "hybrid"},
    "device": {"dense_dtype": "float32", "mode": "all_gpu"},
}


@pytest.mark.parametrize("kind", PLANS)
def test_every_choice_of_the_router_is_counted_once(tiny: MakeTiny, run: Run, kind: str) -> None:
    model = tiny("qwen2_moe", "gguf-Q8_0")
    executor = run(model, context=64, **PLANS[kind])
    before = executor.usage()
    assert before is not None
    moe = tuple(i for i, layer in enumerate(model.spec.layers) if isinstance(layer.ffn, MoeSpec))
    assert before.layers == moe
    assert before.counts.sum() == 0
    tokens = np.asarray(TOKENS, dtype=np.int64)
    executor.forward(tokens)
    executor.forward(tokens[:1])
    usage = executor.usage()
    top_k = model.spec.layers[0].ffn.top_k
    np.testing.assert_array_equal(usage.counts.sum(1), [(len(tokens) + 1) * top_k] * len(moe))
    assert usage.in_vram.all() == (kind == "device")


def test_every_plan_counts_the_same(tiny: MakeTiny, run: Run) -> None:
    model = tiny("qwen3_moe", "gguf-Q8_0")
    counts = []
    for plan in PLANS.values():
        executor = run(model, context=64, **plan)
        executor.forward(np.asarray(TOKENS, dtype=np.int64))
        counts.append(executor.usage().counts)
    # Roundings differ between plans, so that a choice here and there may.
    for other in counts[1:]:
        assert np.abs(other.astype(int) - counts[0].astype(int)).sum() <= 0.1 * counts[0].sum()


def test_a_dense_model_has_no_usage(tiny: MakeTiny, run: Run) -> None:
    executor = run(tiny("llama", "gguf-Q8_0"), context=64, dense_dtype="quantised")
    assert executor.usage() is None
    assert executor.status().path == "cpu"
    assert not executor.status().locked


@pytest.mark.parametrize(("kind", "path"), [("native", "cpu"), ("float", "cpu"), ("hybrid", "hybrid")])
def test_the_status_names_the_path(tiny: MakeTiny, run: Run, kind: str, path: str) -> None:
    executor = run(tiny("qwen3_moe", "gguf-Q8_0"), context=64, **PLANS[kind])
    status = executor.status()
    assert status.path == path
    assert status.kernel == executor.kernel
    assert status.ram_bytes > 0
    assert (status.vram_bytes > 0) == (path == "hybrid")
