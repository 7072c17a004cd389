"""Stop strings as lines that are edited: nothing is lost in them, whatever they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtWidgets import QPlainTextEdit

from app.chat.stop_strings import from_lines, to_lines
from app.chat.storage.presets import MOST_STOPS, STOP_LIMIT

CHARACTERS = st.characters() | st.sampled_from("\\|\n\t\r nxuU0\u00a0\u2028\u2029\ufdd0\ud800")
STOPS = st.lists(st.text(CHARACTERS, min_size=1, max_size=12), max_size=MOST_STOPS)


@given(STOPS)
def test_they_are_the_same_again(stops):
    assert from_lines(to_lines(stops)) == tuple(stops)


@given(STOPS)
def test_the_field_changes_nothing(qapp, stops):
    field = QPlainTextEdit()
    field.setPlainText(to_lines(stops))
    assert from_lines(field.toPlainText()) == tuple(stops)


@pytest.mark.parametrize(
    ("stop", "line"),
    [
        ("<|im_end|>", "<|im_end|>"),
        ("\n\n", r"\n\n"),
        ("a\\n", r"a\\n"),
        (" User: ", r"\x20User:\x20"),
        ("끝", "끝"),
        ("\u00a0", r"\xa0"),
    ],
)
def test_they_are_read_as_they_are_meant(stop, line):
    assert to_lines([stop]) == line
    assert from_lines(line) == (stop,)


def test_what_is_no_escape_stands_for_itself():
    assert from_lines("a\\d\nb\\\n\\x1\n\\U00110000") == ("a\\d", "b\\", "\\x1", "\\U00110000")


def test_there_is_an_end_to_them():
    assert from_lines("\n\nEND\n") == ("END",)
    assert from_lines("a\n" * 50) == ("a",) * MOST_STOPS
    assert from_lines("a" * 1000) == ("a" * STOP_LIMIT,)
