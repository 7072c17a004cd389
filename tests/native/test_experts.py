"""A layer of routed experts against float64, on every tier this CPU has."""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_reference import CODES, GROUP, Activations, activations, dequantised, stored

from engine import _native

TIERS = _native.tiers()
PARTS = ("gate", "up", "down")
FORMAT_SETS = [
    ("Q4_0", "Q4_0", "Q4_0"),
    ("Q4_1", "Q4_1", "Q8_0"),
    ("Q4_K", "Q4_K", "Q6_K"),
    ("Q8_0", "Q8_0", "Q8_0"),
    ("BF16", "BF16", "BF16"),
    ("F16", "F32", "F16"),
    ("Q4_0", "BF16", "F32"),
    ("F32", "Q6_K", "Q4_1"),
    ("MXFP4", "MXFP4", "IQ4_NL"),
    ("Q5_0", "Q5_1", "Q5_K"),
    ("Q2_K", "Q3_K", "IQ4_XS"),
    ("NVFP4", "I4_G32_BF16", "I4_G128_F16_Z"),
    ("E4M3_G128_F32", "I8_G128_BF16", "E4M3_G64_BF16"),
]
Floats = npt.NDArray[np.float32]


@dataclass
class Layer:
    native: _native.Experts
    weights: list[list[Floats]]  # per expert: gate, up, down
    formats: tuple[str, str, str]

    def forward(
        self,
        pool: _native.ThreadPool,
        x: Floats,
        ids: npt.NDArray[np.int32],
        weights: Floats,
        into: Floats | None = None,
    ) -> Floats:
        y = np.full(x.shape, 123.0, np.float32) if into is None else into.copy()
        x, ids, weights = np.ascontiguousarray(x), np.ascontiguousarray(ids, np.int32), np.ascontiguousarray(weights)
        self.native.forward(
            pool,
            x.ctypes.data,
            len(x),
            ids.ctypes.data,
            weights.ctypes.data,
            ids.shape[1],
            y.ctypes.data,
            into is not None,
        )
        return y


def make(
    pool: _native.ThreadPool,
    experts: int,
    hidden: int,
    intermediate: int,
    formats: tuple[str, str, str],
    isa: str | None,
    recode: str | None = None,
) -> Layer:
    rng = np.random.default_rng(experts * hidden + intermediate)
    native = _native.Experts(experts, hidden, intermediate, *formats, recode, isa)
    shapes = ((intermediate, hidden), (intermediate, hidden), (hidden, intermediate))
    weights = []
    for expert in range(experts):
        weights.append([])
        for part, fmt, shape in zip(PARTS, formats, shapes, strict=True):
            raw = stored(rng, *shape, fmt)
            native.load(pool, expert, part, raw)
            weights[-1].append(dequantised(raw, fmt))
    return Layer(native, weights, formats)


