"""What layers remember: sizes, going back, and what an interrupted call leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import _native
from engine.errors import GreenroomError
from engine.executors.device.short_conv import ShortConv
from engine.executors.device.states import ConvState, TorchKv
from engine.executors.devices import KV_DTYPES, HostDevice
from engine.executors.kv_cache import KvCache, NativeKv
from engine.executors.native.blocks import NativeConvState, NativeShortConv
from engine.executors.step import Step
from engine.models import spec as spec_module
from engine.models.spec import AttentionSpec, RopeSpec, ShortConvSpec
from engine.placement.sizes import PREFILL_CHUNK

CPU = HostDevice()
FULL = AttentionSpec(4, 2, 8, RopeSpec(1e4, 8))
WINDOWED = AttentionSpec(4, 2, 8, RopeSpec(1e4, 8), window=3)
CONV = ShortConvSpec(channels=5, width=3)


@pytest.fixture(scope="module")
def pool() -> Iterator[_native.ThreadPool]:
    pool = _native.ThreadPool(2)
    yield pool
    pool.close()


@pytest.mark.parametrize("kv_type", KV_DTYPES)
@pytest.mark.parametrize("context", [10, 1000, 1100, 3000])
def test_sizes_are_what_the_spec_promises(kv_type: str, context: int) -> None:
    dtype = KV_DTYPES[kv_type]
    for spec in (FULL, WINDOWED):
        assert TorchKv(spec, context, dtype, CPU).nbytes == spec.state_bytes(context, kv_type)
    assert ConvState(CONV, context, CPU).nbytes == CONV.state_bytes(context, kv_type)
    # Besides what torch's takes, the inputs before the next token.
    assert NativeConvState(CONV, context).nbytes == CONV.state_bytes(context, kv_type) + 2 * 5 * 4
    assert FULL.state_bytes(context, kv_type) == 2 * 2 * 8 * context * dtype.itemsize


def test_a_window_keeps_a_long_conversation_small() -> None:
    """The buffer and its copy; and never less for a longer conversation."""
    row = 2 * 2 * 8 * 2
    assert WINDOWED.state_bytes(100_000, "f16") == row * 2 * (3 + spec_module.ROLLBACK)
    chunked = AttentionSpec(4, 2, 8, None, chunk=64)
    assert chunked.state_bytes(100_000, "f16") == row * 2 * (64 + spec_module.ROLLBACK)
    sizes = [WINDOWED.state_bytes(context, "f16") for context in range(900, 1200)]
    assert sizes == sorted(sizes)
    assert sizes[0] == row * 900


def test_a_prompts_piece_fits_what_can_be_taken_back() -> None:
    assert PREFILL_CHUNK <= spec_module.ROLLBACK


@pytest.mark.parametrize(("kv_type", "width"), [("f32", 4), ("bf16", 2), ("f16", 2)])
def test_the_kernels_cache_rounds_up_to_its_blocks(kv_type: str, width: int) -> None:
    # 64 tokens each for keys; values of 8 dimensions take 16.
    assert NativeKv(FULL, 100, kv_type).nbytes == 2 * (8 + 16) * 128 * width


@pytest.mark.parametrize("kv_type", spec_module.KV_TYPES)
@pytest.mark.parametrize("reach", [{}, {"window": 640}, {"chunk": 128}])
def test_plans_count_the_kernels_cache_to_a_block(kv_type: str, reach: dict[str, int]) -> None:
    spec = AttentionSpec(4, 2, 64, RopeSpec(1e4, 64), **reach)
    for context in (64, 1024, 1000, 8192, 10_001):
        counted = spec.state_bytes(context, kv_type)
        assert counted <= NativeKv(spec, context, kv_type).nbytes <= counted + 2 * 2 * 64 * spec.token_bytes(kv_type)


def test_appending_and_going_back() -> None:
    state = TorchKv(FULL, 5, torch.float32, CPU)
    cache = KvCache(5, [state])
    values = torch.randn(4, 4, 8)
    state.append(0, values[:3])
    cache.advance(3)
    keys, stored = state.append(3, values[3:])
    cache.advance(1)
    assert torch.equal(keys, values[:, :2].transpose(0, 1))
    assert torch.equal(stored, values[:, 2:].transpose(0, 1))
    assert cache.truncate(1) == 1
    keys, _ = state.append(1, values[2:3])
    assert torch.equal(keys, values[[0, 2], :2].transpose(0, 1))
    with pytest.raises(ValueError, match="cache of 5"):
        cache.advance(5)
    with pytest.raises(ValueError, match="keep 2"):
        cache.truncate(2)


@settings(max_examples=60, deadline=None)
@given(
    window=st.integers(1, 6),
    moves=st.lists(st.tuples(st.sampled_from(["append", "interrupted", "back"]), st.integers(1, 4)), max_size=40),
)
def test_a_window_never_shows_a_forgotten_token(window: int, moves: list[tuple[str, int]]) -> None:
    """Every value a state gives is that of its position, whatever was appended, undone and taken back before.

    Going back to where a piece of several tokens began, or behind that, repeats no more than that piece.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spec_module, "ROLLBACK", 4)
        spec = AttentionSpec(1, 1, 1, None, window=window)
        state = TorchKv(spec, 200, torch.float32, CPU)
        cache = KvCache(200, [state])
        told: list[float] = []
        fresh, copied = 0.0, 0
        for move, count in moves:
            if move == "back":
                asked = max(0, cache.length - 5 * count)
                kept = cache.truncate(asked)
                assert kept == asked or kept == (copied if copied <= asked else 0)
                copied = copied if copied <= kept else 0
                del told[kept:]
                continue
            if count > 1 and cache.length > 0:
                copied = cache.length
            new = [fresh + i for i in range(count)]
            fresh += count
            pairs = torch.tensor(new)[:, None, None].expand(-1, 2, 1)
            keys, values = state.append(cache.length, pairs)
            expected = (told + new)[max(0, cache.length - window + 1) :]
            assert keys.flatten().tolist() == values.flatten().tolist() == expected
            if move == "append":
                told += new
                cache.advance(count)


