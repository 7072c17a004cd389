"""Grouped-query attention over the KV cache."""

from __future__ import annotations

from typing import Protocol

import torch
from torch.nn.functional import rms_norm, scaled_dot_product_attention

from engine.executors.kv_cache import KvCache, TorchKvCache
from engine.executors.linear import Linear
from engine.executors.rope import rotate
from engine.models.spec import AttentionSpec


class Attention(Protocol):
    """One layer's attention, projections included."""

    def __call__(self, x: torch.Tensor, turns: torch.Tensor, cache: KvCache, mask: torch.Tensor | None) -> torch.Tensor:
        """x float32 [T, hidden] -> float32 [T, hidden].

        turns: positions of the T tokens as `Rope.turns` gives them
        mask:  as `causal_mask` gives it where the cache is torch's, else None
        """


class TorchAttention:
    """On a torch device.

    qkv, o_bias: as in NativeAttention
    qkv_bias:    [rows of qkv] or None
    qk_norm:     float32 [heads + kv_heads, head_dim], weights of each head's RMS norm, or None
    """

    def __init__(
        self,
        layer: int,
        spec: AttentionSpec,
        norm_eps: float,
        qkv: Linear,
        o: Linear,
        qkv_bias: torch.Tensor | None,
        o_bias: torch.Tensor | None,
        qk_norm: torch.Tensor | None,
    ) -> None:
        self._layer = layer
        self._spec = spec
        self._norm_eps = norm_eps
        self._qkv, self._o = qkv, o
        self._qkv_bias, self._o_bias = qkv_bias, o_bias
        self._qk_norm = qk_norm
        self._scale = spec.head_dim**-0.5 if spec.scale is None else spec.scale

    def __call__(self, x: torch.Tensor, turns: torch.Tensor, cache: KvCache, mask: torch.Tensor | None) -> torch.Tensor:
        assert isinstance(cache, TorchKvCache)
        spec, tokens = self._spec, x.shape[0]
        qkv = self._qkv(x)
        if self._qkv_bias is not None:
            qkv += self._qkv_bias
        heads = qkv.view(tokens, -1, spec.head_dim)
        rotated = heads.narrow(1, 0, spec.heads + spec.kv_heads)
        if self._qk_norm is not None:
            torch.mul(rms_norm(rotated, (spec.head_dim,), None, self._norm_eps), self._qk_norm, out=rotated)
        rotate(rotated, turns)
        keys, values = cache.append(self._layer, heads.narrow(1, spec.heads, 2 * spec.kv_heads))
        out = self._o(self._attend(heads.narrow(1, 0, spec.heads), keys, values, mask))
        if self._o_bias is not None:
            out += self._o_bias
        return out

    def _attend(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """q [T, heads, head_dim], keys and values [kv_heads, L, head_dim] -> float32 [T, heads * head_dim]."""
        tokens, heads, head_dim = q.shape
        kv_heads, group = keys.shape[0], heads // keys.shape[0]
        q = q.to(keys.dtype)
        if tokens == 1:
            # The heads that share keys stand in as query positions: keys are read once, and nothing is masked.
            q = q.view(1, kv_heads, group, head_dim)
            y = scaled_dot_product_attention(q, keys[None], values[None], scale=self._scale)
            return y.reshape(1, -1).float()
        q = q.view(tokens, kv_heads, group, head_dim).permute(1, 2, 0, 3)
        keys = keys[:, None].expand(-1, group, -1, -1)
        values = values[:, None].expand(-1, group, -1, -1)
        y = scaled_dot_product_attention(q, keys, values, mask, is_causal=mask is None, scale=self._scale)
        return y.permute(2, 0, 1, 3).reshape(tokens, -1).float()


def causal_mask(start: int, tokens: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor | None:
    """Added to the scores of tokens at start..start+tokens-1 over everything up to them: 0 where visible, else -inf.

    [tokens, start + tokens]; None where attention's own causal form, or no mask at all, says the same.
    """
    if start == 0 or tokens == 1:
        return None
    mask = torch.full((tokens, start + tokens), float("-inf"), dtype=dtype, device=device)
    return mask.triu_(start + 1)