def expected(
    layer: Layer, isa: str, x: Floats, ids: npt.NDArray[np.int32], weights: Floats, codes: tuple[str, str, str]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """float64 result with the activations as the kernels see them, and a bound on the difference.

    The intermediate h is rounded too. Its float32 value differs a little from ours, so where it lies close to halfway
    between two codes the kernel may take the other one; everywhere else the codes are the same.
    """
    seen = {code: activations(x, _native.kernel_tier(code, isa), code).seen for code in codes[:2]}
    total = np.zeros(x.shape)
    bound = np.zeros(x.shape)
    for token in range(len(x)):
        for slot, expert in enumerate(ids[token]):
            if expert < 0:
                continue
            gate_w, up_w, down_w = (w.astype(np.float64) for w in layer.weights[expert])
            gate, up = gate_w @ seen[codes[0]][token], up_w @ seen[codes[1]][token]
            eps = (x.shape[1] + 20) * 2.0**-24
            gate_err = eps * (np.abs(gate_w) @ np.abs(seen[codes[0]][token]))
            up_err = eps * (np.abs(up_w) @ np.abs(seen[codes[1]][token]))
            with np.errstate(over="ignore"):
                silu = gate / (1 + np.exp(-gate))
            h = silu * up
            # |silu'| < 1.1
            h_err = (
                1.1 * gate_err * np.abs(up) + np.abs(silu) * up_err + 1.1 * gate_err * up_err + 8 * 2.0**-24 * np.abs(h)
            )
            padded = np.zeros(-(-len(h) // GROUP) * GROUP, np.float32)
            padded[: len(h)] = h
            mine: Activations = activations(padded[None], _native.kernel_tier(codes[2], isa), codes[2])
            h_seen, step = mine.seen[0, : len(h)], mine.step[0, : len(h)]
            one = down_w @ h_seen
            if codes[2] in ("int4", "int8"):
                ratio = h / np.where(step > 0, step, 1)
                doubt = h_err / np.where(step > 0, step, 1) + 2.0**-20 * np.abs(ratio)
                step = np.where(np.abs(ratio - np.floor(ratio) - 0.5) <= doubt, step, 0)
            elif codes[2] not in ("bf16", "e4m3"):
                step = np.zeros_like(step)
            one_err = np.abs(down_w) @ (step + h_err)
            one_err += (len(h) + 20) * 2.0**-24 * (np.abs(down_w) @ np.abs(h_seen))
            total[token] += weights[token, slot] * one
            bound[token] += np.abs(weights[token, slot]) * (one_err + ids.shape[1] * 2.0**-23 * np.abs(one))
    return total, bound + 1e-30


def route(rng: np.random.Generator, tokens: int, experts: int, top_k: int) -> tuple[npt.NDArray[np.int32], Floats]:
    ids = np.stack([rng.permutation(experts)[:top_k] for _ in range(tokens)]).astype(np.int32)
    return ids, rng.uniform(-0.2, 1, ids.shape).astype(np.float32)


@pytest.mark.parametrize("formats", FORMAT_SETS, ids="-".join)
@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("tokens", [1, 3, 50])
def test_layer_matches_float64(pool: _native.ThreadPool, isa: str, formats: tuple[str, str, str], tokens: int) -> None:
    layer = make(pool, 6, 256, 256, formats, isa)
    codes = layer.native.codes
    assert codes == tuple(CODES[f] for f in formats)
    rng = np.random.default_rng(tokens)
    x = (rng.standard_normal((tokens, 256)) * 0.3).astype(np.float32)
    ids, weights = route(rng, tokens, 6, 3)
    exact, bound = expected(layer, isa, x, ids, weights, codes)
    assert np.all(np.abs(layer.forward(pool, x, ids, weights) - exact) <= bound)


@settings(max_examples=40, deadline=None)
@given(
    experts=st.integers(1, 9),
    hidden=st.integers(1, 80),
    intermediate=st.integers(1, 80),
    tokens=st.integers(1, 40),
    top_k=st.integers(1, 9),
    formats=st.sampled_from(
        [("F32", "BF16", "F16"), ("BF16", "BF16", "BF16"), ("Q8_0", "Q4_0", "Q4_1"), ("Q4_1", "F32", "Q8_0")]
    ),
    isa=st.sampled_from(TIERS),
    seed=st.integers(0, 99),
)
def test_any_shape(
    pool: _native.ThreadPool, experts: int, hidden: int, intermediate: int, tokens: int, top_k: int,
    formats: tuple[str, str, str], isa: str, seed: int,
) -> None:  # fmt: skip
    if any(f.startswith("Q") for f in formats):
        hidden, intermediate = 32 * (1 + hidden // 32), 32 * (1 + intermediate // 32)
    top_k = min(top_k, experts)
    layer = make(pool, experts, hidden, intermediate, formats, isa)
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((tokens, hidden)) * 0.3).astype(np.float32)
    ids, weights = route(rng, tokens, experts, top_k)
    ids[rng.random(ids.shape) < 0.2] = -1
    exact, bound = expected(layer, isa, x, ids, weights, layer.native.codes)
    assert np.all(np.abs(layer.forward(pool, x, ids, weights) - exact) <= bound)


@pytest.mark.parametrize("isa", TIERS)
def test_float32_is_exact_for_any_stored_format(pool: _native.ThreadPool, isa: str) -> None:
    formats = ("Q4_K", "Q4_0", "Q6_K")
    layer = make(pool, 3, 256, 256, formats, isa, "float32")
    assert layer.native.codes == ("f32", "f32", "f32")
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((12, 256)) * 0.3).astype(np.float32)
    ids, weights = route(rng, 12, 3, 2)
    exact, bound = expected(layer, isa, x, ids, weights, ("f32", "f32", "f32"))
    assert np.all(np.abs(layer.forward(pool, x, ids, weights) - exact) <= bound)


@pytest.mark.parametrize("formats", [FORMAT_SETS[1], FORMAT_SETS[4], FORMAT_SETS[5]], ids="-".join)
@pytest.mark.parametrize("isa", TIERS)
def test_bits_depend_on_neither_threads_nor_other_tokens(isa: str, formats: tuple[str, str, str]) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((60, 96)).astype(np.float32)
    ids, weights = route(rng, 60, 7, 4)
    results = []
    for threads in (1, 2, 3, 4):
        pool = _native.ThreadPool(threads)
        layer = make(pool, 7, 96, 160, formats, isa)
        results.append(layer.forward(pool, x, ids, weights))
        single = [layer.forward(pool, x[t : t + 1], ids[t : t + 1], weights[t : t + 1]) for t in range(60)]
        results.append(np.concatenate(single))
        pool.close()
    for result in results[1:]:
        assert np.array_equal(result.view(np.uint32), results[0].view(np.uint32))


@pytest.mark.parametrize("isa", TIERS)
def test_a_few_tokens_in_tiles_of_any_width(isa: str) -> None:
    """Of 66 strips of output rows one thread takes four at a time, two threads take two, eight threads single ones."""
    rng = np.random.default_rng(4)
    x = (rng.standard_normal((3, 1056)) * 0.3).astype(np.float32)
    ids, weights = route(rng, 3, 5, 3)
    results = []
    for threads in (1, 2, 8):
        pool = _native.ThreadPool(threads)
        layer = make(pool, 5, 1056, 64, ("Q8_0", "Q4_0", "Q8_0"), isa)
        results.append(layer.forward(pool, x, ids, weights))
        pool.close()
    exact, bound = expected(layer, isa, x, ids, weights, layer.native.codes)
    assert np.all(np.abs(results[0] - exact) <= bound)
    for result in results[1:]:
        assert np.array_equal(result.view(np.uint32), results[0].view(np.uint32))


@pytest.fixture(scope="module")
def small(pool: _native.ThreadPool) -> Layer:
    return make(pool, 5, 64, 96, ("Q4_1", "Q4_1", "Q8_0"), None)


def inputs(tokens: int, top_k: int) -> tuple[Floats, npt.NDArray[np.int32], Floats]:
    rng = np.random.default_rng(tokens)
    return (rng.standard_normal((tokens, 64)).astype(np.float32), *route(rng, tokens, 5, top_k))


def test_all_tokens_on_one_expert(pool: _native.ThreadPool, small: Layer) -> None:
    x, _, weights = inputs(90, 1)
    together = small.forward(pool, x, np.full((90, 1), 2), weights)
    one_by_one = [small.forward(pool, x[t : t + 1], np.array([[2]]), weights[t : t + 1]) for t in range(90)]
    assert np.array_equal(together, np.concatenate(one_by_one))


def test_every_expert_chosen(pool: _native.ThreadPool, small: Layer) -> None:
    x, ids, weights = inputs(11, 5)
    summed = np.zeros_like(x)
    for slot in range(5):
        part = np.zeros_like(x)
        part = small.forward(pool, x, ids[:, slot : slot + 1], weights[:, slot : slot + 1])
        summed += part
    y = small.forward(pool, x, ids, weights)
    assert np.allclose(y, summed, rtol=1e-5, atol=1e-5 * np.abs(y).max())


def test_an_expert_named_twice_counts_twice(pool: _native.ThreadPool, small: Layer) -> None:
    x, _, _ = inputs(3, 2)
    once = small.forward(pool, x, np.full((3, 1), 4), np.full((3, 1), 1, np.float32))
    twice = small.forward(pool, x, np.full((3, 2), 4), np.full((3, 2), 0.5, np.float32))
    assert np.array_equal(once, twice)


def test_negative_ids_are_skipped(pool: _native.ThreadPool, small: Layer) -> None:
    x, ids, weights = inputs(20, 3)
    masked = ids.copy()
    masked[:, 1] = -1
    expected_sum = small.forward(pool, x, ids[:, [0, 2]], weights[:, [0, 2]])
    assert np.array_equal(small.forward(pool, x, masked, weights), expected_sum)
    assert not small.forward(pool, x, np.full_like(ids, -7), weights).any()


def test_accumulate_adds(pool: _native.ThreadPool, small: Layer) -> None:
    x, ids, weights = inputs(12, 2)
    start = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    assert np.array_equal(
        small.forward(pool, x, ids, weights, into=start), start + small.forward(pool, x, ids, weights)
    )


def test_unknown_experts_are_refused_before_anything_is_written(pool: _native.ThreadPool, small: Layer) -> None:
    x, ids, weights = inputs(4, 2)
    ids[3, 1] = 5
    y = np.full(x.shape, 7, np.float32)
    with pytest.raises(ValueError, match="expert 5 does not exist"):
        small.native.forward(pool, x.ctypes.data, 4, ids.ctypes.data, weights.ctypes.data, 2, y.ctypes.data)
    assert (y == 7).all()


def test_no_tokens_is_no_work(pool: _native.ThreadPool, small: Layer) -> None:
    small.native.forward(pool, 0, 0, 0, 0, 2, 0)


def test_more_pairs_than_one_pass_takes(pool: _native.ThreadPool) -> None:
    layer = make(pool, 5, 32, 32, ("Q8_0", "Q8_0", "Q8_0"), None)
    rng = np.random.default_rng(2)
    x = rng.standard_normal((4200, 32)).astype(np.float32)
    ids, weights = route(rng, 4200, 5, 4)
    whole = layer.forward(pool, x, ids, weights)
    parts = [layer.forward(pool, x[t : t + 600], ids[t : t + 600], weights[t : t + 600]) for t in range(0, 4200, 600)]
    assert np.array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("formats", [FORMAT_SETS[1], FORMAT_SETS[4], FORMAT_SETS[5]], ids="-".join)
def test_a_bad_value_spoils_its_own_token_only(
    pool: _native.ThreadPool, isa: str, formats: tuple[str, str, str]
) -> None:
    layer = make(pool, 5, 64, 96, formats, isa)
    x, ids, weights = inputs(20, 3)
    clean = layer.forward(pool, x, ids, weights)
    for bad in (np.nan, np.inf, -np.inf):
        x[7, 3] = bad
        y = layer.forward(pool, x, ids, weights)
        assert not np.isfinite(y[7]).all()
        others = np.arange(20) != 7
        assert np.array_equal(y[others], clean[others])


def test_swiglu_to_a_few_units_in_the_last_place(pool: _native.ThreadPool) -> None:
    """Identity weights leave silu(x) * x: fine steps where the sigmoid bends, and far out on both sides."""
    values = np.concatenate([np.linspace(-30, 30, 1273), [-1000, -100, -88, -87, 87, 88, 100, 1000, 1e-30]])
    x = np.resize(values.astype(np.float32), (41, 32))
    g = x.astype(np.float64)
    with np.errstate(over="ignore"):
        exact = g / (1 + np.exp(-g)) * g
    for isa in TIERS:
        native = _native.Experts(1, 32, 32, "F32", "F32", "F32", None, isa)
        for part in PARTS:
            native.load(pool, 0, part, np.eye(32, dtype=np.float32).view(np.uint8))
        layer = Layer(native, [], ("F32", "F32", "F32"))
        y = layer.forward(pool, x, np.zeros((41, 1), np.int32), np.ones((41, 1), np.float32))
        assert np.all(np.abs(y - exact) <= 8 * 2.0**-24 * np.abs(exact) + 1e-25), isa


def test_load_refuses_what_does_not_fit(pool: _native.ThreadPool) -> None:
    native = _native.Experts(2, 64, 32, "Q4_1", "Q4_1", "Q8_0")
    right = np.zeros(32 * 2 * 20, np.uint8)
    native.load(pool, 1, "gate", right)
    for expert, part, data, words in (
        (2, "gate", right, "expert 2 does not exist"),
        (-1, "gate", right, "expert -1 does not exist"),
        (0, "side", right, "side"),
        (0, "gate", right[:-20], "1280 bytes, not 1260"),
        (0, "down", right, "2176 bytes, not 1280"),
    ):
        with pytest.raises(ValueError, match=words):
            native.load(pool, expert, part, data)
    with pytest.raises(ValueError, match="expert 2"):
        native.dequantise(2, "up")


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((0, 64, 64), "0 experts"),
        ((2, 48, 64), "multiple of 32"),
        ((2, 64, 48), "multiple of 32"),
        ((2, 64, 0), "0 x 64"),
    ],
)
def test_impossible_layers_are_refused(shape: tuple[int, int, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        _native.Experts(*shape, "Q4_0", "Q4_0", "Q4_0")


def test_absurd_sizes_are_refused_not_allocated() -> None:
    with pytest.raises((MemoryError, ValueError)):
        _native.Experts(1 << 20, 1 << 28, 1 << 28, "F32", "F32", "F32")


def test_nbytes_is_the_sum_of_its_matrices() -> None:
    layer = _native.Experts(3, 256, 512, "Q4_K", "Q4_0", "Q6_K")
    parts = [(512, 256, "Q4_K"), (512, 256, "Q4_0"), (256, 512, "Q6_K")]
    assert layer.nbytes == 3 * sum(_native.packed_nbytes(*p) for p in parts)
    assert layer.tier == _native.kernel_tier("int4")


def test_dequantise_gives_back_what_was_stored(pool: _native.ThreadPool) -> None:
    layer = make(pool, 3, 256, 512, ("Q4_K", "Q4_1", "Q6_K"), None)
    for expert in range(3):
        for part, weights in zip(PARTS, layer.weights[expert], strict=True):
            assert np.array_equal(layer.native.dequantise(expert, part), weights)


def test_lock_says_whether_it_worked() -> None:
    layer = _native.Experts(1, 32, 32, "F32", "F32", "F32")
    assert layer.locked is False
    assert layer.lock() is layer.locked


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's page counts")
def test_memory_goes_back_and_comes_again() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    pool = _native.ThreadPool(2)
    raw = np.zeros(1024 * 1024 * 4, np.uint8)
    gc.collect()
    before = resident()
    for _ in range(3):
        layer = _native.Experts(8, 1024, 1024, "F32", "F32", "F32")
        for expert in range(8):
            for part in PARTS:
                layer.load(pool, expert, part, raw)
        assert resident() - before > 0.9 * layer.nbytes
        del layer
        gc.collect()
        assert resident() - before < 8e6
    pool.close()


@pytest.mark.parametrize("tokens", [1, 30])
def test_factors_belong_to_matrices(pool: _native.ThreadPool, tokens: int) -> None:
    """One for every expert's gate, up and down; down's bias is not multiplied."""
    rng = np.random.default_rng(9)
    formats = ("NVFP4", "NVFP4", "NVFP4")
    scaled = _native.Experts(4, 64, 128, *formats, bias=True)
    reference = _native.Experts(4, 64, 128, "F32", "F32", "F32", bias=True)
    for expert in range(4):
        for part, shape in zip(PARTS, ((128, 64), (128, 64), (64, 128)), strict=True):
            raw = stored(rng, *shape, "NVFP4")
            factor = float(rng.uniform(0.2, 3))
            scaled.load(pool, expert, part, raw)
            scaled.set_factor(expert, part, factor)
            w = dequantised(raw, "NVFP4") * np.float32(factor)
            assert np.array_equal(scaled.dequantise(expert, part), w)
            reference.load(pool, expert, part, w.view(np.uint8))
            bias = rng.standard_normal(shape[0]).astype(np.float32)
            for experts in (scaled, reference):
                experts.load_bias(expert, part, bias)
    x = (rng.standard_normal((tokens, 64)) * 0.1).astype(np.float32)
    ids, weights = route(rng, tokens, 4, 2)
    results = []
    for experts in (scaled, reference):
        y = np.zeros_like(x)
        experts.forward(pool, x.ctypes.data, tokens, ids.ctypes.data, weights.ctypes.data, 2, y.ctypes.data)
        results.append(y)
    # Activations are rounded to int8 in one and not in the other.
    assert np.abs(results[0] - results[1]).max() < 0.02 * np.abs(results[1]).max()


@pytest.mark.parametrize("formats", [("F32", "F32", "F32"), ("Q8_0", "BF16", "F32")], ids="-".join)
@pytest.mark.parametrize("tokens", [1, 30])
def test_columns_may_stand_in_an_order_of_their_own(
    pool: _native.ThreadPool, formats: tuple[str, str, str], tokens: int
) -> None:
    """Every expert's gate and up in another one, some in the usual: as if x had been sorted for each."""
    rng = np.random.default_rng(10)
    reordered, sorted_ = (_native.Experts(4, 64, 96, *formats) for _ in range(2))
    orders = {(expert, part): rng.permutation(64).astype(np.int32) for expert in range(3) for part in ("gate", "up")}
    for expert in range(4):
        for part, fmt, shape in zip(PARTS, formats, ((96, 64), (96, 64), (64, 96)), strict=True):
            raw = stored(rng, *shape, fmt)
            reordered.load(pool, expert, part, raw)
            sorted_.load(pool, expert, part, raw)
            if (expert, part) in orders:
                reordered.set_columns(expert, part, orders[expert, part])
    x = (rng.standard_normal((tokens, 64)) * 0.3).astype(np.float32)
    ids, weights = route(rng, tokens, 4, 2)
    y, expected = np.zeros_like(x), np.zeros_like(x)
    reordered.forward(pool, x.ctypes.data, tokens, ids.ctypes.data, weights.ctypes.data, 2, y.ctypes.data)
    for token in range(tokens):
        for slot, expert in enumerate(ids[token]):
            gate, up, down = (sorted_.dequantise(int(expert), part).astype(np.float64) for part in PARTS)
            usual = np.arange(64)
            x_gate = x[token, orders.get((expert, "gate"), usual)][None]
            x_up = x[token, orders.get((expert, "up"), usual)][None]
            g = gate @ activations(x_gate, "", CODES[formats[0]]).seen[0]
            u = up @ activations(x_up, _native.kernel_tier("bf16"), CODES[formats[1]]).seen[0]
            expected[token] += weights[token, slot] * (down @ (g / (1 + np.exp(-g)) * u))
    assert np.abs(y - expected).max() < 1e-5 * np.abs(expected).max()


def test_impossible_orders_of_columns_are_refused() -> None:
    experts = _native.Experts(2, 64, 96, "F32", "F32", "F32")
    order = np.arange(64, dtype=np.int32)
    for expert, part, columns, words in (
        (2, "gate", order, "does not exist"),
        (0, "down", order, "only gate and up"),
        (0, "up", order[:-1], "each of 64"),
        (0, "up", np.zeros(64, np.int32), "each of 64"),
        (0, "gate", order - 1, "each of 64"),
    ):
        with pytest.raises(ValueError, match=words):
            experts.set_columns(expert, part, columns)


@pytest.mark.parametrize("tokens", [1, 40])
def test_counts_how_many_tokens_went_to_each(pool: _native.ThreadPool, tokens: int) -> None:
    layer = make(pool, 6, 32, 32, ("F32", "F32", "F32"), None)
    assert layer.native.counts.tolist() == [0] * 6
    rng = np.random.default_rng(11)
    total = np.zeros(6, np.uint64)
    for _ in range(3):
        ids, weights = route(rng, tokens, 6, 3)
        ids[rng.random(ids.shape) < 0.3] = -1  # computed elsewhere
        layer.forward(pool, np.ones((tokens, 32), np.float32), ids, weights)
        total += np.bincount(ids[ids >= 0], minlength=6).astype(np.uint64)
        np.testing.assert_array_equal(layer.native.counts, total)
