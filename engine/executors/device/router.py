"""The router's choice on a torch device."""

from __future__ import annotations

import torch

from engine.executors.linear import Linear
from engine.executors.norms import Norm
from engine.models.spec import MoeSpec


class Router:
    """Chooses experts, and how much each counts.

    logits: [experts, hidden], with the shared expert's gate as one more row when that is gated
    norm:   of the residual stream, which the router then reads; or None
    bias, choice_bias, expert_scale: float32 [experts], as the spec asks for them
    """

    def __init__(
        self,
        spec: MoeSpec,
        logits: Linear,
        norm: Norm | None = None,
        bias: torch.Tensor | None = None,
        choice_bias: torch.Tensor | None = None,
        expert_scale: torch.Tensor | None = None,
    ) -> None:
        self._spec = spec
        self._logits = logits
        self._norm = norm
        self._bias, self._choice_bias, self._expert_scale = bias, choice_bias, expert_scale

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        spec = self._spec
        logits = self._logits(x if self._norm is None else self._norm(residual))
        factors = _sigmoid(logits[:, spec.experts :]).contiguous() if spec.shared_gated else None
        logits = logits[:, : spec.experts]
        if self._bias is not None:
            logits = logits + self._bias
        weights, ids = route(spec, logits, self._choice_bias)
        if self._expert_scale is not None:
            weights = weights * self._expert_scale[ids]
        return weights, ids.int(), factors


def route(
    spec: MoeSpec, logits: torch.Tensor, choice_bias: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """logits float32 [T, experts] -> weights float32 [T, top_k] and ids int64 [T, top_k], best first."""
    if spec.score == "sparsemixer":
        return _sparsemixer(spec, logits)
    if spec.score == "topk_softmax" or (spec.score == "softmax" and spec.renormalise and _plain(spec)):
        # Softmax over the chosen logits is softmax over all, divided by the chosen sum.
        best, ids = logits.topk(spec.top_k)
        weights = best.softmax(-1)
    else:
        scores = _scores(spec, logits)
        if spec.score == "softmax" and choice_bias is None and spec.groups == 1:
            # The same order as the logits', which rounding keeps further apart: scores of even routers are often equal.
            ids = logits.topk(spec.top_k).indices
        else:
            ids = _choice(spec, scores if choice_bias is None else scores + choice_bias)
        weights = scores.gather(-1, ids)
        if spec.renormalise:
            weights = weights / (weights.sum(-1, keepdim=True) + spec.renormalise_eps).clamp(min=spec.renormalise_min)
    if spec.scale != 1.0:
        weights = weights * spec.scale
    return weights, ids


def _plain(spec: MoeSpec) -> bool:
    """Whether experts are chosen by their logits alone and weights are divided by their very sum."""
    bent = spec.choice_bias or spec.groups > 1 or spec.renormalise_eps > 0 or spec.renormalise_min > 0
    return not bent


def _scores(spec: MoeSpec, logits: torch.Tensor) -> torch.Tensor:
    if spec.score == "softmax":
        return logits.softmax(-1)
    if spec.score == "sigmoid":
        return _sigmoid(logits)
    raise ValueError(f"router score {spec.score}")


def _sigmoid(x: torch.Tensor) -> torch.Tensor:
    """On the CPU the same bits for a token in any company: float32's last one depends on where torch's vectors end."""
    return x.double().sigmoid().float() if x.device.type == "cpu" else x.sigmoid()


def _choice(spec: MoeSpec, scores: torch.Tensor) -> torch.Tensor:
    """ids int64 [T, top_k] of the best scores [T, experts], from the best groups only."""
    if spec.groups > 1:
        grouped = scores.view(scores.shape[0], spec.groups, -1)
        if spec.group_score == "top2":
            marks = grouped.topk(min(2, grouped.shape[-1])).values.sum(-1)
        elif spec.group_score == "max":
            marks = grouped.amax(-1)
        else:
            raise ValueError(f"group score {spec.group_score}")
        best = marks.topk(spec.top_groups).indices
        shut = torch.ones_like(marks, dtype=torch.bool).scatter_(1, best, value=False)
        scores = grouped.masked_fill(shut[..., None], float("-inf")).flatten(1)
    return scores.topk(spec.top_k).indices


def _sparsemixer(spec: MoeSpec, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """SparseMixer-v2 without its noise (Liu et al. 2023; Phi-3.5-MoE).

    Expert by expert: the best logit left wins, and weighs its share of a softmax over those left that are within
    2 jitter of it, relative to the larger of their size and the best logit.
    """
    left = logits
    weights, ids = [], []
    for _ in range(spec.top_k):
        best, winner = left.max(-1, keepdim=True)
        near = (best - logits) / logits.abs().clamp(min=best) <= 2 * spec.jitter
        weights.append(left.masked_fill(~near, float("-inf")).softmax(-1).gather(-1, winner))
        ids.append(winner)
        left = left.scatter(-1, winner, float("-inf"))
    return torch.cat(weights, -1), torch.cat(ids, -1)
