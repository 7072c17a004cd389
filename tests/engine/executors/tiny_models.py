"""The models of tiny_families saved in every file form and precision, with the logits of exactly their weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import safetensors.torch
import tiny_families
import torch
from tiny_configs import VOCAB
from transformers import PreTrainedModel

from engine.checkpoints.checkpoint import Checkpoint
from engine.models.spec import ModelSpec
from engine.placement.plan import OffloadPlan, PlanBytes, Prediction, Range

#: Variants of tiny_families that are written in every file form.
CONFIGS = (
    "llama",
    "llama-biased",
    "llama-llama3",
    "mistral",
    "qwen2_moe",
    "qwen2_moe-mixed",
    "qwen3_moe",
    "qwen3_moe-raw",
)
#: One sequence for all comparisons; longer than the chunks it is cut into.
TOKENS = np.random.default_rng(7).integers(0, VOCAB, 48)


@dataclass(frozen=True)
class Tiny:
    """A model's file, and the logits of TOKENS that transformers computes in float32 from exactly its weights."""

    checkpoint: Checkpoint
    spec: ModelSpec
    logits: np.ndarray


def save_fused(model: PreTrainedModel, folder: Path) -> Path:
    """With stacked experts, as transformers keeps them in memory and some of its versions write them."""
    model.save_pretrained(folder, save_original_format=False)
    return folder


def save_rounded(model: PreTrainedModel, folder: Path, dtype: torch.dtype) -> Path:
    """In half precision; the model goes on with the rounded weights in float32."""
    with torch.no_grad():
        for values in model.state_dict().values():
            values.copy_(values.to(dtype))
    path = tiny_families.save(model, folder) / "model.safetensors"
    tensors = {name: values.to(dtype) for name, values in safetensors.torch.load_file(path).items()}
    safetensors.torch.save_file(tensors, path)
    return folder


def save_split(model: PreTrainedModel, folder: Path) -> Path:
    """A tensor for every expert, as quantisers leave families whose own files stack them."""
    path = tiny_families.save(model, folder) / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        stack, prefix = tensors.pop(name), name.rpartition(".")[0]
        # Llama 4 has input features as rows.
        stack = stack.swapaxes(1, 2) if "feed_forward" in name else stack
        for expert, matrix in enumerate(stack):
            parts = dict(zip(("gate", "up"), matrix.chunk(2), strict=True)) if "gate_up" in name else {"down": matrix}
            for part, values in parts.items():
                tensors[f"{prefix}.{expert}.{part}_proj.weight"] = values.contiguous()
    safetensors.torch.save_file(tensors, path)
    return folder


def save_mxfp4(model: PreTrainedModel, folder: Path) -> Path:
    """gpt-oss as published: experts in MXFP4, which the model goes on with in float32."""
    path = tiny_families.save(model, folder) / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    kind = gguf.GGMLQuantizationType.MXFP4
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        values = np.ascontiguousarray(tensors.pop(name).numpy().swapaxes(1, 2))
        stored = gguf.quants.quantize(values, kind)
        with torch.no_grad():
            model.get_parameter(name).copy_(torch.from_numpy(gguf.quants.dequantize(stored, kind).swapaxes(1, 2)))
        blocks = stored.reshape(*values.shape[:2], -1, 17)
        # GGUF pairs value j with j + 16 in a byte, these files each value with its neighbour.
        codes = np.concatenate((blocks[..., 1:] & 15, blocks[..., 1:] >> 4), axis=-1)
        tensors[f"{name}_blocks"] = torch.from_numpy(codes[..., 0::2] | codes[..., 1::2] << 4)
        tensors[f"{name}_scales"] = torch.from_numpy(np.ascontiguousarray(blocks[..., 0]))
    safetensors.torch.save_file(tensors, path)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


GGUF_ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe"}

_LAYER_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
}


