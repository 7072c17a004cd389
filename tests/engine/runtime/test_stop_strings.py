from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.runtime.stop_strings import StopStrings

#: A tiny alphabet makes overlapping, nested and self-overlapping stops likely.
TEXT = st.text(alphabet="ab", max_size=25)
STOPS = st.lists(st.text(alphabet="ab", max_size=5), max_size=3)


def reference(text: str, stops: list[str]) -> tuple[str, bool]:
    for end in range(len(text) + 1):
        matched = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if matched:
            return text[: end - max(map(len, matched))], True
    return text, False


def run(pieces: list[str], stops: list[str]) -> tuple[str, bool]:
    matcher = StopStrings(stops)
    shown = ""
    for piece in pieces:
        text, stopped = matcher.feed(piece)
        shown += text
        if stopped:
            return shown, True
    return shown + matcher.flush(), False


@given(st.lists(TEXT, max_size=8), STOPS)
def test_the_answer_ends_before_the_first_stop_however_it_is_cut(pieces: list[str], stops: list[str]) -> None:
    assert run(pieces, stops) == reference("".join(pieces), stops)


@given(TEXT, STOPS)
def test_only_what_may_become_a_stop_is_held_back(text: str, stops: list[str]) -> None:
    matcher = StopStrings(stops)
    shown = ""
    for end, character in enumerate(text, start=1):
        piece, stopped = matcher.feed(character)
        if stopped:
            return
        shown += piece
        held = text[len(shown) : end]
        assert held == "" or any(stop.startswith(held) for stop in stops)


def test_no_stops_let_everything_through_at_once() -> None:
    assert StopStrings(["", ""]).feed("text") == ("text", False)
