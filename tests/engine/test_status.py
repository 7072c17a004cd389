"""What a loaded model says of itself: which experts were called, and the path in use."""

from __future__ import annotations

import json

import numpy as np

from engine.status import EngineStatus, ExpertUsage


def test_layers_come_in_their_order_and_short_ones_are_filled_up() -> None:
    usage = ExpertUsage.of({5: np.array([1, 2], np.uint32), 2: np.array([3, 0, 7], np.uint32)})
    assert usage is not None
    assert usage.layers == (2, 5)
    np.testing.assert_array_equal(usage.counts, np.array([[3, 0, 7], [1, 2, 0]], np.uint64))
    assert usage.counts.dtype == np.uint64
    assert not usage.in_vram.any()
    assert usage.in_vram.shape == (2, 3)


def test_a_model_without_experts_has_no_usage() -> None:
    assert ExpertUsage.of({}) is None


def test_the_hit_rate_is_unknown_before_any_expert_was_asked_for() -> None:
    assert EngineStatus().hit_rate is None
    assert EngineStatus(hits=3, misses=1).hit_rate == 0.75


def test_a_status_can_be_written_as_json() -> None:
    document = json.loads(json.dumps(EngineStatus(notes=("a", "b"), hits=1).to_json()))
    assert document["notes"] == ["a", "b"]
    assert document["hit_rate"] == 1.0
    assert document["path"] == "cpu"


def test_what_was_counted_before_is_left_out() -> None:
    before = EngineStatus(hits=3, misses=5, bytes_uploaded=10, cache_slots=4)
    after = EngineStatus(hits=10, misses=6, bytes_uploaded=30, cache_slots=4, notes=("a",))
    assert after.since(before) == EngineStatus(hits=7, misses=1, bytes_uploaded=20, cache_slots=4, notes=("a",))


def test_the_benchmark_says_what_was_really_in_use() -> None:
    from engine.cli.bench import status_lines

    lines = status_lines(EngineStatus(kernel="int4 avx2, 2 threads", locked=True))
    assert lines == ["In use: cpu, everything on the CPU; int4 avx2, 2 threads; experts locked in RAM"]
    status = EngineStatus(
        device="cuda:0",
        kernel="int4 avx2, 2 threads",
        path="hybrid",
        pinned=True,
        ram_bytes=5_000_000_000,
        vram_bytes=2_000_000_000,
        cache_slots=100,
        hits=30,
        misses=70,
        bytes_uploaded=7_000_000,
        handoff_s=42e-6,
        prefill="streamed",
        notes=("VRAM had room for 100 of the 200 experts that were planned to be there.",),
    )
    text = "\n".join(status_lines(status))
    for expected in (
        "not locked",
        "launched one by one",
        "page-locked",
        "streamed",
        "42 µs",
        "30%",
        "7.0 MB",
        "Note: V",
    ):
        assert expected in text
