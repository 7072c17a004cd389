"""The cache of hot experts: its invariants under any traffic, and what each policy keeps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.executors.hybrid.hot_cache import POLICIES, HotCache, Policy, Upload

LAYERS = (1, 2, 5)
EXPERTS = 6


def call(cache: HotCache, *experts: int, layer: int = 1) -> list[int]:
    """One token whose router chose these."""
    slots = cache.lookup(layer, np.array(experts, np.int32))
    cache.advance(1)
    return slots.tolist()


def bring(cache: HotCache, most: int = 100) -> list[Upload]:
    uploads = cache.next_uploads(most)
    for upload in uploads:
        cache.uploaded(upload)
    return uploads


def inside(cache: HotCache, layer: int = 1) -> set[int]:
    return set(np.flatnonzero(cache.table(layer) >= 0).tolist())


steps = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.sampled_from(LAYERS), st.lists(st.integers(0, EXPERTS - 1), min_size=1, max_size=3)),
            max_size=4,
        ),
        st.integers(0, 4),
        st.lists(st.sampled_from(["arrives", "fails", "waits"]), min_size=8, max_size=8),
    ),
    max_size=25,
)


@given(policy=st.sampled_from(POLICIES), slots=st.integers(0, 20), traffic=steps)
def test_no_slot_ever_holds_or_serves_what_it_should_not(policy: str, slots: int, traffic: list) -> None:
    cache = HotCache(LAYERS, EXPERTS, slots, Policy(policy))
    coming: list[Upload] = []
    #: What a device would hold, written when a copy is done.
    bytes_in: dict[int, tuple[int, int]] = {}
    hits = asked = 0
    for lookups, most, fates in traffic:
        for layer, ids in lookups:
            found = cache.lookup(layer, np.array(ids, np.int32))
            for expert, slot in zip(ids, found.tolist(), strict=True):
                assert slot == -1 or bytes_in[slot] == (layer, expert)
                assert slot not in {upload.slot for upload in coming}
                hits += slot >= 0
            asked += len(ids)
        cache.advance(1)
        # Copies may end before or after the next ones are chosen.
        for late in (False, True):
            for upload, fate in zip(list(coming), fates[4 * late :], strict=False):
                if fate == "arrives":
                    cache.uploaded(upload)
                    bytes_in[upload.slot] = upload[:2]
                elif fate == "fails":
                    cache.failed(upload)
                if fate != "waits":
                    coming.remove(upload)
            if late:
                break
            uploads = cache.next_uploads(most)
            assert len(uploads) <= most
            for upload in uploads:
                assert upload[:2] not in bytes_in.values()
                bytes_in.pop(upload.slot, None)
            coming += uploads
            assert len({upload.slot for upload in coming}) == len(coming)
            assert len({upload[:2] for upload in coming}) == len(coming)
            assert all(0 <= upload.slot < cache.slots for upload in coming)
        held = [cache.table(layer) for layer in LAYERS]
        used = [slot for table in held for slot in table.tolist() if slot >= 0]
        assert len(set(used)) == len(used) == cache.resident().sum() == len(bytes_in)
        assert len(used) + len(coming) + len(cache._free) == cache.slots
    assert (cache.hits, cache.hits + cache.misses) == (hits, asked)


@given(slots=st.integers(1, 20), ids=st.lists(st.integers(0, EXPERTS - 1), min_size=1, max_size=40))
def test_a_frozen_cache_gives_the_same_answers_for_ever(slots: int, ids: list[int]) -> None:
    cache = HotCache(LAYERS, EXPERTS, slots)
    for upload in cache.fill():
        cache.uploaded(upload)
    cache.frozen = True
    before = [cache.table(layer) for layer in LAYERS]
    for expert in ids:
        call(cache, expert)
        assert cache.next_uploads(100) == []
    for table, layer in zip(before, LAYERS, strict=True):
        np.testing.assert_array_equal(cache.table(layer), table)
    assert cache.hits + cache.misses == len(ids)


def test_the_same_traffic_gives_the_same_uploads() -> None:
    def run() -> list[Upload]:
        cache, generator, all_uploads = HotCache(LAYERS, EXPERTS, 5), np.random.default_rng(0), []
        for _ in range(50):
            for layer in LAYERS:
                cache.lookup(layer, generator.choice(EXPERTS, 2, replace=False))
            cache.advance(1)
            all_uploads += bring(cache, 2)
        return all_uploads

    assert run() == run()


def test_a_slot_is_not_served_before_its_upload_is_done() -> None:
    cache = HotCache(LAYERS, EXPERTS, 2)
    assert call(cache, 3) == [-1]
    (upload,) = cache.next_uploads(1)
    assert upload[:2] == (1, 3)
    assert call(cache, 3) == [-1]
    # It is on its way already.
    assert cache.next_uploads(1) == []
    cache.uploaded(upload)
    assert call(cache, 3) == [upload.slot]
    assert (cache.hits, cache.misses) == (1, 2)
    with pytest.raises(ValueError, match="not on its way"):
        cache.uploaded(upload)


def test_a_failed_upload_leaves_an_empty_slot() -> None:
    cache = HotCache(LAYERS, EXPERTS, 1)
    call(cache, 3)
    (upload,) = cache.next_uploads(1)
    cache.failed(upload)
    assert call(cache, 3) == [-1]
    assert [again[:2] for again in bring(cache)] == [(1, 3)]


def test_lru_keeps_the_latest() -> None:
    cache = HotCache(LAYERS, EXPERTS, 2, Policy("lru"))
    for expert in (0, 0, 0, 1, 2):
        call(cache, expert)
        bring(cache)
    assert inside(cache) == {1, 2}


def test_lfu_keeps_the_most_called_for_ever() -> None:
    cache = HotCache(LAYERS, EXPERTS, 1, Policy("lfu"))
    for expert in (0, 0, 0, 1, 1):
        call(cache, expert)
        bring(cache)
    assert inside(cache) == {0}


def test_lfru_forgets_what_was_called_often_long_ago() -> None:
    cache = HotCache(LAYERS, EXPERTS, 1, Policy("lfru", half_life=4))
    for expert in (0, 0, 0, 1):
        call(cache, expert)
        bring(cache)
    assert inside(cache) == {0}
    for _ in range(6):
        call(cache, 1)
        bring(cache)
    assert inside(cache) == {1}


def test_static_keeps_what_statistics_say() -> None:
    statistics = np.zeros((3, EXPERTS), np.float32)
    statistics[0, 4] = statistics[2, 1] = 3
    cache = HotCache(LAYERS, EXPERTS, 2, Policy("static"), statistics)
    uploads = cache.fill()
    assert {upload[:2] for upload in uploads} == {(1, 4), (5, 1)}
    for upload in uploads:
        cache.uploaded(upload)
    for _ in range(5):
        call(cache, 0)
        assert bring(cache) == []


def test_without_statistics_slots_are_filled_evenly_over_layers() -> None:
    cache = HotCache(LAYERS, EXPERTS, 7)
    filled = [upload.layer for upload in cache.fill()]
    assert sorted(filled.count(layer) for layer in LAYERS) == [2, 2, 3]


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "lru"])
def test_statistics_carry_over_to_the_next_cache(policy: str) -> None:
    cache = HotCache(LAYERS, EXPERTS, 2, Policy(policy), np.zeros((3, EXPERTS)))
    if policy == "static":
        cache = HotCache(LAYERS, EXPERTS, 2, Policy(policy), cache.statistics() + np.eye(3, EXPERTS))
    for expert in (2, 2, 4, 4, 4, 1):
        call(cache, expert)
    again = HotCache(LAYERS, EXPERTS, 2, Policy(policy), cache.statistics())
    expected = {(1, 0), (2, 1)} if policy == "static" else {(1, 2), (1, 4)}
    assert {upload[:2] for upload in again.fill()} == expected
    np.testing.assert_allclose(again.statistics(), cache.statistics(), rtol=1e-6)


def test_a_prompt_makes_its_experts_hot() -> None:
    cache = HotCache(LAYERS, EXPERTS, 1)
    call(cache, 0)
    bring(cache)
    cache.observe(1, np.array([0, 0, 0, 0, 0, 40]), 100)
    cache.advance(100)
    bring(cache)
    assert inside(cache) == {5}
    assert (cache.hits, cache.misses) == (0, 1)


def test_a_smaller_cache_keeps_its_first_slots() -> None:
    cache = HotCache(LAYERS, EXPERTS, 4)
    for upload in cache.fill():
        cache.uploaded(upload)
    kept = {slot for layer in LAYERS for slot in cache.table(layer).tolist() if 0 <= slot < 2}
    cache.shrink(2)
    assert {slot for layer in LAYERS for slot in cache.table(layer).tolist() if slot >= 0} == kept
    assert cache.slots == cache.resident().sum() == 2


def test_scores_stay_finite_over_very_long_answers() -> None:
    cache = HotCache(LAYERS, EXPERTS, 2)
    for _ in range(3):
        call(cache, 1, 2)
        cache.advance(10_000_000)
        bring(cache)
    assert np.isfinite(cache.statistics()).all()


@pytest.mark.parametrize(
    "wrong", [{"policy": Policy("lfru"), "layers": ()}, {"slots": -1}, {"statistics": np.zeros((1, 1))}]
)
def test_impossible_sizes_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match=r"layers|statistics"):
        HotCache(**{"layers": LAYERS, "experts": EXPERTS, "slots": 1, **wrong})
    with pytest.raises(ValueError, match="policy"):
        Policy("random")
