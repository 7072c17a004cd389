"""Measure a GGUF file, dense or demo, through transformers in float32: independent of Greenroom's own engine.

    python measure.py MODEL.gguf [TEXT ...]      perplexity of each text file, then everyday questions

Protocol (that of `greenroom perplexity`): the text's tokens without a start token, windows of 512 that begin at every
256th token, each with an empty cache, every token but the first scored once by the first window that reaches it.
"""

from __future__ import annotations

import logging
import math
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from dense import END, chat_prompt, half_split_rows, load_tokenizer
from gguf.quants import dequantize
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2MoeConfig, Qwen2MoeForCausalLM

WINDOW, STRIDE = 512, 256
QUESTIONS = [
    "What is the capital of France?",
    "What is gravity?",
    "Who wrote Romeo and Juliet?",
    "What is 2 + 2?",
    "Give me three tips for sleeping better.",
    "Hello! Who are you?",
    "Write a short poem about the sea.",
    "Why is the sky blue?",
    "How do I make pancakes?",
    "What is the largest planet in the solar system?",
]
ATTENTION = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "output": "o_proj"}

log = logging.getLogger("measure")


def load(path: Path) -> PreTrainedModel:
    reader = gguf.GGUFReader(path)
    family = reader.fields["general.architecture"].contents()

    def header(key: str) -> Any:
        return reader.fields[f"{family}.{key}"].contents()

    common = {
        "vocab_size": header("vocab_size"),
        "hidden_size": header("embedding_length"),
        "intermediate_size": header("feed_forward_length"),
        "num_hidden_layers": header("block_count"),
        "num_attention_heads": header("attention.head_count"),
        "num_key_value_heads": header("attention.head_count_kv"),
        "max_position_embeddings": header("context_length"),
        "rms_norm_eps": header("attention.layer_norm_rms_epsilon"),
        "rope_parameters": {"rope_type": "default", "rope_theta": header("rope.freq_base")},
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": END,
        "pad_token_id": END,
    }
    tensors = {
        tensor.name.removesuffix(".weight"): torch.from_numpy(
            np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        )
        for tensor in reader.tensors
    }
    if family == "llama":
        model: PreTrainedModel = LlamaForCausalLM(LlamaConfig(**common))
    else:
        experts = {
            "num_experts": header("expert_count"),
            "num_experts_per_tok": header("expert_used_count"),
            "moe_intermediate_size": header("expert_feed_forward_length"),
            "shared_expert_intermediate_size": header("expert_shared_feed_forward_length"),
            "norm_topk_prob": False,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
        model = Qwen2MoeForCausalLM(Qwen2MoeConfig(**common, **experts))
    state = {
        "model.embed_tokens.weight": tensors["token_embd"],
        "model.norm.weight": tensors["output_norm"],
        "lm_head.weight": tensors.get("output", tensors["token_embd"]),
    }
    for layer in range(header("block_count")):
        block = {name.split(".", 2)[2]: t for name, t in tensors.items() if name.startswith(f"blk.{layer}.")}
        if family == "llama":
            for name in ("q", "k"):
                heads = header("attention.head_count" if name == "q" else "attention.head_count_kv")
                block[f"attn_{name}"] = block[f"attn_{name}"][half_split_rows(len(block[f"attn_{name}"]), heads)]
        state |= {f"model.layers.{layer}.{name}": tensor for name, tensor in layer_state(block).items()}
    model.load_state_dict(state, strict=True)
    return model.eval()


def layer_state(block: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    state = {"input_layernorm.weight": block["attn_norm"], "post_attention_layernorm.weight": block["ffn_norm"]}
    for name, theirs in ATTENTION.items():
        state[f"self_attn.{theirs}.weight"] = block[f"attn_{name}"]
        if f"attn_{name}.bias" in block:
            state[f"self_attn.{theirs}.bias"] = block[f"attn_{name}.bias"]
    projections = ("gate", "up", "down")
    if "ffn_gate_inp" not in block:
        return state | {f"mlp.{name}_proj.weight": block[f"ffn_{name}"] for name in projections}
    state |= {f"mlp.shared_expert.{name}_proj.weight": block[f"ffn_{name}_shexp"] for name in projections}
    state["mlp.gate.weight"] = block["ffn_gate_inp"]
    state["mlp.shared_expert_gate.weight"] = block["ffn_gate_inp_shexp"][None]
    state["mlp.experts.gate_up_proj"] = torch.cat([block["ffn_gate_exps"], block["ffn_up_exps"]], 1)
    state["mlp.experts.down_proj"] = block["ffn_down_exps"]
    return state


@torch.no_grad()
def perplexity(model: PreTrainedModel, ids: list[int]) -> tuple[float, int]:
    loss, scored, begin = 0.0, 1, 0
    while scored < len(ids):
        end = min(begin + WINDOW, len(ids))
        window = torch.tensor(ids[begin:end])
        first = scored - begin
        logits = model(window[None, :-1], logits_to_keep=len(window) - first).logits[0]
        loss += torch.nn.functional.cross_entropy(logits, window[first:], reduction="sum").item()
        scored, begin = end, begin + STRIDE
    return math.exp(loss / (len(ids) - 1)), len(ids) - 1


@torch.no_grad()
def answer(model: PreTrainedModel, tokenizer: Tokenizer, question: str, tokens: int = 60) -> str:
    ids = chat_prompt(tokenizer, question)
    out = model.generate(torch.tensor([ids]), max_new_tokens=tokens, do_sample=False)
    return str(tokenizer.decode(out[0, len(ids) :].tolist()))


def main(path: Path, texts: list[Path]) -> None:
    model, tokenizer = load(path), load_tokenizer(path)
    for question in QUESTIONS:
        log.info("%s\n    %s", question, answer(model, tokenizer, question))
    for text in texts:
        log.info(
            "%s: %.3f over %d tokens", text.name, *perplexity(model, tokenizer.encode(text.read_text("utf-8")).ids)
        )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(2)
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
