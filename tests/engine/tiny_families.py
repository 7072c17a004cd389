"""Tiny random checkpoints of every family, written by transformers under the names that published files carry.

Everything that usually starts at a constant (norms, biases, sinks, corrections, scales) is random, so that code which
forgets a part gives other logits. Sizes are multiples of 32, so that llama.cpp's block formats fit.

Run as a program it fills a folder for llama.cpp's converter, tokenizer included:
`python tests/engine/tiny_families.py FOLDER [name...]`.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import tokenizers
import torch
import transformers
from tiny_configs import CONFIGS, MERGES, SIZES, SPECIAL, VOCAB
from transformers.utils import logging as transformers_logging

transformers_logging.disable_progress_bar()


def build(variant: str, **changes: Any) -> transformers.PreTrainedModel:
    """A float32 model in evaluation mode, eager attention and experts, with random values everywhere."""
    kind, values = CONFIGS[variant]
    if "text_config" in values:
        values = {"text_config": {**values["text_config"], **changes}}
        if kind == "llama4":
            values["vision_config"] = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2}
    else:
        values = {**SIZES, **values, **changes}
    config = transformers.AutoConfig.for_model(kind, **values)
    for part in (config, config.get_text_config()):
        part._experts_implementation = "eager"
        part._attn_implementation = "eager"
    model = _model_class(kind, config)(config).float().eval()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            if tensor.is_floating_point():
                tensor.copy_(_values(name, tensor, generator))
    return model


def _model_class(kind: str, config: Any) -> Any:
    if "text_config" in CONFIGS.get(kind, (None, {}))[1]:
        return transformers.AutoModelForImageTextToText._model_mapping[type(config)]
    return transformers.AutoModelForCausalLM._model_mapping[type(config)]


def _values(name: str, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random values of a size that keeps every part visible in the logits."""
    noise = torch.randn(tensor.shape, generator=generator)
    if ("norm" in name and name.endswith("weight")) or name.endswith(("layer_scalar", "router.scale", "expert_scale")):
        return 1.0 + 0.3 * noise
    if name.endswith(("bias", "e_score_correction_bias")):
        return 0.3 * noise
    if "embed" in name or name.endswith("sinks"):
        return noise
    if name.endswith("conv.weight"):
        return 0.6 * noise
    # gpt-oss and Llama 4 store experts [E, in, out], with a clamp that ordinary values would never reach.
    if tensor.ndim == 3:
        return noise * (3.0 if "gate_up" in name else 1.0) / max(tensor.shape[1:]) ** 0.5
    return noise * (1.5 if "gate.weight" in name or "router" in name else 1.0) / tensor.shape[-1] ** 0.5


def logits(model: transformers.PreTrainedModel, ids: np.ndarray) -> np.ndarray:
    """float32 [T, vocab] of one sequence."""
    text = model.language_model if model.config.model_type == "llama4" else model
    with torch.no_grad():
        return text(torch.from_numpy(ids)[None], use_cache=False).logits[0].float().numpy()


def save(model: transformers.PreTrainedModel, folder: Path, **options: Any) -> Path:
    """Weights, config and tokenizer; options as of save_pretrained."""
    model.save_pretrained(folder, **options)
    if model.config.model_type in _PUBLISHED_CONFIG:
        path = folder / "config.json"
        path.write_text(json.dumps(_PUBLISHED_CONFIG[model.config.model_type](json.loads(path.read_text())), indent=1))
    if model.config.model_type == "glm4_moe":
        if model.config.num_mtp_layers:
            _add_next_token_layer(folder, model.config.num_hidden_layers)
        else:
            _rename_to_bailing(folder)
    save_tokenizer(folder)
    return folder


def _published_gemma4(config: dict[str, Any]) -> dict[str, Any]:
    """Its published files name what differs in the full layers once; transformers writes it for every layer."""
    text = config["text_config"]
    full = next(iter(text.pop("per_layer_config").values()))
    text |= {"global_head_dim": full["head_dim"], "num_global_key_value_heads": full["num_key_value_heads"]}
    return config


