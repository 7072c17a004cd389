"""Checkpoints that are a header and nothing else, for families to read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine.checkpoints.checkpoint import Checkpoint, TensorInfo


class HeaderOnly(Checkpoint):
    """values: what `read_float32` gives for the few tensors that a spec reads."""

    def __init__(
        self,
        form: str,
        architecture: str,
        config: Mapping[str, Any],
        shapes: Mapping[str, tuple[int, ...]],
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = Path("tiny")
        self.name = "tiny"
        self.form = form
        self.architecture = architecture
        self.config = dict(config)
        self.tensors = {name: TensorInfo(name, shape, "F32", self.path, 0, 0) for name, shape in shapes.items()}
        self._values = dict(values or {})

    def read(self, name: str, index: int | None = None, rows: tuple[int, int] | None = None) -> Any:
        raise AssertionError(f"a spec must not read {name}")

    def read_float32(self, name: str, index: int | None = None, rows: tuple[int, int] | None = None) -> Any:
        return np.asarray(self._values[name], np.float32)

    def tokenizer(self) -> Any:
        raise AssertionError

    def chat_template(self) -> Any:
        raise AssertionError

    def close(self) -> None: ...


H, V, I = 64, 160, 96  # noqa: E741 - the usual letters
E, X, S = 4, 32, 48
HEADS, KV, D = 4, 2, 16


def hf_config(**changes: Any) -> dict[str, Any]:
    """config.json of a two-layer model; a value of None removes the key."""
    config: dict[str, Any] = {
        "hidden_size": H,
        "vocab_size": V,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV,
        "intermediate_size": I,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "num_experts": E,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": X,
        "shared_expert_intermediate_size": S,
        "tie_word_embeddings": False,
        "rope_theta": 10000.0,
    }
    return {key: value for key, value in {**config, **changes}.items() if value is not None}


def hf_shapes(
    moe: bool = True, shared: bool = False, bias: bool = False, qk_norm: bool = False, **changes: Any
) -> dict:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (V, H),
        "model.norm.weight": (H,),
        "lm_head.weight": (V, H),
    }
    for i in range(2):
        p = f"model.layers.{i}."
        shapes |= {
            f"{p}input_layernorm.weight": (H,),
            f"{p}post_attention_layernorm.weight": (H,),
            f"{p}self_attn.q_proj.weight": (HEADS * D, H),
            f"{p}self_attn.k_proj.weight": (KV * D, H),
            f"{p}self_attn.v_proj.weight": (KV * D, H),
            f"{p}self_attn.o_proj.weight": (H, HEADS * D),
        }
        if bias:
            for part, width in (("q", HEADS), ("k", KV), ("v", KV)):
                shapes[f"{p}self_attn.{part}_proj.bias"] = (width * D,)
        if qk_norm:
            shapes |= {f"{p}self_attn.{part}_norm.weight": (D,) for part in "qk"}
        if not moe:
            shapes |= _mlp(f"{p}mlp.", I)
            continue
        shapes[f"{p}mlp.gate.weight"] = (E, H)
        for e in range(E):
            shapes |= _mlp(f"{p}mlp.experts.{e}.", X)
        if shared:
            shapes |= _mlp(f"{p}mlp.shared_expert.", S)
            shapes[f"{p}mlp.shared_expert_gate.weight"] = (1, H)
    return {key: value for key, value in {**shapes, **changes}.items() if value is not None}


def _mlp(prefix: str, inner: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{prefix}gate_proj.weight": (inner, H),
        f"{prefix}up_proj.weight": (inner, H),
        f"{prefix}down_proj.weight": (H, inner),
    }


def gguf_config(arch: str, **changes: Any) -> dict[str, Any]:
    """Keys are given without the architecture's prefix, dots written as two underscores."""
    config: dict[str, Any] = {
        "embedding_length": H,
        "block_count": 2,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV,
        "feed_forward_length": I,
        "context_length": 512,
        "attention.layer_norm_rms_epsilon": 1e-6,
    }
    if arch != "llama":
        config |= {"expert_count": E, "expert_used_count": 2}
    config |= {key.replace("__", "."): value for key, value in changes.items()}
    return {f"{arch}.{key}": value for key, value in config.items() if value is not None}


def gguf_shapes(moe: bool = True, shared: bool = False, qk_norm: bool = False, **changes: Any) -> dict:
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (V, H), "output_norm.weight": (H,)}
    for i in range(2):
        p = f"blk.{i}."
        shapes |= {
            f"{p}attn_norm.weight": (H,),
            f"{p}ffn_norm.weight": (H,),
            f"{p}attn_q.weight": (HEADS * D, H),
            f"{p}attn_k.weight": (KV * D, H),
            f"{p}attn_v.weight": (KV * D, H),
            f"{p}attn_output.weight": (H, HEADS * D),
        }
        if qk_norm:
            shapes |= {f"{p}attn_{part}_norm.weight": (D,) for part in "qk"}
        if not moe:
            shapes |= {f"{p}ffn_gate.weight": (I, H), f"{p}ffn_up.weight": (I, H), f"{p}ffn_down.weight": (H, I)}
            continue
        shapes |= {
            f"{p}ffn_gate_inp.weight": (E, H),
            f"{p}ffn_gate_exps.weight": (E, X, H),
            f"{p}ffn_up_exps.weight": (E, X, H),
            f"{p}ffn_down_exps.weight": (E, H, X),
        }
        if shared:
            shapes |= {
                f"{p}ffn_gate_shexp.weight": (S, H),
                f"{p}ffn_up_shexp.weight": (S, H),
                f"{p}ffn_down_shexp.weight": (H, S),
                f"{p}ffn_gate_inp_shexp.weight": (H,),
            }
    return {key: value for key, value in {**shapes, **changes}.items() if value is not None}
