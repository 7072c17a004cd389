"""The router, and experts on the device against experts in RAM."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.executors.device_experts import DeviceExperts
from engine.executors.moe import route
from engine.models.spec import MoeSpec


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
    assert ids.dtype == torch.int32
    assert ids.is_contiguous()
    assert weights.is_contiguous()
    for row, w, chosen in zip(logits.astype(np.float64), weights.numpy(), ids.numpy(), strict=True):
        shares = np.exp(row) / np.exp(row).sum()
        best = np.argsort(-row)[:top_k]
        np.testing.assert_array_equal(chosen, best)
        expected = shares[best] / (shares[best].sum() if renormalise else 1.0) * scale
        np.testing.assert_allclose(w, expected, rtol=1e-5)


def test_an_unknown_score_is_refused() -> None:
    with pytest.raises(ValueError, match="sigmoid"):
        route(MoeSpec(2, 1, 32, score="sigmoid"), torch.zeros(1, 2))


@given(tokens=st.integers(1, 6), top_k=st.integers(1, 4), seed=st.integers(0, 99))
def test_experts_on_the_device(tokens: int, top_k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    gate_up = rng.standard_normal((4, 10, 8)).astype(np.float32)
    down = rng.standard_normal((4, 8, 5)).astype(np.float32)
    x = rng.standard_normal((tokens, 8)).astype(np.float32)
    ids = np.stack([rng.permutation(4)[:top_k] for _ in range(tokens)]).astype(np.int32)
    weights = rng.random((tokens, top_k)).astype(np.float32)
    expected = np.ones((tokens, 8))
    for t in range(tokens):
        for slot in range(top_k):
            gate, up = np.split(gate_up[ids[t, slot]].astype(np.float64) @ x[t], 2)
            expected[t] += weights[t, slot] * (down[ids[t, slot]] @ (gate / (1 + np.exp(-gate)) * up))
    out = torch.ones(tokens, 8)
    store = DeviceExperts({3: (torch.from_numpy(gate_up), torch.from_numpy(down))}, "float32 on cpu")
    store.forward(3, torch.from_numpy(x), torch.from_numpy(ids), torch.from_numpy(weights), out)
    np.testing.assert_allclose(out.numpy(), expected, atol=1e-3)