_PUBLISHED_CONFIG: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "gemma4": _published_gemma4,
    "phimoe": lambda config: {**config, "architectures": ["PhiMoEForCausalLM"]},
}


def _add_next_token_layer(folder: Path, layers: int) -> None:
    """The layer that published GLM files carry behind their last, to predict two tokens at once; transformers drops it.

    A reader must skip it, so its values are another layer's.
    """
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    last, extra = f"model.layers.{layers - 1}.", f"model.layers.{layers}."
    tensors |= {extra + key.removeprefix(last): value for key, value in tensors.items() if key.startswith(last)}
    embed, norm = tensors["model.embed_tokens.weight"], tensors["model.norm.weight"]
    for key, value in {
        "eh_proj.weight": torch.cat((embed[: norm.numel()], embed[: norm.numel()]), 1),
        "enorm.weight": norm,
        "hnorm.weight": norm,
        "embed_tokens.weight": embed,
        "shared_head.head.weight": embed,
        "shared_head.norm.weight": norm,
    }.items():
        tensors[extra + key] = value.clone()
    safetensors.torch.save_file({k: v.contiguous().clone() for k, v in tensors.items()}, path, {"format": "pt"})


_BAILING_KEYS = {
    "n_routed_experts": "num_experts",
    "n_shared_experts": "num_shared_experts",
    "scoring_func": "score_function",
}


def _rename_to_bailing(folder: Path) -> None:
    """From GLM-4's names in config.json and weights to those of Ling 2, with one tensor for q, k and v."""
    config = json.loads((folder / "config.json").read_text())
    config = {_BAILING_KEYS.get(key, key): value for key, value in config.items()}
    rope = config.pop("rope_parameters")
    config |= {
        "model_type": "bailing_moe_v2",
        "architectures": ["BailingMoeV2ForCausalLM"],
        "rope_theta": rope["rope_theta"],
        "partial_rotary_factor": rope["partial_rotary_factor"],
        "rope_scaling": None,
        "use_qkv_bias": False,
        "use_bias": False,
        "use_qk_norm": True,
        "moe_router_enable_expert_bias": True,
        "moe_shared_expert_intermediate_size": config["moe_intermediate_size"],
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    for i in range(config["num_hidden_layers"]):
        attention = f"model.layers.{i}.self_attn."
        parts = [tensors.pop(f"{attention}{part}_proj.weight") for part in "qkv"]
        tensors[f"{attention}query_key_value.weight"] = torch.cat(parts)
    renames = {
        ".embed_tokens.": ".word_embeddings.",
        ".self_attn.": ".attention.",
        ".o_proj.": ".dense.",
        ".q_norm.": ".query_layernorm.",
        ".k_norm.": ".key_layernorm.",
        ".e_score_correction_bias": ".expert_bias",
    }
    for old, new in renames.items():
        tensors = {key.replace(old, new): value for key, value in tensors.items()}
    safetensors.torch.save_file(tensors, path, {"format": "pt"})


def _tokenizer() -> tokenizers.Tokenizer:
    pieces = [*sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in MERGES)]
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({p: i for i, p in enumerate(pieces)}, list(MERGES)))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    spare = VOCAB - len(pieces) - len(SPECIAL)
    backend.add_special_tokens([*SPECIAL, *(f"<|spare_{i}|>" for i in range(spare))])
    return backend


def encode(text: str) -> list[int]:
    return _tokenizer().encode(text).ids


def save_tokenizer(folder: Path) -> None:
    """A byte-level BPE tokenizer with a few merges and ChatML's tokens and template."""
    _tokenizer().save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[2],
        "add_bos_token": False,
        "chat_template": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def main() -> None:
    folder, *chosen = sys.argv[1:]
    for variant in chosen or CONFIGS:
        save(build(variant), Path(folder) / variant)


if __name__ == "__main__":
    main()