def naive_conv(spec: ShortConvSpec, x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """float64 out = c * (causal convolution of b * x), thirds of a row side by side."""
    b, c, values = np.split(x.astype(np.float64), 3, axis=1)
    inputs = np.concatenate([np.zeros((spec.width - 1, spec.channels)), b * values])
    return c * np.stack([(inputs[t : t + spec.width] * kernel).sum(0) for t in range(len(x))])


class Same:
    rows = 0
    nbytes = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("native", [False, True])
@given(
    width=st.integers(1, 4),
    chunks=st.lists(st.integers(1, 7), min_size=1, max_size=8),
    back=st.integers(0, 60),
    interrupted=st.booleans(),
    seed=st.integers(0, 99),
)
def test_short_convolution_in_any_chunks_and_after_going_back(
    pool: _native.ThreadPool, native: bool, width: int, chunks: list[int], back: int, interrupted: bool, seed: int
) -> None:
    interval = 4
    with pytest.MonkeyPatch.context() as patch:
        for module in ("engine.models.spec", "engine.executors.device.states", "engine.executors.native.blocks"):
            patch.setattr(f"{module}.CHECKPOINT_INTERVAL", interval)
            patch.setattr(f"{module}.DRAFT", 3)
        rng = np.random.default_rng(seed)
        spec, total = ShortConvSpec(channels=5, width=width), sum(chunks)
        x = rng.standard_normal((total, 15)).astype(np.float32)
        kernel = rng.standard_normal((width, 5)).astype(np.float32)
        block = convolution(pool, native, spec, 60, kernel)
        cache = KvCache(60, [block.state])

        def run(part: np.ndarray) -> np.ndarray:
            step = Step(cache.length, len(part), {}, CPU)
            if interrupted:
                block(torch.from_numpy(part[::-1].copy()), step)
            out = block(torch.from_numpy(part), step).numpy()
            cache.advance(len(part))
            return out

        expected = naive_conv(spec, x, kernel)
        got = np.concatenate([run(part) for part in np.split(x, np.cumsum(chunks)[:-1])])
        np.testing.assert_allclose(got, expected, atol=1e-5)
        asked = max(0, total - back)
        kept = cache.truncate(asked)
        draft = chunks[-1] if chunks[-1] <= 3 else 0
        assert kept == asked if asked >= total - draft else kept == asked // interval * interval
        if kept < total:
            # The very same bits as in one piece.
            np.testing.assert_array_equal(run(x[kept:]), got[kept:])


def convolution(
    pool: _native.ThreadPool,
    native: bool,
    spec: ShortConvSpec,
    context: int,
    kernel: np.ndarray,
    *biases: np.ndarray,
) -> Any:
    """Between projections that change nothing."""
    if native:
        return NativeShortConv(pool, spec, NativeConvState(spec, context), Same(), kernel, Same(), *biases)
    tensors = [torch.from_numpy(values) for values in (kernel, *biases)]
    return ShortConv(ConvState(spec, context, CPU), Same(), tensors[0], Same(), *tensors[1:])


@pytest.mark.parametrize("native", [False, True])
def test_short_convolution_biases(pool: _native.ThreadPool, native: bool) -> None:
    spec = ShortConvSpec(channels=2, width=2, bias=True)
    kernel, biases = (
        np.float32([[1, 2], [3, 4]]),
        (np.ones(6, np.float32), np.float32([10, 20]), np.float32([0.5, 0.25])),
    )
    block = convolution(pool, native, spec, 8, kernel, *biases)
    out = block(torch.zeros(1, 6), Step(0, 1, {}, CPU))
    assert out.tolist() == [[3 + 10 + 0.5, 4 + 20 + 0.25]]


@pytest.mark.parametrize("tokens", [1, 16, 17, 700])
def test_our_kernel_convolves_to_the_bits_of_torch(pool: _native.ThreadPool, tokens: int) -> None:
    rng = np.random.default_rng(tokens)
    spec = ShortConvSpec(channels=70, width=3)
    kernel, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 70), 70))
    none = np.zeros(210, np.float32), np.zeros(70, np.float32)
    x = rng.standard_normal((tokens + 5, 210)).astype(np.float32)
    got = []
    for native in (False, True):
        block = convolution(pool, native, spec, 1024, kernel, none[0], bias, none[1])
        cache = KvCache(1024, [block.state])
        for part in (x[:tokens], x[tokens:]):
            got.append(block(torch.from_numpy(part.copy()), Step(cache.length, len(part), {}, CPU)).numpy())
            cache.advance(len(part))
    np.testing.assert_array_equal(got[0].view(np.uint32), got[2].view(np.uint32))
    np.testing.assert_array_equal(got[1].view(np.uint32), got[3].view(np.uint32))


