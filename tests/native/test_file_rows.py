"""Packing straight from a file: the same bytes as from memory, and plain errors for a file that changed."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_reference import stored

from engine import _native


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """A file of 500 Q8_0 rows of 256 columns behind 100 bytes of something else."""
    data = stored(np.random.default_rng(0), 500, 256, "Q8_0").reshape(500, -1)
    path = tmp_path_factory.mktemp("rows") / "gewichte ü.bin"
    path.write_bytes(bytes(100) + data.tobytes())
    return path, data


@given(first=st.integers(0, 60), rows=st.integers(1, 440), threads=st.sampled_from([1, 3]))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_rows_of_a_matrix(weights: tuple[Path, np.ndarray], first: int, rows: int, threads: int) -> None:
    path, data = weights
    nbytes = data.shape[1]
    pool = _native.ThreadPool(threads)
    whole, pieces = (_native.Matrix(500, 256, "Q8_0") for _ in range(2))
    whole.load(pool, data[7 : 7 + rows].reshape(-1), first)
    pieces.load_file(pool, path, 100 + 7 * nbytes, rows * nbytes, first)
    assert np.array_equal(whole.dequantise(), pieces.dequantise())
    pool.close()


@pytest.mark.parametrize("nodes", [[], [0, 0, 0]])
def test_experts(weights: tuple[Path, np.ndarray], nodes: list[int]) -> None:
    path, data = weights
    pool = _native.ThreadPool(2)
    layer, expected = (_native.Experts(2, 256, 96, "Q8_0", "Q8_0", "Q8_0", nodes=nodes) for _ in range(2))
    for part, shape in (("gate", (96, 256)), ("up", (96, 256)), ("down", (256, 96))):
        raw = data.reshape(-1)[: shape[0] * shape[1] // 32 * 34]
        expected.load(pool, 1, part, raw)
        layer.load_file(pool, 1, part, path, 100, raw.nbytes)
        assert np.array_equal(layer.dequantise(1, part), expected.dequantise(1, part))
        with pytest.raises(ValueError, match="this part takes"):
            layer.load_file(pool, 1, part, path, 100, raw.nbytes - 34)
    pool.close()


def test_some_rows_in_any_order(weights: tuple[Path, np.ndarray]) -> None:
    path, data = weights
    pool = _native.ThreadPool(1)
    matrix = _native.Matrix(500, 256, "Q8_0")
    matrix.load_file(pool, path, 100, data.nbytes)
    rows = np.array([499, 0, 17, 17])
    assert np.array_equal(matrix.dequantise_rows(rows), matrix.dequantise()[rows])
    for wrong in (-1, 500):
        with pytest.raises(ValueError, match="does not exist"):
            matrix.dequantise_rows(np.array([3, wrong]))
    pool.close()


def test_a_file_that_is_gone_or_has_shrunk(weights: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, data = weights
    pool = _native.ThreadPool(2)
    matrix = _native.Matrix(500, 256, "Q8_0")
    with pytest.raises(FileNotFoundError):
        matrix.load_file(pool, tmp_path / "missing", 0, data.nbytes)
    with pytest.raises(_native.EndOfFile, match="bytes are missing"):
        matrix.load_file(pool, path, 101, data.nbytes)
    with pytest.raises(ValueError, match="whole number of rows"):
        matrix.load_file(pool, path, 100, data.nbytes - 1)
    with pytest.raises(ValueError, match="do not fit"):
        matrix.load_file(pool, path, 100, data.nbytes, 1)
    with pytest.raises(ValueError, match="does not exist"):
        matrix.load_file(pool, path, 100, data.nbytes, -1)
    matrix.load_file(pool, path, 100, data.nbytes)
    pool.close()


def test_cancel_stops_between_pieces(weights: tuple[Path, np.ndarray]) -> None:
    path, data = weights
    pool = _native.ThreadPool(2)
    matrix = _native.Matrix(500, 256, "Q8_0")
    outcome: list[BaseException] = []

    def load() -> None:
        try:
            while True:
                matrix.load_file(pool, path, 100, data.nbytes)
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    while thread.is_alive():
        pool.cancel()
        thread.join(0.001)
    assert isinstance(outcome[0], _native.Interrupted)
    pool.close()
