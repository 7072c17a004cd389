"""Every family's logits against transformers, in every way of feeding tokens and every numeric plan.

The checkpoints carry the names that published files carry: tiny_families. What llama.cpp makes of the same models is
compared in test_llama_cpp_files.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tiny_configs import CONFIGS
from tiny_models import TOKENS, Tiny

from engine.executors.loaded_model import LoadedModel
from engine.models.families import FAMILIES

MakeTiny = Callable[[str, str], Tiny]
Run = Callable[..., LoadedModel]

#: Largest error allowed in float32, in standard deviations of the logits: about 20 times what rounding gives.
EXACT = 1e-4
#: One variant of every family.
ONE_EACH = [name for name in CONFIGS if "-" not in name]
#: Kept to the context within which Phi-3.5's rotary factors are the short ones, as transformers always takes them.
CONTEXT = 64


def worst(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(got - expected).max() / expected.std())


def typical(got: np.ndarray, expected: np.ndarray) -> float:
    """Root mean square error of the median token, in standard deviations of the logits.

    The median: where a router was nearly undecided another expert may win, which spoils a few tokens.
    """
    return float(np.median(np.sqrt(((got - expected) ** 2).mean(axis=1))) / expected.std())


def stepwise(executor: LoadedModel, ids: np.ndarray) -> np.ndarray:
    return np.concatenate([executor.forward(ids[i : i + 1]) for i in range(len(ids))])


def test_every_family_has_a_model_here() -> None:
    assert {family.name for family in FAMILIES} <= set(ONE_EACH)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        *((name, "safetensors") for name in CONFIGS),
        ("gpt_oss", "mxfp4"),
        ("gemma4", "split"),
        ("llama4", "split"),
        # Stacked experts, as transformers 5 keeps them in memory.
        *((name, "fused") for name in ("mixtral", "minimax_m2", "glm4_moe", "olmoe")),
    ],
)
def test_float32_logits_equal_transformers(tiny: MakeTiny, run: Run, name: str, form: str) -> None:
    """Windows and chunks are 8 tokens long: prompts, steps and chunks all cross their borders."""
    model = tiny(name, form)
    executor = run(model, context=CONTEXT)
    assert worst(executor.forward(TOKENS, "all"), model.logits) < EXACT
    executor.truncate(0)
    assert worst(stepwise(executor, TOKENS), model.logits) < EXACT
    # Taken back to before a border (as far as the state allows), then in chunks of other sizes.
    kept = executor.truncate(7)
    assert kept in (0, 7)
    chunks = [executor.forward(part, "all") for part in np.split(TOKENS[kept:], [1, 2, 9, 10, 27])]
    assert worst(np.concatenate(chunks), model.logits[kept:]) < EXACT


@pytest.mark.parametrize("name", ONE_EACH)
def test_bfloat16_weights_and_products(tiny: MakeTiny, run: Run, name: str) -> None:
    """Each of the products rounds its two factors by up to 1/256: 0.15 % of noise, some 20 products in a row."""
    model = tiny(name, "bfloat16")
    exact = run(model, context=CONTEXT)
    assert worst(exact.forward(TOKENS, "all"), model.logits) < EXACT
    exact.close()
    executor = run(model, context=CONTEXT, device="sim", mode="all_gpu", dense_dtype="bfloat16")
    assert typical(executor.forward(TOKENS, "all"), model.logits) < 0.04


@pytest.mark.parametrize("name", CONFIGS)
def test_quantised_products_differ_by_their_rounding(tiny: MakeTiny, run: Run, name: str) -> None:
    """Experts in int8 lose 0.4 % per weight, activations rounded to int8 per 32 values 0.5 %."""
    model = tiny(name, "safetensors")
    executor = run(model, context=CONTEXT, dense_dtype="quantised", experts="int8", threads=1)
    whole = executor.forward(TOKENS, "all")
    assert typical(whole, model.logits) < 0.05
    executor.truncate(0)
    chunks = [executor.forward(part, "all") for part in np.split(TOKENS[:27], [1, 8, 9])]
    steps = stepwise(executor, TOKENS[27:37])
    # In one piece, in chunks and token by token: the same bits.
    np.testing.assert_array_equal(np.concatenate([*chunks, steps]), whole[:37])


@pytest.mark.parametrize("name", ["mixtral", "gpt_oss", "gemma4", "llama4"])
def test_experts_in_four_bits(tiny: MakeTiny, run: Run, name: str) -> None:
    """Groups of 32 lose about 7 % per weight: far from nothing, far from another model, which would differ by 1.4."""
    model = tiny(name, "safetensors")
    executor = run(model, context=CONTEXT, dense_dtype="quantised", experts="int4", threads=1)
    assert typical(executor.forward(TOKENS, "all"), model.logits) < 0.5