def save_gguf(model: PreTrainedModel, path: Path, kind: str) -> Path:
    """Write what llama.cpp's converter would; kind: a GGML type for the matrices, norms and biases stay F32.

    The model's own weights are replaced by what the file then says, so that it is the oracle for the file.
    """
    config = model.config
    arch = GGUF_ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, arch)
    _write_header(writer, config, arch)
    for key, parameter in model.named_parameters():
        for name, values, put_back in _gguf_tensors(key, parameter, config, arch):
            stored = gguf.GGMLQuantizationType[kind if values.ndim > 1 else "F32"]
            if "ffn_gate_inp" in name:
                stored = gguf.GGMLQuantizationType.F32
            data = gguf.quants.quantize(values, stored)
            writer.add_tensor(name, data, raw_dtype=stored)
            put_back(gguf.quants.dequantize(data, stored))
    factors = _rope_factors(model)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_header(writer: gguf.GGUFWriter, config: Any, arch: str) -> None:
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if getattr(config, "head_dim", None) is not None:
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if arch != "llama":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_expert_weights_norm(config.norm_topk_prob)
    if config.model_type == "qwen2_moe":
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)


def _gguf_tensors(key: str, parameter: torch.nn.Parameter, config: Any, arch: str) -> list[tuple[str, np.ndarray, Any]]:
    """(GGUF name, values, how to put changed values back) for one parameter of transformers."""
    values = parameter.detach().numpy()

    def write(target: np.ndarray) -> Any:
        def put_back(new: np.ndarray) -> None:
            target[...] = new

        return put_back

    outside = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if key in outside:
        return [(outside[key], values, write(values))]
    _, _, layer, rest = key.split(".", 3)
    prefix = f"blk.{layer}."
    if rest == "mlp.experts.gate_up_proj":
        gate, up = np.split(values, 2, axis=1)
        return [
            (f"{prefix}ffn_gate_exps.weight", np.ascontiguousarray(gate), write(gate)),
            (f"{prefix}ffn_up_exps.weight", np.ascontiguousarray(up), write(up)),
        ]
    if rest == "mlp.shared_expert_gate.weight":
        return [(f"{prefix}ffn_gate_inp_shexp.weight", values[0], write(values[0]))]
    if arch == "llama" and rest.startswith(("self_attn.q_proj", "self_attn.k_proj")):
        heads = config.num_attention_heads if "q_proj" in rest else config.num_key_value_heads
        order = _llama_order(heads, values.shape[0] // heads)

        def put_back(new: np.ndarray) -> None:
            values[order] = new

        return [(prefix + _renamed(rest), values[order], put_back)]
    return [(prefix + _renamed(rest), values, write(values))]


def _renamed(rest: str) -> str:
    if rest in _LAYER_NAMES:
        return _LAYER_NAMES[rest]
    stem, _, ending = rest.rpartition(".")
    return f"{_LAYER_NAMES[stem]}.{ending}"


def _llama_order(heads: int, head_dim: int) -> np.ndarray:
    """llama.cpp stores the two halves of each head's rows in turn."""
    return np.arange(heads * head_dim).reshape(heads, 2, head_dim // 2).swapaxes(1, 2).reshape(-1)


def _rope_factors(model: PreTrainedModel) -> np.ndarray | None:
    """What llama.cpp's converter writes for llama-3 scaling: plain over scaled inverse frequencies."""
    rope = model.config.rope_parameters
    if rope["rope_type"] != "llama3":
        return None
    scaled = model.model.rotary_emb.inv_freq.numpy()
    plain = rope["rope_theta"] ** (-np.arange(0, 2 * len(scaled), 2) / (2 * len(scaled)))
    return (plain / scaled).astype(np.float32)


def make_plan(**changes: Any) -> OffloadPlan:
    """An exact plan for the CPU unless told otherwise."""
    values: dict[str, Any] = {
        "mode": "cpu",
        "label": "On the CPU",
        "device": "cpu",
        "context": 96,
        "threads": 1,
        "dense_dtype": "float32",
        "kv_type": "f32",
        "experts": "stored",
        "isa": None,
        "bytes": PlanBytes({}, {}, 0, 0),
        "prediction": Prediction(Range(0, 0, 0), Range(0, 0, 0), ""),
        "explanation": [],
    }
    return OffloadPlan(**{**values, **changes})
