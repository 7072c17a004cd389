"""Thinking sections are told apart from text about them."""

from __future__ import annotations

import pytest

from app.chat.rendering.thinking import SplitAnswer, join_thought, split_thought


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello", SplitAnswer(None, "Hello")),
        ("", SplitAnswer(None, "")),
        ("<thi", SplitAnswer(None, "")),
        ("<b", SplitAnswer(None, "<b")),
        ("<think>\nhm", SplitAnswer("hm", "", thinking=True)),
        ("<think>\nhm\n</think>\n\nParis.", SplitAnswer("hm", "Paris.")),
        ("\n<think></think>Paris.", SplitAnswer("", "Paris.")),
        ("hm, well\n</think>\n\nParis.", SplitAnswer("hm, well", "Paris.")),
        ("The tag </think> ends thinking.", SplitAnswer(None, "The tag </think> ends thinking.")),
        ("Use <think> first.", SplitAnswer(None, "Use <think> first.")),
        ("```\n</think>\n```", SplitAnswer(None, "```\n</think>\n```")),
    ],
)
def test_split(text, expected):
    assert split_thought(text) == expected


TEXTS = [
    "",
    "Paris.",
    "<thi",
    "<think>",
    "<think> opens it.",
    "Use\n</think>\nto end.",
    "</think>",
    "```\n</think>\n```",
    "a </think> b",
]


@pytest.mark.parametrize("answer", TEXTS)
@pytest.mark.parametrize("thought", [None, *TEXTS[1:]])
def test_what_is_joined_is_split_again(thought, answer):
    split = split_thought(join_thought(thought, answer))
    assert (split.thought or None, split.answer) == (thought, answer)
    assert split.thinking == (thought is not None and not answer)
