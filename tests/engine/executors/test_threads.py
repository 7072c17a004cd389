"""A model on several memory nodes: the same answers, and threads on their own slices."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
from tiny_models import TOKENS, Tiny, make_plan

from engine import _native
from engine.executors import load, threads
from engine.executors.native import expert_store
from engine.executors.threads import settle, thread_pool
from engine.hardware.numa import ThreadPlaces
from engine.hardware.sources import Sources


def two_nodes(count: int, sources: Sources) -> ThreadPlaces:
    """This machine as if it had two nodes: threads stay where the system puts them, memory on the only node."""
    cpus = tuple(sorted(sources.affinity() or {0}))
    return ThreadPlaces((), tuple(i % 2 for i in range(count)), (0, 0), (cpus, cpus), "two nodes, played by one")


def test_a_whole_model_has_the_same_bits_on_two_nodes(
    tiny: Callable[[str, str], Tiny], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny("qwen3_moe", "gguf-Q8_0")
    tokens = np.asarray(TOKENS, np.int64)

    def logits() -> tuple[np.ndarray, list[tuple[int, int]]]:
        executor = load(model.checkpoint, model.spec, make_plan(threads=2))
        try:
            return executor.forward(tokens, "all").copy(), executor._pool.tallies()
        finally:
            executor.close()

    plain, none = logits()
    assert none == [(0, 0)] * 2
    for module in (threads, expert_store):
        monkeypatch.setattr(module, "place_threads", two_nodes)
    with caplog.at_level("INFO"):
        spread, tallies = logits()
    assert np.array_equal(plain.view(np.uint32), spread.view(np.uint32))
    assert sum(own for own, _ in tallies) > 0
    assert "two nodes, played by one" in caplog.text


def test_this_machine_says_why_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        thread_pool(2).close()
    assert "threads: 2, " in caplog.text


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="asks for Linux's affinity masks")
def test_pages_are_touched_from_their_node_where_they_cannot_be_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = os.sched_getaffinity(0)
    one = min(mine)
    # Node 1000 does not exist, so the system refuses to bind.
    experts = _native.Experts(2, 64, 64, "Q8_0", "Q8_0", "Q8_0", nodes=[0, 1000])
    moves: list[frozenset[int]] = []
    move = os.sched_setaffinity
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: (moves.append(frozenset(cpus)), move(pid, cpus)))
    settle([experts], ThreadPlaces((), (0, 1), (0, 1000), ((one,), tuple(mine)), ""))
    assert moves == [{one}, mine, mine]
    assert os.sched_getaffinity(0) == mine
    moves.clear()
    settle([experts], ThreadPlaces())
    assert moves == []
