"""Whole models quantised in every safetensors form: logits of exactly the weights that the form's definition gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import quantised_files as files
import safetensors.torch
import tiny_families
import torch
from quantised_files import Matrix
from tiny_models import TOKENS, Tiny
from transformers import AutoModelForCausalLM

from engine.checkpoints.opening import open_checkpoint
from engine.executors.loaded_model import LoadedModel
from engine.models import model_spec

EXACT = 1e-4

COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False}


def shuffled(columns: int) -> np.ndarray:
    return np.random.default_rng(columns).permutation(np.arange(columns) // 32)


#: name -> (a matrix of so many rows and columns, quantization_config)
FORMS: dict[str, tuple[Callable[[int, int, int], Matrix], dict[str, Any]]] = {
    "gptq": (lambda n, k, seed: files.gptq(n, k, 32, seed=seed), GPTQ),
    "gptq-symmetric": (lambda n, k, seed: files.gptq(n, k, 32, symmetric=True, seed=seed), {**GPTQ, "sym": True}),
    "gptq-act-order": (lambda n, k, seed: files.gptq(n, k, 32, groups_of=shuffled(k), seed=seed), GPTQ),
    "awq": (lambda n, k, seed: files.awq(n, k, 64, seed), {"quant_method": "awq", "bits": 4, "group_size": 64}),
    "compressed-int4": (lambda n, k, seed: files.compressed_integers(n, k, 32, seed=seed), COMPRESSED),
    "compressed-int8": (
        lambda n, k, seed: files.plain_int8(n, k, seed=seed),
        {**COMPRESSED, "format": "int-quantized"},
    ),
    "fp8": (lambda n, k, seed: files.fp8_squares(n, k, seed=seed), {"quant_method": "fp8"}),
    "nvfp4": (lambda n, k, seed: files.nvfp4(n, k, seed=seed), {"quant_method": "modelopt", "quant_algo": "NVFP4"}),
}


@pytest.fixture(scope="module", params=FORMS)
def quantised(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Tiny]:
    """Qwen3-MoE with every projection quantised; norms, routers, embeddings and head are plain."""
    make, section = FORMS[request.param]
    folder = tmp_path_factory.mktemp("tiny") / "model"
    # Rows of whole NVFP4 blocks.
    path = tiny_families.save(tiny_families.build("qwen3_moe", moe_intermediate_size=64), folder) / "model.safetensors"
    tensors, plain = safetensors.torch.load_file(path), {}
    for seed, name in enumerate(name for name in sorted(tensors) if name.endswith("_proj.weight")):
        matrix = make(*tensors.pop(name).shape, seed)
        plain[name] = torch.from_numpy(matrix.weights)
        tensors |= matrix.named(name.removesuffix(".weight"))
    oracle = tmp_path_factory.mktemp("tiny") / "plain"
    oracle.mkdir()
    config = json.loads((folder / "config.json").read_text())
    (oracle / "config.json").write_text(json.dumps(config))
    unquantised = {name: tensor for name, tensor in tensors.items() if not name.split(".")[-2].endswith("_proj")}
    safetensors.torch.save_file(unquantised | plain, oracle / "model.safetensors", {"format": "pt"})
    model = AutoModelForCausalLM.from_pretrained(
        oracle, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    ).eval()
    safetensors.torch.save_file(tensors, path)
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": section}))
    checkpoint = open_checkpoint(folder)
    return request.param, Tiny(checkpoint, model_spec(checkpoint), tiny_families.logits(model, TOKENS))


def error(got: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference in standard deviations of the expected logits."""
    return float(np.abs(got - expected).max() / expected.std())


def test_float32_logits_are_those_of_the_weights(quantised: tuple[str, Tiny], run: Callable[..., LoadedModel]) -> None:
    _, model = quantised
    executor = run(model, device="sim", mode="all_gpu")
    assert error(executor.forward(TOKENS, "all"), model.logits) < EXACT


def test_stored_codes_differ_only_by_the_rounding_of_activations(
    quantised: tuple[str, Tiny], run: Callable[..., LoadedModel]
) -> None:
    _, model = quantised
    exact = run(model)
    assert error(exact.forward(TOKENS, "all"), model.logits) < EXACT
    executor = run(model, dense_dtype="quantised")
    differences = executor.forward(TOKENS, "all") - model.logits
    errors = np.sqrt((differences**2).mean(axis=1)) / model.logits.std()
    # Activations of int8 carry 0.5 % of noise, over some ten products in a row; weights as large as these sharpen
    # attention, which makes 3 to 5 % of it. A wrong code makes 100 %.
    assert np.median(errors) < 0.1
