"""Layers spread over memory nodes: same bits, and every thread on its own slice first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_reference import stored

from engine import _native

FORMATS = ("Q4_0", "Q8_0", "BF16")


class Layer:
    def __init__(self, experts: int, hidden: int, intermediate: int, fmt: str = "Q4_0", **options: object) -> None:
        self.experts, self.hidden = experts, hidden
        self.native = _native.Experts(experts, hidden, intermediate, fmt, fmt, fmt, **options)  # type: ignore[arg-type]
        rng = np.random.default_rng(7)
        loader = _native.ThreadPool(1)
        for expert in range(experts):
            for part in ("gate", "up", "down"):
                rows, columns = (hidden, intermediate) if part == "down" else (intermediate, hidden)
                self.native.load(loader, expert, part, stored(rng, rows, columns, fmt))
        loader.close()

    def forward(self, pool: _native.ThreadPool, tokens: int, top_k: int = 2) -> np.ndarray:
        rng = np.random.default_rng(8)
        x = rng.standard_normal((tokens, self.hidden)).astype(np.float32)
        ids = np.stack([rng.permutation(self.experts)[:top_k] for _ in range(tokens)]).astype(np.int32)
        weights = rng.random((tokens, top_k)).astype(np.float32)
        y = np.zeros((tokens, self.hidden), np.float32)
        self.native.forward(pool, x.ctypes.data, tokens, ids.ctypes.data, weights.ctypes.data, top_k, y.ctypes.data)
        return y.view(np.uint32)


@given(
    nodes=st.integers(2, 9),
    threads=st.integers(1, 4),
    hidden=st.integers(1, 7),
    intermediate=st.integers(1, 7),
    tokens=st.sampled_from([1, 2, 9, 40]),
    fmt=st.sampled_from(FORMATS),
)
@settings(max_examples=25)
def test_slices_never_change_a_bit(
    nodes: int, threads: int, hidden: int, intermediate: int, tokens: int, fmt: str
) -> None:
    """Odd sizes too: more nodes than there are rows to share."""
    plain, pool = _native.ThreadPool(1), _native.ThreadPool(threads, nodes=[t % nodes for t in range(threads)])
    shape = (4, 32 * hidden, 32 * intermediate, fmt)
    whole, sliced = Layer(*shape), Layer(*shape, nodes=[0] * nodes)
    assert np.array_equal(whole.forward(plain, tokens), sliced.forward(pool, tokens))
    for expert in range(4):
        for part in ("gate", "up", "down"):
            assert np.array_equal(whole.native.dequantise(expert, part), sliced.native.dequantise(expert, part))
    plain.close()
    pool.close()


def test_a_thread_alone_on_its_node_reads_its_slice_and_then_helps() -> None:
    """With one thread the counts are certain: all tiles of its node, then those of the node nobody works on."""
    layer = Layer(4, 96, 96, nodes=[0, 0])
    pool = _native.ThreadPool(1, nodes=[0])
    layer.forward(pool, 1)
    # 32 rows of each matrix on the first node, 64 on the other. Gate and up: 2 experts, tiles of 32 rows. Down: of 16.
    assert pool.tallies() == [(2 * 1 + 2, 2 * 2 + 4)]
    pool.close()


def test_tallies_add_up_over_threads() -> None:
    layer = Layer(4, 128, 192, nodes=[0, 0])
    pool = _native.ThreadPool(4, nodes=[0, 1, 0, 1])
    for _ in range(20):
        layer.forward(pool, 1)
    assert sum(own + others for own, others in pool.tallies()) == 20 * 20
    pool.resize(2)
    assert pool.tallies() == [(0, 0)] * 2
    pool.close()


def test_a_plain_layer_counts_nothing_as_anothers() -> None:
    layer, pool = Layer(4, 64, 64), _native.ThreadPool(2, nodes=[0, 1])
    layer.forward(pool, 3)
    assert pool.tallies() == [(0, 0)] * 2
    pool.close()


def test_pages_are_bound_where_the_system_agrees() -> None:
    layer = Layer(8, 512, 512, nodes=[0, 0])
    maps = Path("/proc/self/numa_maps")
    if not layer.native.bound or not maps.exists():
        pytest.skip("this system does not let programs bind memory to nodes")
    assert sum("prefer" in line and "anon=" in line for line in maps.read_text().splitlines()) >= 1
    assert not Layer(8, 512, 512).native.bound


def test_a_system_that_refuses_to_bind_leaves_touching() -> None:
    layer = _native.Experts(2, 512, 512, "Q4_0", "Q4_0", "Q4_0", nodes=[0, 1000])
    assert not layer.bound
    layer.touch(1)
    with pytest.raises(IndexError):
        layer.touch(2)


@pytest.mark.parametrize(
    ("threads", "nodes", "message"),
    [(2, [0], "one memory node per thread"), (1, [-1], "no such memory node"), (1, [64], "no such memory node")],
)
def test_impossible_nodes(threads: int, nodes: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _native.ThreadPool(threads, nodes=nodes)
    with pytest.raises(ValueError, match="64 memory nodes"):
        _native.Experts(1, 32, 32, "Q4_0", "Q4_0", "Q4_0", nodes=[0] * 65)
