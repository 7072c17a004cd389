"""The read loop decode is measured against."""

from __future__ import annotations

import math

import pytest

from engine import _native


def test_one_plausible_figure_per_repeat(pool: _native.ThreadPool) -> None:
    rates = _native.read_bandwidth(pool, 1 << 24, 4)
    assert len(rates) == 4
    assert all(1e7 < rate < 1e13 for rate in rates)


@pytest.mark.parametrize(("nbytes", "repeats"), [(0, 1), (-1, 1), (1 << 50, 1), (1 << 24, 0), (1 << 24, -3)])
def test_impossible_requests(pool: _native.ThreadPool, nbytes: int, repeats: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        _native.read_bandwidth(pool, nbytes, repeats)


def test_handover_between_two_threads(pool: _native.ThreadPool) -> None:
    taken = [seconds for _ in range(20) if (seconds := _native.handover_seconds(pool)) is not None]
    assert taken, "in 20 tries two threads never ran at the same time"
    # No upper bound: how long it takes is the machine's affair, and whoever else uses it.
    assert all(1e-9 < seconds < math.inf for seconds in taken)
    alone = _native.ThreadPool(1)
    assert _native.handover_seconds(alone) is None
    alone.close()
