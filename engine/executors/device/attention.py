"""Grouped-query attention on a torch device, with every switch of `AttentionSpec`."""

from __future__ import annotations

import torch
from torch.nn.functional import rms_norm, scaled_dot_product_attention

from engine.executors.device.states import TorchKv
from engine.executors.linear import Linear
from engine.executors.step import Step
from engine.models.spec import AttentionSpec
from engine.placement.sizes import SINK_SCORES


class TorchAttention:
    """qkv:      q above k above v, [heads + 2 kv_heads] * head_dim rows; rotated pairs are neighbours
    qkv_bias: [rows of qkv] or None
    o_bias:   [hidden] or None
    qk_norm:  float32 [heads + kv_heads, head_dim], weights of the norms of q and k, or None
    sinks:    float32 [heads] or None
    """

    def __init__(
        self,
        spec: AttentionSpec,
        norm_eps: float,
        state: TorchKv,
        qkv: Linear,
        o: Linear,
        qkv_bias: torch.Tensor | None = None,
        o_bias: torch.Tensor | None = None,
        qk_norm: torch.Tensor | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        self._spec = spec
        self._norm_eps = norm_eps
        self._state = state
        self._qkv, self._o = qkv, o
        self._qkv_bias, self._o_bias = qkv_bias, o_bias
        self._qk_norm = qk_norm
        self._sinks = sinks

    def __call__(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """x float32 [T, hidden] -> float32 [T, hidden]."""
        heads = self._prepared(x, step)
        spec, state = self._spec, self._state
        keys, values = state.append(step.start, heads[:, spec.heads :])
        mask = step.mask(spec, state.first_seen(step.start), keys.dtype)
        attend = self._attend if self._sinks is None else self._attend_with_sinks
        attended = attend(heads[:, : spec.heads].to(keys.dtype), keys, values, mask)
        del keys, values  # read from a cache of codes they are as large as the conversation is long
        out = self._o(attended)
        if self._o_bias is not None:
            out += self._o_bias
        return out

    def _prepared(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """float32 [T, heads + 2 kv_heads, head_dim]: q, k and v as attention takes them."""
        spec = self._spec
        qkv = self._qkv(x)
        if self._qkv_bias is not None:
            qkv += self._qkv_bias
        heads = qkv.view(x.shape[0], -1, spec.head_dim)
        turned = heads[:, : spec.heads + spec.kv_heads]
        if spec.qk_norm == "full":
            self._normalise(turned)
        if spec.clip_qkv is not None:
            qkv.clamp_(-spec.clip_qkv, spec.clip_qkv)
        if spec.qk_norm in ("head", "l2") and not spec.norm_after_rope:
            self._normalise(turned)
        if spec.rope is not None:
            rotate(turned, step.turns(spec.rope))
        if spec.norm_after_rope:
            self._normalise(turned)
        if spec.v_norm:
            v = heads[:, spec.heads + spec.kv_heads :]
            v.copy_(rms_norm(v, (spec.head_dim,), None, self._norm_eps))
        if spec.temperature is not None:
            heads[:, : spec.heads].mul_(step.temperature(spec.temperature))
        return heads

    def _normalise(self, heads: torch.Tensor) -> None:
        """RMS norm of q and k, [T, heads + kv_heads, head_dim], in place."""
        spec = self._spec
        if spec.qk_norm == "full":
            for part in (heads[:, : spec.heads], heads[:, spec.heads :]):
                part.mul_(torch.rsqrt(part.square().mean((1, 2), keepdim=True) + self._norm_eps))
        else:
            heads.copy_(rms_norm(heads, (spec.head_dim,), None, self._norm_eps))
        if self._qk_norm is not None:
            heads.mul_(self._qk_norm)

    def _attend(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """q [T, heads, head_dim], keys and values [kv_heads, n, head_dim] -> float32 [T, heads * head_dim]."""
        tokens, heads, head_dim = q.shape
        kv_heads, group = keys.shape[0], heads // keys.shape[0]
        scale = self._spec.score_scale
        if tokens == 1:
            # The heads that share keys stand in as query positions: keys are read once.
            q = q.reshape(1, kv_heads, group, head_dim)
            y = scaled_dot_product_attention(q, keys[None], values[None], mask, scale=scale)
            return y.reshape(1, -1).float()
        q = q.reshape(tokens, kv_heads, group, head_dim).permute(1, 2, 0, 3)
        keys = keys[:, None].expand(-1, group, -1, -1)
        values = values[:, None].expand(-1, group, -1, -1)
        y = scaled_dot_product_attention(q, keys, values, mask, is_causal=mask is None, scale=scale)
        return y.permute(2, 0, 1, 3).reshape(tokens, -1).float()

    def _attend_with_sinks(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """The same where a logit per head takes part in the softmax, which torch's fused kernels do not offer."""
        assert self._sinks is not None
        tokens, heads, head_dim = q.shape
        kv_heads, group, seen = keys.shape[0], heads // keys.shape[0], keys.shape[1]
        if mask is None and tokens > 1:
            mask = torch.full((tokens, seen), float("-inf"), dtype=keys.dtype, device=keys.device).triu_(1)
        sinks = self._sinks.view(kv_heads, group, 1, 1)
        outputs = []
        rows = max(1, SINK_SCORES // (heads * seen))
        for first in range(0, tokens, rows):
            part = slice(first, first + rows)
            queries = q[part].reshape(-1, kv_heads, group, head_dim).permute(1, 2, 0, 3)
            scores = torch.matmul(queries, keys[:, None].mT).float().mul_(self._spec.score_scale)
            if mask is not None:
                scores += mask[part]
            most = torch.maximum(scores.amax(-1, keepdim=True), sinks)
            shares = scores.sub_(most).exp_()
            shares /= shares.sum(-1, keepdim=True) + torch.exp(sinks - most)
            y = torch.matmul(shares.to(values.dtype), values[:, None])
            outputs.append(y.permute(2, 0, 1, 3).reshape(-1, heads * head_dim).float())
        return torch.cat(outputs)


def rotate(heads: torch.Tensor, turns: torch.Tensor) -> None:
    """Rotate float32 [T, n, head_dim] in place; the dimensions beyond the rotated ones stay."""
    dim = 2 * turns.shape[-1]
    part = heads if dim == heads.shape[-1] else heads[..., :dim]
    torch.view_as_complex(part.view(*part.shape[:-1], -1, 2)).mul_(turns)
