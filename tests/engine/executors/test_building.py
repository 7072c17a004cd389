"""Switches of a spec that no family of today turns on, on a model that is made to need them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import tiny_families
import torch
from tiny_models import Tiny

from engine.checkpoints.opening import open_checkpoint
from engine.executors.loaded_model import LoadedModel
from engine.models import model_spec

Run = Callable[..., LoadedModel]
TOKENS = np.random.default_rng(5).integers(0, tiny_families.VOCAB, 20)


@pytest.fixture
def qwen3(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """A folder, and the logits of TOKENS."""
    model = tiny_families.build("qwen3")
    return tiny_families.save(model, tmp_path / "qwen3"), tiny_families.logits(model, TOKENS)


def change(folder: Path, edit: Callable[[str, Any], Any]) -> None:
    path = folder / "model.safetensors"
    tensors = {name: edit(name, tensor) for name, tensor in safetensors.torch.load_file(path).items()}
    safetensors.torch.save_file(tensors, path, {"format": "pt"})


def error(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(got - expected).max() / expected.std())


@pytest.mark.parametrize("plan", [{}, {"device": "sim", "mode": "all_gpu"}])
def test_norms_stored_less_one(qwen3: tuple[Path, np.ndarray], run: Run, plan: dict[str, Any]) -> None:
    folder, expected = qwen3
    change(folder, lambda name, tensor: tensor - 1.0 if "norm" in name else tensor)
    checkpoint = open_checkpoint(folder)
    spec = replace(model_spec(checkpoint), norm_offset=1.0)
    assert error(run(Tiny(checkpoint, spec, expected), **plan).forward(TOKENS, "all"), expected) < 1e-4


@pytest.mark.parametrize("plan", [{}, {"device": "sim", "mode": "all_gpu"}])
def test_multipliers_and_softcap(qwen3: tuple[Path, np.ndarray], run: Run, plan: dict[str, Any]) -> None:
    """Each undone in the weights: embeddings are halved and doubled again, what blocks add likewise."""
    folder, expected = qwen3

    def edit(name: str, tensor: Any) -> Any:
        if "embed_tokens" in name:
            return tensor / 2.0
        return tensor / 3.0 if name.endswith(("o_proj.weight", "down_proj.weight")) else tensor

    change(folder, edit)
    checkpoint = open_checkpoint(folder)
    # The embedding is also the output head, whose logits are halved with it; the cap is tanh-shaped.
    spec = replace(
        model_spec(checkpoint),
        embedding_multiplier=2.0,
        residual_multiplier=3.0,
        logit_multiplier=2.0,
        logit_softcap=5.0,
    )
    capped = 5.0 * np.tanh(expected / 5.0)
    assert error(run(Tiny(checkpoint, spec, capped), **plan).forward(TOKENS, "all"), capped) < 1e-4


@pytest.mark.parametrize(
    "plan", [{"dense_dtype": "quantised"}, {"device": "sim", "mode": "all_gpu", "dense_dtype": "bfloat16"}]
)
def test_routers_compute_in_float32_whatever_the_plan(tmp_path: Path, run: Run, plan: dict[str, Any]) -> None:
    """A rounded logit may pick another expert."""
    checkpoint = open_checkpoint(tiny_families.save(tiny_families.build("mixtral"), tmp_path / "mixtral"))
    spec = model_spec(checkpoint)
    router = run(Tiny(checkpoint, spec, np.zeros(0)), by_blocks=True, **plan)._layers[0].ffn.router
    logits = router.logits if hasattr(router, "logits") else router._logits
    weight = torch.from_numpy(checkpoint.read_float32(spec.weights["layers.0.moe.router"].name))
    x = torch.randn((5, spec.hidden), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(logits(x), x @ weight.T, rtol=1e-5, atol=1e-5)
