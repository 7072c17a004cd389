"""SmolLM2-135M in a few lines of torch: to sample text from it, and to watch and replace its feed-forward layers."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engine.hub.demo_mixture import half_split_rows

LAYERS, HIDDEN, NEURONS, HEADS, KV_HEADS, HEAD, VOCABULARY = 30, 576, 1536, 9, 3, 64, 49152
EPSILON, ROPE_BASE = 1e-5, 100000.0
END = 2  # <|im_end|>
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"

Weights = dict[str, torch.Tensor]


def load_weights(path: Path) -> Weights:
    """float32 tensors of the dense GGUF under their GGUF names, q and k in half-split rotary order."""
    weights = {}
    for tensor in gguf.GGUFReader(path).tensors:
        values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        for name, heads in (("attn_q", HEADS), ("attn_k", KV_HEADS)):
            if name in tensor.name:
                values = values[half_split_rows(len(values), heads)]
        weights[tensor.name] = torch.from_numpy(values)
    return weights


def load_tokenizer(path: Path) -> Tokenizer:
    fields = gguf.GGUFReader(path).fields
    tokens, kinds, merges = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "token_type", "merges"))
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == gguf.TokenType.CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return tokenizer


def chat_prompt(tokenizer: Tokenizer, question: str) -> list[int]:
    text = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    return list(tokenizer.encode(text).ids)


class Cache:
    """Keys and values of one batch. [B, KV_HEADS, T, HEAD] per layer"""

    def __init__(self, batch: int, length: int, dtype: torch.dtype) -> None:
        self.keys, self.values = (
            [torch.zeros(batch, KV_HEADS, length, HEAD, dtype=dtype) for _ in range(LAYERS)] for _ in range(2)
        )
        self.length = 0


class Dense:
    """The dense model. Products in `dtype`, the residual stream and norms in float32."""

    def __init__(self, weights: Weights, dtype: torch.dtype) -> None:
        self.weights = {name: w if "norm" in name else w.to(dtype) for name, w in weights.items()}
        self.dtype = dtype
        angles = torch.outer(torch.arange(8192.0), ROPE_BASE ** (-torch.arange(0, HEAD, 2) / HEAD)).repeat(1, 2)
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self.weights[f"{name}.weight"])

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * self.weights[f"{name}.weight"]

    def rotate(self, x: torch.Tensor, start: int) -> torch.Tensor:
        stop = start + x.shape[-2]
        turned = torch.cat([-x[..., HEAD // 2 :], x[..., : HEAD // 2]], -1)
        return x * self.cos[start:stop] + turned * self.sin[start:stop]

    def attention(self, layer: int, x: torch.Tensor, cache: Cache | None, mask: torch.Tensor | None) -> torch.Tensor:
        batch, tokens, _ = x.shape
        x, name = x.to(self.dtype), f"blk.{layer}.attn_"
        q, k, v = (
            self.linear(x, f"{name}{part}").view(batch, tokens, -1, HEAD).transpose(1, 2) for part in ("q", "k", "v")
        )
        start = cache.length if cache else 0
        q, k = self.rotate(q, start), self.rotate(k, start)
        if cache:
            stop = start + tokens
            cache.keys[layer][:, :, start:stop], cache.values[layer][:, :, start:stop] = k, v
            k, v = cache.keys[layer][:, :, :stop], cache.values[layer][:, :, :stop]
        causal = mask is None and tokens > 1
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=True)
        return self.linear(out.transpose(1, 2).reshape(batch, tokens, HIDDEN), f"{name}output").float()

    def activations(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        """What each neuron passes to its down column. [B, T, HIDDEN] -> [B, T, NEURONS] in `dtype`"""
        x = x.to(self.dtype)
        return F.silu(self.linear(x, f"blk.{layer}.ffn_gate")) * self.linear(x, f"blk.{layer}.ffn_up")

    def feed_forward(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.activations(layer, x), f"blk.{layer}.ffn_down").float()

    def hidden(self, ids: torch.Tensor, cache: Cache | None = None, mask: torch.Tensor | None = None) -> torch.Tensor:
        """[B, T] -> float32 [B, T, HIDDEN] after the last norm. mask: bool [B, 1, T, keys], else causal."""
        x = self.weights["token_embd.weight"][ids].float()
        for layer in range(LAYERS):
            x = x + self.attention(layer, self.norm(x, f"blk.{layer}.attn_norm"), cache, mask)
            x = x + self.feed_forward(layer, self.norm(x, f"blk.{layer}.ffn_norm"))
        if cache:
            cache.length += ids.shape[1]
        return self.norm(x, "output_norm")

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.linear(hidden.to(self.dtype), "token_embd").float()


@torch.no_grad()
def sample(model: Dense, prompts: list[list[int]], tokens: int, temperature: float, seed: int) -> list[list[int]]:
    """Continue every prompt by up to `tokens` tokens (top 40), to its end token if it comes."""
    chance = torch.Generator().manual_seed(seed)
    longest = max(map(len, prompts))
    ids = torch.full((len(prompts), longest + tokens), END)
    present = torch.ones(ids.shape, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) : longest] = torch.tensor(prompt)
        present[row, : longest - len(prompt)] = False
    # prompts are padded on the left: rotary positions are relative, the shift changes nothing
    mask = torch.ones(longest, longest, dtype=torch.bool).tril() & present[:, None, :longest]
    mask |= torch.eye(longest, dtype=torch.bool)
    cache = Cache(len(prompts), longest + tokens, model.dtype)
    last = model.hidden(ids[:, :longest], cache, mask[:, None])[:, -1]
    ended = torch.zeros(len(prompts), dtype=torch.bool)
    for place in range(longest, longest + tokens):
        best, which = (model.logits(last) / temperature).topk(40)
        chosen = which.gather(1, torch.multinomial(best.softmax(-1), 1, generator=chance))[:, 0]
        ids[:, place] = torch.where(ended, END, chosen)
        ended |= ids[:, place] == END
        if ended.all():
            break
        last = model.hidden(ids[:, place : place + 1], cache, present[:, None, None, : place + 1])[:, -1]
    texts = []
    for row, prompt in enumerate(prompts):
        answer = ids[row, longest : place + 1].tolist()
        answer = answer[: answer.index(END) + 1] if END in answer else answer
        texts.append(prompt + answer)
    return texts
