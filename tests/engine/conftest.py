"""A tiny random mixture of experts with a tokenizer, on disk like any other model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import save_file

HIDDEN, HEADS, HEAD_DIM, EXPERTS, INTERMEDIATE, LAYERS = 64, 2, 32, 4, 32, 2
SPECIAL = ("<|im_start|>", "<|im_end|>")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of safetensors: qwen3_moe, two layers, one token per byte, random float32 weights."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({piece: i for i, piece in enumerate(alphabet)}, []))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens(list(SPECIAL))
    backend.save(str(folder / "tokenizer.json"))
    config = {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "vocab_size": len(alphabet) + len(SPECIAL),
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD_DIM,
        "num_hidden_layers": LAYERS,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": INTERMEDIATE,
        "intermediate_size": INTERMEDIATE,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 8192,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(_weights(config["vocab_size"]), folder / "model.safetensors")
    return folder


def _weights(vocab: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.normal(size=(rows, columns)) * columns**-0.5).astype(np.float32)

    weights = {"model.embed_tokens.weight": matrix(vocab, HIDDEN) * 8, "model.norm.weight": np.ones(HIDDEN, np.float32)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{norm}.weight"] = np.ones(HIDDEN, np.float32)
        for norm in ("q_norm", "k_norm"):
            weights[f"{prefix}self_attn.{norm}.weight"] = np.ones(HEAD_DIM, np.float32)
        for part in "qkvo":
            weights[f"{prefix}self_attn.{part}_proj.weight"] = matrix(HEADS * HEAD_DIM, HIDDEN)
        weights[f"{prefix}mlp.gate.weight"] = matrix(EXPERTS, HIDDEN)
        for expert in range(EXPERTS):
            for part in ("gate", "up"):
                weights[f"{prefix}mlp.experts.{expert}.{part}_proj.weight"] = matrix(INTERMEDIATE, HIDDEN)
            weights[f"{prefix}mlp.experts.{expert}.down_proj.weight"] = matrix(HIDDEN, INTERMEDIATE)
    return weights
