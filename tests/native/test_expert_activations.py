"""What lies between an expert's projections: every activation, limits and biases, against float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import _native

EPSILON = 2.0**-24
TIERS = _native.tiers()
PARTS = ("gate", "up", "down")
Floats = npt.NDArray[np.float32]
Exact = npt.NDArray[np.float64]


def activation(name: str, g: Exact, u: Exact) -> tuple[Exact, Exact, Exact]:
    """act(g), what it is multiplied by, and the argument of its exponential."""
    if name == "silu":
        argument, factor = g, u
    elif name == "gelu_tanh":
        argument, factor = 2 * np.sqrt(2 / np.pi) * (g + 0.044715 * g**3), u
    else:
        argument, factor = 1.702 * g, u + 1
    with np.errstate(over="ignore"):
        return g / (1 + np.exp(-argument)), factor, argument


@dataclass
class Layer:
    native: _native.Experts
    weights: list[dict[str, Floats]]
    biases: list[dict[str, Floats]]
    name: str
    limit: float

    @classmethod
    def random(
        cls, pool: _native.ThreadPool, experts: int, hidden: int, inner: int, name: str, limit: float, biased: bool,
        isa: str | None, seed: int,
    ) -> Layer:  # fmt: skip
        rng = np.random.default_rng(seed)
        native = _native.Experts(
            experts, hidden, inner, "F32", "F32", "F32", None, isa, activation=name, limit=limit, bias=biased
        )
        layer = cls(native, [], [], name, limit)
        for expert in range(experts):
            shapes = {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
            layer.weights.append({p: rng.standard_normal(s).astype(np.float32) for p, s in shapes.items()})
            layer.biases.append({p: rng.standard_normal(s[0]).astype(np.float32) for p, s in shapes.items()})
            for part in PARTS:
                native.load(pool, expert, part, layer.weights[-1][part].reshape(-1).view(np.uint8))
                if biased:
                    native.load_bias(expert, part, layer.biases[-1][part])
                else:
                    layer.biases[-1][part][:] = 0
        return layer

    def forward(self, pool: _native.ThreadPool, x: Floats, ids: npt.NDArray[np.int32], weights: Floats) -> Floats:
        x, y = np.ascontiguousarray(x), np.empty_like(x)
        ids, weights = np.ascontiguousarray(ids), np.ascontiguousarray(weights)
        addresses = [a.ctypes.data for a in (ids, weights)]
        self.native.forward(pool, x.ctypes.data, len(x), *addresses, ids.shape[1], y.ctypes.data)
        return y

    def expected(self, x: Floats, ids: npt.NDArray[np.int32], weights: Floats) -> tuple[Exact, Exact]:
        """float64, and how far float32 may be from it: one rounding per product and sum, slopes of at most 1.13."""
        total, bound = np.zeros(x.shape), np.zeros(x.shape)
        most = self.limit or np.inf
        for t, token in enumerate(x.astype(np.float64)):
            for slot, e in enumerate(ids[t]):
                if e < 0:
                    continue
                w = {part: values.astype(np.float64) for part, values in self.weights[e].items()}
                b = {part: values.astype(np.float64) for part, values in self.biases[e].items()}
                g, u = (np.minimum(w[p] @ token + b[p], most) for p in ("gate", "up"))
                u = np.maximum(u, -most)
                g_err, u_err = (
                    (len(token) + 2) * EPSILON * (np.abs(w[p]) @ np.abs(token) + np.abs(b[p])) for p in ("gate", "up")
                )
                act, factor, argument = activation(self.name, g, u)
                h = act * factor
                h_err = 1.13 * g_err * (np.abs(factor) + u_err) + np.abs(act) * u_err
                h_err += (12 + np.minimum(np.abs(argument), 2)) * EPSILON * (np.abs(h) + np.abs(g * factor))
                one = w["down"] @ h + b["down"]
                one_err = np.abs(w["down"]) @ (h_err + (len(h) + 2) * EPSILON * np.abs(h)) + EPSILON * np.abs(b["down"])
                total[t] += weights[t, slot] * one
                bound[t] += np.abs(weights[t, slot]) * (one_err + (ids.shape[1] + 1) * 2 * EPSILON * np.abs(one))
        return total, bound + 1e-30


@settings(max_examples=30, deadline=None)
@given(
    experts=st.integers(1, 5),
    hidden=st.integers(1, 70),
    inner=st.integers(1, 70),
    tokens=st.integers(1, 20),
    name=st.sampled_from(["silu", "gelu_tanh", "oai"]),
    limit=st.sampled_from([0.0, 0.5, 7.0]),
    biased=st.booleans(),
    isa=st.sampled_from(TIERS),
    seed=st.integers(0, 99),
)
def test_any_shape(
    pool: _native.ThreadPool, experts: int, hidden: int, inner: int, tokens: int, name: str, limit: float,
    biased: bool, isa: str, seed: int,
) -> None:  # fmt: skip
    layer = Layer.random(pool, experts, hidden, inner, name, limit, biased, isa, seed)
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((tokens, hidden)).astype(np.float32)
    ids = np.stack([rng.permutation(experts)[: min(2, experts)] for _ in range(tokens)]).astype(np.int32)
    ids[rng.random(ids.shape) < 0.2] = -1
    weights = rng.uniform(-0.2, 1, ids.shape).astype(np.float32)
    exact, bound = layer.expected(x, ids, weights)
    assert np.all(np.abs(layer.forward(pool, x, ids, weights) - exact) <= bound)


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("name", ["gelu_tanh", "oai"])
def test_each_value_to_a_few_units_in_the_last_place(pool: _native.ThreadPool, isa: str, name: str) -> None:
    """Identity weights leave act(x) * x, or (x + 1): fine steps where the sigmoid bends, and far out on both sides."""
    values = np.concatenate([np.linspace(-12, 12, 1273), [-1000, -100, -60, -40, 60, 88, 100, 1000, 1e-30, 0]])
    x = np.resize(values.astype(np.float32), (41, 32))
    g = x.astype(np.float64)
    act, factor, argument = activation(name, g, g)
    native = _native.Experts(1, 32, 32, "F32", "F32", "F32", None, isa, activation=name)
    for part in PARTS:
        native.load(pool, 0, part, np.eye(32, dtype=np.float32).reshape(-1).view(np.uint8))
    y = Layer(native, [], [], name, 0.0).forward(pool, x, np.zeros((41, 1), np.int32), np.ones((41, 1), np.float32))
    # The exponential's relative error is its argument's absolute one.
    steps = 8 + 3 * np.minimum(np.abs(argument), 87)
    assert np.all(np.abs(y - act * factor) <= steps * EPSILON * np.abs(act * factor) + 1e-25)


@pytest.mark.parametrize("isa", TIERS)
def test_bits_depend_on_neither_threads_nor_other_tokens(pool: _native.ThreadPool, isa: str) -> None:
    layer = Layer.random(pool, 5, 96, 112, "oai", 7.0, True, isa, 1)
    rng = np.random.default_rng(2)
    x = rng.standard_normal((60, 96)).astype(np.float32)
    ids = np.stack([rng.permutation(5)[:3] for _ in range(60)]).astype(np.int32)
    weights = rng.uniform(0, 1, ids.shape).astype(np.float32)
    together = layer.forward(pool, x, ids, weights)
    single = _native.ThreadPool(1)
    apart = [layer.forward(single, x[t : t + 1], ids[t : t + 1], weights[t : t + 1]) for t in range(60)]
    single.close()
    np.testing.assert_array_equal(np.concatenate(apart).view(np.uint32), together.view(np.uint32))


def test_limits_let_bad_numbers_through(pool: _native.ThreadPool) -> None:
    """A NaN is not cut to the limit, so that nothing hides it."""
    for isa in TIERS:
        layer = Layer.random(pool, 1, 32, 32, "oai", 7.0, True, isa, 3)
        x = np.ones((2, 32), np.float32)
        x[1, 3] = np.nan
        y = layer.forward(pool, x, np.zeros((2, 1), np.int32), np.ones((2, 1), np.float32))
        assert np.isfinite(y[0]).all()
        assert np.isnan(y[1]).all()


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="relu"):
        _native.Experts(1, 32, 32, "F32", "F32", "F32", activation="relu")
    with pytest.raises(ValueError, match="negative"):
        _native.Experts(1, 32, 32, "F32", "F32", "F32", limit=-1.0)
    plain = _native.Experts(1, 32, 48, "F32", "F32", "F32")
    with pytest.raises(ValueError, match="no biases"):
        plain.load_bias(0, "gate", np.zeros(48, np.float32))
    biased = _native.Experts(1, 32, 48, "F32", "F32", "F32", bias=True)
    for expert, part, n, words in ((1, "up", 48, "expert 1"), (0, "down", 48, "32 values"), (0, "side", 48, "side")):
        with pytest.raises(ValueError, match=words):
            biased.load_bias(expert, part, np.zeros(n, np.float32))
