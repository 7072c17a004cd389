"""The model in one native call against the same blocks called one by one: the same bits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tiny_configs import CONFIGS
from tiny_models import TOKENS, Tiny

from engine import _native
from engine.errors import Cancelled
from engine.executors.hybrid.executor import TorchExecutor
from engine.executors.loaded_model import LoadedModel
from engine.executors.native.executor import NativeExecutor

MakeTiny = Callable[[str, str], Tiny]
Run = Callable[..., LoadedModel]

FAMILIES = [name for name in CONFIGS if "-" not in name]
#: A prompt, single tokens, and a piece in the middle; windows and chunks of the tiny models are 8 tokens long.
CUTS = [19, 20, 21, 22, 30]


def outputs(executor: LoadedModel) -> np.ndarray:
    """Of all tokens, in pieces; of the last piece just the end's."""
    executor.truncate(0)
    *pieces, last = np.split(TOKENS[:40], CUTS)
    return np.concatenate([*[executor.forward(piece, "all") for piece in pieces], executor.forward(last)])


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_bits_as_block_by_block(tiny: MakeTiny, run: Run, name: str) -> None:
    plan = {"dense_dtype": "quantised", "experts": "int8", "context": 64, "threads": 2}
    model = tiny(name, "safetensors")
    executor, blocks = run(model, **plan), run(model, by_blocks=True, **plan)
    assert isinstance(executor, NativeExecutor)
    assert executor.kernel == blocks.kernel
    np.testing.assert_array_equal(outputs(executor).view(np.uint32), outputs(blocks).view(np.uint32))


def test_both_ways_count_the_same_uses_of_experts(tiny: MakeTiny, run: Run) -> None:
    model = tiny("qwen3_moe", "safetensors")
    counts = []
    for by_blocks in (False, True):
        executor = run(model, by_blocks=by_blocks, dense_dtype="quantised", context=64)
        outputs(executor)
        counts.append([executor._experts.experts(layer).counts.tolist() for layer in range(len(model.spec.layers))])
    assert counts[0] == counts[1]
    moe = model.spec.layers[0].ffn
    assert [sum(layer) for layer in counts[0]] == [40 * moe.top_k] * len(counts[0])


def test_models_with_blocks_of_torch_run_block_by_block(tiny: MakeTiny, run: Run) -> None:
    assert isinstance(run(tiny("qwen3_moe", "safetensors"), dense_dtype="float32", context=64), TorchExecutor)


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss"])
def test_cancelled_in_the_middle_it_leaves_the_sequence_as_it_was(tiny: MakeTiny, run: Run, name: str) -> None:
    executor = run(tiny(name, "safetensors"), dense_dtype="quantised", context=64)
    first, expected = executor.forward(TOKENS[:10]), executor.forward(TOKENS[10:30], "all")
    executor.truncate(10)
    stop = threading.Event()

    def cancel_all_the_time() -> None:
        while not stop.is_set():
            executor._pool.cancel()

    def forward_until_cancelled() -> None:
        while True:
            executor.forward(TOKENS[10:30], "all")
            executor.truncate(10)

    canceller = threading.Thread(target=cancel_all_the_time)
    canceller.start()
    try:
        with pytest.raises(Cancelled):
            forward_until_cancelled()
    finally:
        stop.set()
        canceller.join()
    assert executor.length == 10
    np.testing.assert_array_equal(executor.forward(TOKENS[10:30], "all"), expected)
    executor.truncate(0)
    np.testing.assert_array_equal(executor.forward(TOKENS[:10]), first)


def linear(rows: int, columns: int) -> _native.LinearBlock:
    return _native.LinearBlock([_native.Matrix(rows, columns, "F32")])


def norm(hidden: int = 32) -> _native.NormBlock:
    return _native.NormBlock(np.ones(hidden, np.float32), None, 1e-5)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("norm", norm(33)),
        ("mixer_norm", norm(31)),
        ("post_norm", norm(64)),
        ("bias", np.ones(31, np.float32)),
        ("head", linear(50, 64)),
        ("qkv", linear(63, 32)),
        ("o", linear(32, 16)),
        ("rope", 1),
        ("rope", None),
        ("expert", _native.Experts(2, 32, 32, "F32", "F32", "F32")),
        ("expert", _native.Experts(1, 64, 32, "F32", "F32", "F32")),
        ("logits", linear(4, 32)),
        ("logits", _native.LinearBlock([])),
        ("router", _native.Router(5, 2, "softmax")),
        ("shared", None),
    ],
)
def test_parts_that_do_not_fit_are_refused(part: str, value: Any) -> None:
    cache = np.zeros(_native.kv_cache_nbytes(1, 16, 64, "f32"), np.uint8)
    parts: dict[str, Any] = {
        "norm": norm(),
        "mixer_norm": norm(),
        "post_norm": norm(),
        "bias": None,
        "head": linear(50, 32),
        "qkv": linear(64, 32),
        "o": linear(32, 32),
        "rope": 0,
        "expert": _native.Experts(1, 32, 32, "F32", "F32", "F32"),
        "logits": linear(5, 32),
        "router": _native.Router(4, 2, "softmax", shared_gate=True),
        "shared": _native.MlpBlock(_native.Experts(1, 32, 32, "F32", "F32", "F32")),
    }

    def make() -> None:
        attention = _native.Attention(2, 1, 16, 8, 64, 0.25, "f32")
        mixer = _native.AttentionBlock(parts["qkv"], attention, parts["o"], parts["rope"], cache.ctypes.data)
        experts = _native.Experts(4, 32, 32, "F32", "F32", "F32")
        moe = _native.MoeBlock(parts["logits"], parts["router"], None, experts, False, parts["shared"])
        layers = [
            _native.LayerBlock(parts["mixer_norm"], mixer, norm(), _native.MlpBlock(parts["expert"])),
            _native.LayerBlock(norm(), mixer, norm(), moe, parts["post_norm"], norm()),
        ]
        head = parts["head"]
        if parts["bias"] is not None:
            head = _native.LinearBlock([_native.Matrix(50, 32, "F32")], parts["bias"])
        _native.Decoder([([0.1] * 4, 1.0)], layers, parts["norm"], head)

    make()
    parts[part] = value
    with pytest.raises(ValueError, match="does not fit"):
        make()


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("inputs", linear(64, 32)),
        ("out", linear(31, 32)),
        ("conv", _native.ShortConv(16, 3, 256, 16, np.ones((3, 16), np.float32))),
    ],
)
def test_convolutions_that_do_not_fit_are_refused(part: str, value: Any) -> None:
    memory = np.zeros((3, 32, 32), np.float32)
    parts: dict[str, Any] = {
        "inputs": linear(96, 32),
        "conv": _native.ShortConv(32, 3, 256, 16, np.ones((3, 32), np.float32)),
        "out": linear(32, 32),
    }

    def make() -> None:
        addresses = [room.ctypes.data for room in memory]
        mixer = _native.ConvBlock(parts["inputs"], parts["conv"], parts["out"], *addresses)
        mlp = _native.MlpBlock(_native.Experts(1, 32, 32, "F32", "F32", "F32"))
        _native.Decoder([], [_native.LayerBlock(norm(), mixer, norm(), mlp)], norm(), linear(50, 32))

    make()
    parts[part] = value
    with pytest.raises(ValueError, match="does not fit"):
        make()
