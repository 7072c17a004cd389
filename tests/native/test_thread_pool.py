"""The pool: resizing, cancelling, sleeping, and being asked the impossible."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from engine import _native

PROC = Path("/proc/self/task")


class Work:
    """A product whose result is known; new activations each time, so that what a call left behind cannot pass."""

    def __init__(self, rows: int = 256, tokens: int = 64) -> None:
        self.rows, self.tokens = rows, tokens
        self.matrix = _native.Matrix(rows, 512, "F32", isa="portable")
        loader = _native.ThreadPool(1)
        self.matrix.load(loader, np.ones((rows, 512), np.float32).view(np.uint8))
        loader.close()
        self.x = np.zeros((tokens, 512), np.float32)

    def run(self, pool: _native.ThreadPool) -> bool:
        y = np.zeros((self.tokens, self.rows), np.float32)
        self.x += 1
        self.matrix.forward(pool, self.x.ctypes.data, self.tokens, y.ctypes.data)
        return bool((y == 512 * self.x[0, 0]).all())


@pytest.mark.parametrize("threads", [1, 2, 4, 16])
def test_any_number_of_threads(threads: int) -> None:
    pool = _native.ThreadPool(threads)
    assert pool.threads == threads
    work = Work()
    assert all(work.run(pool) for _ in range(100))
    pool.close()


def test_no_phase_starts_before_the_last_has_ended() -> None:
    """One token of many columns takes one thread long to round; the other has nothing to do but wait for it."""
    rng = np.random.default_rng(1)
    columns = 1 << 17
    raw = np.full((32, columns // 32, 34), 1, np.uint8)
    matrix = _native.Matrix(32, columns, "Q8_0", isa="portable")
    pool, alone = _native.ThreadPool(2), _native.ThreadPool(1)
    matrix.load(pool, raw)
    x = rng.standard_normal((25, columns)).astype(np.float32)
    together, expected = np.zeros((25, 32), np.float32), np.zeros((25, 32), np.float32)
    for t in range(25):
        matrix.forward(pool, x[t].ctypes.data, 1, together[t].ctypes.data)
    for t in range(25):
        matrix.forward(alone, x[t].ctypes.data, 1, expected[t].ctypes.data)
    assert np.array_equal(together, expected)
    pool.close()
    alone.close()


def test_resize_between_calls() -> None:
    pool, work = _native.ThreadPool(1), Work()
    for threads in (3, 1, 2, 2, 5, 1):
        pool.resize(threads)
        assert pool.threads == threads
        assert work.run(pool)
    pool.close()


@pytest.mark.parametrize("threads", [0, -1, 100_000])
def test_impossible_thread_counts(threads: int) -> None:
    with pytest.raises(ValueError, match="threads must be"):
        _native.ThreadPool(threads)
    pool = _native.ThreadPool(2)
    with pytest.raises(ValueError, match="threads must be"):
        pool.resize(threads)
    assert pool.threads == 2
    pool.close()


def test_pinning() -> None:
    pool, work = _native.ThreadPool(2, [0, 0]), Work()
    assert work.run(pool)
    pool.close()
    with pytest.raises(ValueError, match="one core per thread"):
        _native.ThreadPool(3, [0])
    with pytest.raises(ValueError, match="no such core"):
        _native.ThreadPool(2, [0, -4])


def test_closed_pools_refuse_work() -> None:
    pool, work = _native.ThreadPool(2), Work()
    pool.close()
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        work.run(pool)
    with pytest.raises(RuntimeError, match="closed"):
        pool.resize(2)


@pytest.mark.parametrize("threads", [1, 3])
def test_cancel_interrupts_the_running_call_only(threads: int) -> None:
    pool, work = _native.ThreadPool(threads), Work(2048, 512)
    outcome: list[BaseException] = []
    started = threading.Event()

    def loop() -> None:
        try:
            while True:
                started.set()
                work.run(pool)
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=loop)
    thread.start()
    started.wait()
    while thread.is_alive():
        pool.cancel()
        thread.join(0.001)
    assert isinstance(outcome[0], _native.Interrupted)
    assert isinstance(outcome[0], RuntimeError)
    pool.cancel()  # nothing runs: forgotten
    assert Work().run(pool)
    pool.close()


def test_errors_inside_a_tile_reach_the_caller() -> None:
    pool = _native.ThreadPool(3)
    bad = np.full((640, 32), np.nan, np.float32)
    for _ in range(5):
        with pytest.raises(ValueError, match="NaN"):
            _native.Matrix(640, 32, "F32", "int8").load(pool, bad.view(np.uint8))
    assert Work().run(pool)
    pool.close()


def test_two_callers_take_turns() -> None:
    pool = _native.ThreadPool(2)
    right: list[bool] = []

    def loop() -> None:
        work = Work()
        right.extend(work.run(pool) for _ in range(30))

    threads = [threading.Thread(target=loop) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(right) == 90
    assert all(right)
    pool.close()


def state(task: str) -> str:
    """Of one of our threads: "S" is asleep."""
    return (PROC / task / "stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="asks for Linux's affinity masks")
def test_workers_are_pinned_and_the_caller_is_not() -> None:
    mine = os.sched_getaffinity(0)
    before = set(os.listdir(PROC))
    core = min(mine)
    pool = _native.ThreadPool(3, [core] * 3)
    workers = set(os.listdir(PROC)) - before
    assert [os.sched_getaffinity(int(task)) for task in workers] == [{core}, {core}]
    assert os.sched_getaffinity(0) == mine
    pool.close()


def test_the_caller_works_too() -> None:
    """A pool of one has no thread of its own, so the work can only be the caller's."""
    before = set(os.listdir(PROC)) if PROC.exists() else set()
    pool, work = _native.ThreadPool(1), Work(1024, 256)
    used = time.thread_time()
    assert work.run(pool)
    assert time.thread_time() > used
    if before:
        assert set(os.listdir(PROC)) <= before
    pool.close()


def test_more_threads_than_cores_take_no_longer_in_cpu_time() -> None:
    """Threads that wait for a core must not burn the one their peers need: no collapse when oversubscribed."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    work = Work(512, 64)

    def cpu_seconds(threads: int) -> float:
        pool = _native.ThreadPool(threads)
        work.run(pool)
        start = time.process_time()
        for _ in range(30):
            assert work.run(pool)
        used = time.process_time() - start
        pool.close()
        return used

    alone = min(cpu_seconds(1) for _ in range(3))
    crowded = min(cpu_seconds(2 * cores) for _ in range(3))
    # Spinning through every wait would double it and more; a collapse is tenfold.
    assert crowded < 3 * alone + 0.05


@pytest.mark.skipif(not PROC.exists(), reason="reads Linux's thread states")
def test_idle_workers_sleep() -> None:
    before = set(os.listdir(PROC))
    pool, work = _native.ThreadPool(4), Work()
    workers = sorted(set(os.listdir(PROC)) - before)
    assert len(workers) == 3
    assert work.run(pool)
    deadline = time.monotonic() + 30
    while any(state(task) != "S" for task in workers):
        assert time.monotonic() < deadline, "workers never went to sleep"
    start = time.process_time()
    threading.Event().wait(1)
    # The whole process, under 1 % of a core.
    assert time.process_time() - start < 0.01
    assert work.run(pool)
    pool.close()
    assert set(os.listdir(PROC)).isdisjoint(workers)
