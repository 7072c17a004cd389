"""Checkpoints of real models' shapes that have headers only: nothing is ever read from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from engine.checkpoints.checkpoint import Checkpoint, TensorInfo
from engine.checkpoints.formats import FORMATS
from engine.checkpoints.widened import WIDENED, widen


class HeaderOnly(Checkpoint):
    """A GGUF checkpoint by its header. Reading a tensor is an error: plans must not."""

    def __init__(self, name: str, architecture: str, config: dict[str, Any]) -> None:
        self.path = Path(f"{name}.gguf")
        self.form = "gguf"
        self.architecture = architecture
        self.name = name
        self.config = {f"{architecture}.{key}": value for key, value in config.items()}
        self.tensors: dict[str, TensorInfo] = {}

    def add(self, name: str, shape: tuple[int, ...], format: str) -> None:
        values = 1
        for axis in shape:
            values *= axis
        record = WIDENED[format] if format in WIDENED else FORMATS[format]
        nbytes = values // record.block_values * record.block_bytes
        stored = TensorInfo(name, shape, format, self.path, 0, nbytes)
        self.tensors[name] = widen(stored).info if format in WIDENED else stored

    def read(self, name: str, index: int | None = None, rows: tuple[int, int] | None = None) -> NoReturn:
        raise AssertionError("a plan read tensor bytes")

    def read_float32(self, name: str, index: int | None = None, rows: tuple[int, int] | None = None) -> NoReturn:
        raise AssertionError("a plan read tensor bytes")

    def tokenizer(self) -> NoReturn:
        raise AssertionError("a plan asked for the tokenizer")

    def chat_template(self) -> NoReturn:
        raise AssertionError("a plan asked for the chat template")

    def close(self) -> None:
        pass


def moe_model(
    format: str = "Q4_0",
    *,
    layers: int = 48,
    hidden: int = 2048,
    intermediate: int = 768,
    experts: int = 128,
    top_k: int = 8,
    heads: int = 32,
    kv_heads: int = 4,
    head_dim: int = 128,
    vocab: int = 151936,
    context: int = 40960,
    tied: bool = False,
) -> HeaderOnly:
    """Qwen3-MoE; the defaults are Qwen3-30B-A3B's shape."""
    model = HeaderOnly(
        "Qwen3-30B-A3B" if layers == 48 else f"moe-{layers}",
        "qwen3moe",
        {
            "embedding_length": hidden,
            "block_count": layers,
            "attention.head_count": heads,
            "attention.head_count_kv": kv_heads,
            "attention.key_length": head_dim,
            "attention.value_length": head_dim,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.freq_base": 1e6,
            "context_length": context,
            "vocab_size": vocab,
            "feed_forward_length": 6144,
            "expert_count": experts,
            "expert_used_count": top_k,
            "expert_feed_forward_length": intermediate,
        },
    )
    model.add("token_embd.weight", (vocab, hidden), format)
    model.add("output_norm.weight", (hidden,), "F32")
    if not tied:
        model.add("output.weight", (vocab, hidden), format)
    for i in range(layers):
        _attention(model, i, hidden, heads, kv_heads, head_dim, format)
        model.add(f"blk.{i}.attn_q_norm.weight", (head_dim,), "F32")
        model.add(f"blk.{i}.attn_k_norm.weight", (head_dim,), "F32")
        model.add(f"blk.{i}.ffn_gate_inp.weight", (experts, hidden), "F32")
        model.add(f"blk.{i}.ffn_gate_exps.weight", (experts, intermediate, hidden), format)
        model.add(f"blk.{i}.ffn_up_exps.weight", (experts, intermediate, hidden), format)
        model.add(f"blk.{i}.ffn_down_exps.weight", (experts, hidden, intermediate), format)
    return model


def dense_model(
    format: str = "Q4_0", *, layers: int = 32, hidden: int = 4096, intermediate: int = 14336, vocab: int = 128256
) -> HeaderOnly:
    """Llama; the defaults are Llama-3-8B's shape."""
    model = HeaderOnly(
        "Llama-3-8B",
        "llama",
        {
            "embedding_length": hidden,
            "block_count": layers,
            "attention.head_count": hidden // 128,
            "attention.head_count_kv": max(1, hidden // 512),
            "attention.key_length": 128,
            "attention.value_length": 128,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.freq_base": 5e5,
            "context_length": 8192,
            "vocab_size": vocab,
            "feed_forward_length": intermediate,
        },
    )
    model.add("token_embd.weight", (vocab, hidden), format)
    model.add("output_norm.weight", (hidden,), "F32")
    model.add("output.weight", (vocab, hidden), format)
    for i in range(layers):
        _attention(model, i, hidden, hidden // 128, max(1, hidden // 512), 128, format)
        model.add(f"blk.{i}.ffn_gate.weight", (intermediate, hidden), format)
        model.add(f"blk.{i}.ffn_up.weight", (intermediate, hidden), format)
        model.add(f"blk.{i}.ffn_down.weight", (hidden, intermediate), format)
    return model


def _attention(model: HeaderOnly, i: int, hidden: int, heads: int, kv_heads: int, head_dim: int, format: str) -> None:
    model.add(f"blk.{i}.attn_norm.weight", (hidden,), "F32")
    model.add(f"blk.{i}.attn_q.weight", (heads * head_dim, hidden), format)
    model.add(f"blk.{i}.attn_k.weight", (kv_heads * head_dim, hidden), format)
    model.add(f"blk.{i}.attn_v.weight", (kv_heads * head_dim, hidden), format)
    model.add(f"blk.{i}.attn_output.weight", (hidden, heads * head_dim), format)
    model.add(f"blk.{i}.ffn_norm.weight", (hidden,), "F32")
