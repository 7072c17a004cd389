"""Figures read as promised."""

from __future__ import annotations

import pytest
from chat_fakes import READY, STATS

from app.chat.figures import seconds, stats_line, tokens, why_not_ready
from app.host import HostState
from engine.errors import GreenroomError
from engine.progress import Progress
from engine.runtime.events import STOP_REASONS, GenerationStats


def test_the_line_under_an_answer():
    assert stats_line(STATS, "end") == "12.4 tok/s · 245 tokens · first token 0.8 s · stopped: end of text"


@pytest.mark.parametrize("reason", STOP_REASONS)
def test_every_reason_to_stop_has_words(reason):
    assert stats_line(None, reason) == f"stopped: {STOP_REASONS[reason]}"


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
