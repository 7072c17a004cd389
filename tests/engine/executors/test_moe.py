"""The router, and experts on the device against experts in RAM."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.executors.device.blocks import TorchMlp, TorchRmsNorm, activate
from engine.executors.device.experts import DeviceExperts, ExpertMatrices, LayerExperts
from engine.executors.device.router import Router, route
from engine.executors.devices import HostDevice
from engine.executors.moe import Moe
from engine.executors.native.blocks import NativeRouter
from engine.models.spec import MlpSpec, MoeSpec


@given(
    experts=st.integers(1, 12),
    top_k=st.integers(1, 12),
    renormalise=st.booleans(),
    scale=st.sampled_from([1.0, 2.5]),
    seed=st.integers(0, 99),
)
def test_route_takes_the_best_experts(experts: int, top_k: int, renormalise: bool, scale: float, seed: int) -> None:
    top_k = min(top_k, experts)
    spec = MoeSpec(experts, top_k, 32, renormalise=renormalise, scale=scale)
    logits = np.random.default_rng(seed).standard_normal((5, experts)).astype(np.float32)
    weights, ids = route(spec, torch.from_numpy(logits))
    for row, w, chosen in zip(logits.astype(np.float64), weights.numpy(), ids.numpy(), strict=True):
        shares = np.exp(row) / np.exp(row).sum()
        best = np.argsort(-row)[:top_k]
        np.testing.assert_array_equal(chosen, best)
        expected = shares[best] / (shares[best].sum() if renormalise else 1.0) * scale
        np.testing.assert_allclose(w, expected, rtol=1e-5)


def plain_route(spec: MoeSpec, logits: np.ndarray, choice_bias: np.ndarray | None) -> list[dict[int, float]]:
    """float64, a token at a time: which experts, and how much each counts."""
    chosen = []
    for row in logits.astype(np.float64):
        if spec.score == "sparsemixer":
            chosen.append(plain_sparsemixer(spec, row))
            continue
        scores = 1 / (1 + np.exp(-row)) if spec.score == "sigmoid" else np.exp(row) / np.exp(row).sum()
        marks = (row if spec.score == "topk_softmax" else scores) + (0 if choice_bias is None else choice_bias)
        size = spec.experts // spec.groups
        groups = [sorted(marks[g * size : (g + 1) * size])[::-1] for g in range(spec.groups)]
        worth = [sum(group[:2]) if spec.group_score == "top2" else group[0] for group in groups]
        open_groups = np.argsort(worth)[::-1][: spec.top_groups]
        allowed = [e for e in range(spec.experts) if e // size in open_groups]
        best = sorted(allowed, key=lambda e: -marks[e])[: spec.top_k]
        weights = np.exp(row[best]) / np.exp(row[best]).sum() if spec.score == "topk_softmax" else scores[best]
        if spec.renormalise:
            weights = weights / max(weights.sum() + spec.renormalise_eps, spec.renormalise_min)
        chosen.append(dict(zip(best, weights * spec.scale, strict=True)))
    return chosen


def plain_sparsemixer(spec: MoeSpec, row: np.ndarray) -> dict[int, float]:
    weights: dict[int, float] = {}
    for _ in range(spec.top_k):
        left = [e for e in range(spec.experts) if e not in weights]
        best = max(left, key=lambda e: row[e])
        near = [e for e in left if (row[best] - row[e]) / max(abs(row[e]), row[best]) <= 2 * spec.jitter]
        weights[best] = float(np.exp(row[best]) / np.exp(row[near]).sum())
    return weights


@st.composite
def routers(draw: st.DrawFn) -> MoeSpec:
    groups = draw(st.sampled_from([1, 1, 2, 4]))
    experts = groups * draw(st.integers(2, 4))
    top_groups = draw(st.integers(1, groups))
    score = draw(st.sampled_from(["softmax", "sigmoid", "topk_softmax", "sparsemixer"]))
    if score in ("topk_softmax", "sparsemixer"):
        return MoeSpec(experts, draw(st.integers(1, 2)), 32, score=score, jitter=draw(st.sampled_from([0.01, 0.3])))
    return MoeSpec(
        experts,
        draw(st.integers(1, top_groups * experts // groups)),
        32,
        score=score,
        choice_bias=draw(st.booleans()),
        groups=groups,
        top_groups=top_groups,
        group_score=draw(st.sampled_from(["top2", "max"])),
        renormalise=draw(st.booleans()),
        renormalise_eps=draw(st.sampled_from([0.0, 0.5])),
        renormalise_min=draw(st.sampled_from([0.0, 0.9])),
        scale=draw(st.sampled_from([1.0, 2.5])),
    )


@settings(max_examples=150, deadline=None)
@given(spec=routers(), seed=st.integers(0, 999))
def test_every_switch_of_the_router(spec: MoeSpec, seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((4, spec.experts)).astype(np.float32)
    bias = rng.standard_normal(spec.experts).astype(np.float32) if spec.choice_bias else None
    choice_bias = None if bias is None else torch.from_numpy(bias)
    x = torch.from_numpy(logits)
    native = NativeRouter(spec, Plain(np.eye(spec.experts)), None, None, choice_bias)(x, x)
    for weights, ids in (route(spec, x, choice_bias), native[:2]):
        for w, chosen, expected in zip(weights.numpy(), ids.numpy(), plain_route(spec, logits, bias), strict=True):
            assert set(chosen.tolist()) == set(expected)
            np.testing.assert_allclose(w, [expected[e] for e in chosen.tolist()], rtol=2e-5)


class Plain:
    """A linear layer in float32."""

    def __init__(self, weight: np.ndarray) -> None:
        self._weight = torch.from_numpy(weight.astype(np.float32))
        self.rows, self.nbytes = self._weight.shape[0], self._weight.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self._weight.T


@pytest.mark.parametrize("kind", [Router, NativeRouter])
def test_router_with_norm_bias_and_expert_scale(kind: type[Router] | type[NativeRouter]) -> None:
    rng = np.random.default_rng(4)
    weight, x, residual = rng.standard_normal((6, 8)), *rng.standard_normal((2, 3, 8)).astype(np.float32)
    bias, factors = rng.standard_normal((2, 6)).astype(np.float32)
    scale = rng.standard_normal(8).astype(np.float32)
    spec = MoeSpec(6, 2, 32, renormalise=True, router_norm=True, router_bias=True, expert_scale=True)
    norm = TorchRmsNorm(torch.from_numpy(scale), 1e-3)
    router = kind(spec, Plain(weight), norm, torch.from_numpy(bias), None, torch.from_numpy(factors))
    weights, ids, gate = router(torch.from_numpy(x), torch.from_numpy(residual))
    assert gate is None
    normed = residual / np.sqrt((residual.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-3) * scale
    for w, chosen, row in zip(weights.numpy(), ids.numpy(), normed @ weight.T + bias, strict=True):
        np.testing.assert_array_equal(chosen, np.argsort(-row)[:2])
        shares = np.exp(row[chosen]) / np.exp(row[chosen]).sum() * factors[chosen]
        np.testing.assert_allclose(w, shares, rtol=1e-4)


@pytest.mark.parametrize("kind", [Router, NativeRouter])
def test_a_gate_for_the_shared_expert(kind: type[Router] | type[NativeRouter]) -> None:
    logits = torch.tensor([[3.0, 1.0, 2.0, -0.5], [0.0, 1.0, 2.0, 4.0]])
    _, ids, gate = kind(MoeSpec(3, 2, 32, shared=MlpSpec(8), shared_gated=True), Plain(np.eye(4)))(logits, logits)
    np.testing.assert_array_equal(ids, [[0, 2], [2, 1]])
    np.testing.assert_allclose(gate, 1 / (1 + np.exp([[0.5], [-4.0]])), rtol=1e-6)


def test_an_unknown_score_is_refused() -> None:
    with pytest.raises(ValueError, match="cosine"):
        route(MoeSpec(2, 1, 32, score="cosine"), torch.zeros(1, 2))
    with pytest.raises(ValueError, match="median"):
        route(MoeSpec(4, 1, 32, score="sigmoid", groups=2, group_score="median"), torch.zeros(1, 4))


def plain_activation(spec: MlpSpec, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    if spec.limit is not None:
        gate, up = np.minimum(gate, spec.limit), np.clip(up, -spec.limit, spec.limit)
    if spec.activation == "oai":
        return gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
    if spec.activation == "gelu_tanh":
        return 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up
    return gate / (1 + np.exp(-gate)) * up


MLPS = [
    MlpSpec(5),
    MlpSpec(5, limit=0.7),
    MlpSpec(5, "gelu_tanh"),
    MlpSpec(5, "oai"),
    MlpSpec(5, "oai", limit=0.7, bias=True),
    MlpSpec(5, "silu", bias=True),
]


@pytest.mark.parametrize("spec", MLPS)
def test_every_activation(spec: MlpSpec) -> None:
    rng = np.random.default_rng(1)
    gate_up, down, x = (rng.standard_normal(shape) for shape in ((10, 8), (8, 5), (3, 8)))
    wide, narrow = rng.standard_normal(10), rng.standard_normal(8)
    biases = (torch.from_numpy(wide).float(), torch.from_numpy(narrow).float()) if spec.bias else None
    gate, up = np.split(x @ gate_up.T + (wide if spec.bias else 0), 2, axis=1)
    expected = plain_activation(spec, gate, up) @ down.T + (narrow if spec.bias else 0)
    out = torch.ones(3, 8)
    TorchMlp(spec, Plain(gate_up), Plain(down), biases).add(torch.from_numpy(x).float(), out)
    np.testing.assert_allclose(out.numpy() - 1, expected, atol=1e-4)
    TorchMlp(spec, Plain(gate_up), Plain(down), biases).add(torch.from_numpy(x).float(), out, torch.full((3, 1), -1.0))
    np.testing.assert_allclose(out.numpy(), np.ones((3, 8)), atol=1e-4)


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ValueError, match="sine"):
        activate(MlpSpec(2, "sine"), torch.zeros(1, 4))


@pytest.mark.parametrize("spec", MLPS)
@given(tokens=st.integers(1, 6), top_k=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_experts_on_the_device(spec: MlpSpec, tokens: int, top_k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    gate_up, down, x, wide, narrow = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((4, 10, 8), (4, 8, 5), (tokens, 8), (4, 10), (4, 8))
    )
    ids = np.stack([rng.permutation(4)[:top_k] for _ in range(tokens)]).astype(np.int32)
    weights = rng.random((tokens, top_k)).astype(np.float32)
    expected = np.ones((tokens, 8))
    for t in range(tokens):
        for slot, e in enumerate(ids[t]):
            gate, up = np.split(gate_up[e].astype(np.float64) @ x[t] + (wide[e] if spec.bias else 0), 2)
            y = down[e] @ plain_activation(spec, gate, up) + (narrow[e] if spec.bias else 0)
            expected[t] += weights[t, slot] * y
    out = torch.ones(tokens, 8)
    bias = tuple(map(torch.from_numpy, (wide[:, :5], wide[:, 5:], narrow))) if spec.bias else None
    gate, up, downs = (
        ExpertMatrices(torch.from_numpy(np.ascontiguousarray(part)), torch.float32)
        for part in (gate_up[:, :5], gate_up[:, 5:], down)
    )
    store = DeviceExperts(HostDevice(), {3: LayerExperts(spec, gate, up, downs, bias)}, "float32 on cpu")
    store.forward(3, torch.from_numpy(x), torch.from_numpy(ids), torch.from_numpy(weights), out)
    np.testing.assert_allclose(out.numpy(), expected, atol=1e-3)
    store.close()


class Recording:
    """Experts that multiply by their number plus one; with overlap it keeps a job as the real store does."""

    def __init__(self, overlaps: bool) -> None:
        self.overlaps = overlaps
        self._job: torch.Tensor | None = None

    def _result(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        assert x.is_contiguous()
        assert ids.is_contiguous()
        assert weights.is_contiguous()
        # Squared, so that weighing the input shows.
        return ((ids + 1.0) * weights).sum(1, keepdim=True) * x.square()

    def forward(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> None:
        assert layer == 7
        assert not self.overlaps
        out += self._result(x, ids, weights)

    def submit(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> None:
        assert layer == 7
        assert self._job is None
        self._job = self._result(x, ids, weights)

    def wait(self, out: torch.Tensor) -> None:
        assert self._job is not None
        out += self._job
        self._job = None


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("weigh_input", [False, True])
@pytest.mark.parametrize("top_k", [1, 2])
def test_weights_act_on_the_output_or_the_input(overlaps: bool, weigh_input: bool, top_k: int) -> None:
    spec = MoeSpec(2, top_k, 32, score="sigmoid", weigh_input=weigh_input)
    moe = Moe(7, spec, Router(spec, Plain(np.array([[1.0], [-1.0]]))), Recording(overlaps), None)
    x, out = torch.tensor([[0.5], [2.0]]), torch.zeros(2, 1)
    moe.add(x, out)
    expected = []
    for value in (0.5, 2.0):
        shares = [(e, 1 / (1 + np.exp(-sign * value))) for e, sign in ((0, 1), (1, -1))][:top_k]
        expected.append(sum((e + 1) * ((w * value) ** 2 if weigh_input else w * value**2) for e, w in shares))
    np.testing.assert_allclose(out[:, 0].numpy(), expected, rtol=1e-5)
