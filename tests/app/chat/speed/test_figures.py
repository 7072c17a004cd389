"""Figures read as promised."""

from __future__ import annotations

import pytest
from chat_fakes import READY, STATS

from app.chat.speed.figures import seconds, stats_detail, stats_line, stats_lines, tokens, why_not_ready
from app.host import HostState
from engine.errors import GreenroomError
from engine.placement.plan import Range
from engine.progress import Progress
from engine.runtime.events import STOP_REASONS, GenerationStats


def test_the_line_under_an_answer():
    assert stats_line(STATS, "end") == "12.4 tok/s · 245 tokens · first token 0.8 s · stopped: end of text"


@pytest.mark.parametrize("reason", STOP_REASONS)
def test_every_reason_to_stop_has_words(reason):
    said = stats_line(None, reason)
    assert said.endswith(STOP_REASONS[reason])
    assert said.count("stopped") == 1


def test_unknown_figures_are_left_out():
    one = GenerationStats(prompt_tokens=5, completion_tokens=1, first_token_s=0.04)
    assert stats_line(one, "length") == "1 token · first token 0.04 s · stopped: token limit"
    assert stats_line(None, None) == "stopped: Greenroom was closed"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (312, "312"), (3120, "3.1k"), (8192, "8k"), (131072, "128k"), (1000, "1.0k")]
)
def test_tokens(count, text):
    assert tokens(count) == text


@pytest.mark.parametrize(("value", "text"), [(0.0, "0.00 s"), (0.8, "0.8 s"), (2.44, "2.4 s"), (75.2, "75 s")])
def test_seconds(value, text):
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (READY, ""),
        (HostState(), "Load a model to start chatting"),
        (HostState("loading", "Demo", progress=Progress(43, 100, "x")), "Loading Demo… 43 %"),
        (HostState("planning", "Demo", progress=Progress(0, 0, "x")), "Loading Demo…"),
        (HostState("failed", "Demo", error=GreenroomError("It broke.", "why", "Do.")), "It broke"),
    ],
)
def test_why_nothing_can_be_sent(state, reason):
    assert why_not_ready(state) == reason


def test_how_the_question_was_read():
    assert stats_detail(None) == ""
    assert stats_detail(GenerationStats(prompt_tokens=1, prefill_tps=80.04)) == "Read 1 token at 80.0 tok/s"
    both = GenerationStats(prompt_tokens=46, reused_tokens=12, prefill_tps=410.0)
    assert stats_detail(both) == "Read 34 tokens at 410 tok/s; 12 more were cached"


def test_with_less_room_the_prediction_stays_longest_beside_the_speed_which_never_goes():
    lines = stats_lines(STATS, "end", Range(11.0, 12.0, 14.0))
    assert lines == (
        "12.4 tok/s (predicted 11 to 14) · 245 tokens · first token 0.8 s · stopped: end of text",
        "12.4 tok/s (predicted 11 to 14) · 245 tokens · stopped: end of text",
        "12.4 tok/s (predicted 11 to 14) · stopped: end of text",
        "12.4 tok/s · stopped: end of text",
        "12.4 tok/s",
    )
    assert stats_lines(STATS, "end") == (
        "12.4 tok/s · 245 tokens · first token 0.8 s · stopped: end of text",
        "12.4 tok/s · 245 tokens · stopped: end of text",
        "12.4 tok/s · stopped: end of text",
        "12.4 tok/s",
    )
    # Why an answer is not whole says more than its speed.
    assert stats_lines(STATS, "length")[-1] == "stopped: token limit"