def test_impossible_convolutions_are_refused() -> None:
    kernel = np.ones((3, 4), np.float32)
    for channels, width, bias in ((0, 3, None), (4, 0, None), (4, 2, None), (4, 3, np.ones(3, np.float32))):
        with pytest.raises(ValueError, match="a short convolution"):
            _native.ShortConv(channels, width, 256, 16, kernel, bias)


def test_layers_that_remember_differently_go_back_together() -> None:
    conv, full = ConvState(CONV, 600, CPU), TorchKv(FULL, 600, torch.float32, CPU)
    cache = KvCache(600, [full, conv])
    conv.append(0, torch.randn(520, 5))
    full.append(0, torch.randn(520, 4, 8))
    cache.advance(520)
    assert cache.truncate(520) == 520
    assert cache.truncate(519) == 512
    assert cache.truncate(511) == 256
    assert cache.length == 256
    assert cache.truncate(3) == 0


def test_a_cache_too_large_is_a_clear_error() -> None:
    with pytest.raises(GreenroomError, match="shorter context"):
        TorchKv(FULL, 1 << 50, torch.float32, CPU)
    with pytest.raises(GreenroomError, match="shorter context"):
        ConvState(ShortConvSpec(1 << 20, 4), 1 << 40, CPU)
    with pytest.raises(GreenroomError, match="shorter context"):
        NativeConvState(ShortConvSpec(1 << 20, 4), 1 << 40)
    with pytest.raises(GreenroomError, match="shorter context"):
        NativeKv(AttentionSpec(4096, 4096, 512, RopeSpec(1e4, 8)), 1 << 32, "f32")
