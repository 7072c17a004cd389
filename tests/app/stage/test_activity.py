"""What the stage knows about a run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.stage.activity import DARK, Activity, Frame, Watcher
from app.stage.summary import describe_expert, percent, summarise

NONE = np.array([], np.uint32)


def frame(seconds: float, tokens: int, used: list[int], counts: list[int] | None = None, moved: object = NONE) -> Frame:
    cells = np.array(used, np.uint32)
    return Frame(seconds, tokens, cells, np.array(counts or [1] * len(used), np.uint32), np.array(moved, np.uint32))


def test_a_call_lights_an_expert_and_the_light_fades() -> None:
    activity = Activity((0, 1), 4)
    activity.play(frame(0.1, 1, [5]))
    assert activity.glow[1, 1] > 0.8
    assert np.count_nonzero(activity.glow) == 1
    before = activity.glow[1, 1]
    activity.fade(0.1)
    assert 0 < activity.glow[1, 1] < before
    assert activity.alight
    activity.fade(10)
    assert not activity.alight
    assert activity.glow.max() < DARK


def test_at_many_tokens_a_second_those_called_more_are_still_told_from_those_called_less() -> None:
    activity = Activity((0, 1), 4)
    for step in range(30):  # two seconds of looks, ten tokens in each
        activity.fade(1 / 15)
        activity.play(frame(step / 15, 10 * step, [0, 1, 2, 4], [10, 5, 1, 1]))
    assert activity.glow[0, 0] == pytest.approx(1.0)
    assert activity.glow[0, 1] == pytest.approx(0.5)
    assert activity.glow[0, 2] == pytest.approx(0.1)
    assert activity.glow[1, 0] == 1.0, "each layer has its own busiest"


def test_many_calls_are_no_brighter_than_full() -> None:
    activity = Activity((0,), 2)
    activity.play(frame(0.1, 1, [0], [2048]))
    assert activity.glow[0, 0] == 1.0
    assert activity.uses[0, 0] == 2048


def test_calls_are_told_apart_by_where_the_expert_lives_then() -> None:
    activity = Activity((0,), 4)
    assert activity.served_from_vram is None
    activity.play(frame(0.0, 0, [], moved=[0]))
    activity.play(frame(0.1, 0, [0, 1], [6, 2]))
    assert activity.served_from_vram == 0.75
    activity.play(frame(0.2, 1, [1], [2], moved=[1]))
    assert activity.served_from_vram == 0.8, "it moved before it was called"


def test_experts_per_token_leave_the_prompt_out() -> None:
    activity = Activity((0,), 4)
    activity.play(frame(0.5, 0, [0, 1, 2, 3], [500] * 4))
    assert activity.ram_uses_per_token is None
    activity.play(frame(0.6, 1, [0, 1], [1, 1]))
    activity.play(frame(0.7, 4, [0, 2], [3, 3]))
    assert activity.ram_uses_per_token == 2.0


def test_speed_is_by_the_answers_own_time() -> None:
    activity = Activity((0,), 4)
    activity.play(frame(60.0, 0, [0, 1], [500] * 2))
    assert activity.decoded_per_second == 0.0
    activity.play(frame(60.5, 1, [0, 1], [1, 1]))
    assert activity.decoded_per_second == 0.0
    activity.play(frame(61.5, 11, [0, 2], [10, 10]))
    activity.play(frame(62.5, 21, [0, 2], [10, 10]))
    assert activity.decoded_per_second == pytest.approx(10.0)


def test_settled_light_is_by_the_whole_run() -> None:
    activity = Activity((0, 1), 2)
    activity.play(frame(0.1, 1, [0, 1, 2], [4, 1, 7]))
    activity.overall = True
    np.testing.assert_allclose(activity.glow, [[1.0, 0.5], [1.0, 0.0]])


counts = st.lists(st.lists(st.integers(0, 1 << 40), min_size=6, max_size=6), min_size=1, max_size=6)


@given(counts, st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=6, max_size=6))
def test_looks_add_up_to_what_was_counted(steps: list[list[int]], places: list[list[bool]]) -> None:
    start = np.array([7, 0, 3, 0, 0, 1 << 50], np.uint64).reshape(2, 3)
    watcher, activity, now = Watcher(start), Activity((3, 9), 3), start.copy()
    for number, step in enumerate(steps):
        now = now + np.minimum(np.array(step, np.uint64), np.uint64(1 << 31)).reshape(2, 3)
        activity.play(watcher.look(float(number), number, now, np.array(places[number]).reshape(2, 3)))
    np.testing.assert_array_equal(activity.uses, now - start)
    np.testing.assert_array_equal(activity.in_vram, np.array(places[len(steps) - 1]).reshape(2, 3))
    assert activity.from_vram + activity.from_ram == int((now - start).sum())


def test_where_nothing_is_in_vram_nothing_is_said_of_it() -> None:
    activity = Activity((2, 5), 4)
    assert "VRAM" not in summarise(activity)
    activity.play(frame(0.1, 1, [0, 4], [1, 3]))
    assert "VRAM" not in summarise(activity)


def test_it_can_be_read_aloud() -> None:
    activity = Activity((2, 5), 4)
    assert "No expert has been called yet" in summarise(activity)
    activity.play(frame(0.0, 0, [], moved=[4, 5]))
    activity.play(frame(0.1, 1, [0, 4], [1, 3]))
    said = summarise(activity)
    assert "2 layers with 4 experts each" in said
    assert "2 of 8 experts are in VRAM" in said
    assert "75% of the calls were served from VRAM" in said
    assert "75% of the experts were not called" in said
    assert "expert 0 of layer 5, with 100%" in said
    assert describe_expert(activity, 1, 0) == "Layer 5, expert 0 · in VRAM · called 3 times, 100% of its layer's calls"
    assert describe_expert(activity, 0, 0) == "Layer 2, expert 0 · in RAM · called once, 100% of its layer's calls"
    assert describe_expert(activity, 1, 3) == "Layer 5, expert 3 · in RAM · not called in this run"


@pytest.mark.parametrize(("share", "said"), [(0.0, "0%"), (0.004, "0.4%"), (0.0996, "10%"), (1.0, "100%")])
def test_small_shares_have_a_decimal(share: float, said: str) -> None:
    assert percent(share) == said
