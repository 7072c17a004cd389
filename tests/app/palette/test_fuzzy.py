"""A few letters find what was meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.palette.fuzzy import initials, match


def best(query: str, *texts: str) -> str | None:
    found = [(fits.score, text) for text in texts if (fits := match(query, text)) is not None]
    return max(found)[1] if found else None


@pytest.mark.parametrize(
    ("query", "meant", "others"),
    [
        ("new", "New chat", ["Renew the list", "Network"]),
        ("chat", "Chat", ["Search chats", "New chat"]),
        ("omf", "Open a model file", ["Open a model folder", "Models folder"]),
        ("sett", "Settings", ["Use the settings"]),
        ("file model", "Open a model file", ["Open a model folder"]),
        ("설정", "모델 설정", ["설치"]),
        ("ㅅㅈ", "설정", ["모델"]),
    ],
)
def test_what_was_meant_comes_first(query: str, meant: str, others: list[str]) -> None:
    assert best(query, meant, *others) == meant


@pytest.mark.parametrize(("query", "text"), [("xyz", "New chat"), ("new file", "New chat"), ("tahc", "chat")])
def test_a_letter_that_is_missing_or_out_of_order_is_no_finding(query: str, text: str) -> None:
    assert match(query, text) is None


def test_letters_strewn_over_a_long_text_are_no_finding() -> None:
    assert match("abcdef", "a long text in between b and much more until c and d then very late e or f") is None


def test_the_letters_that_were_found_are_told() -> None:
    fits = match("mo fi", "Open a model file")
    assert fits is not None
    assert fits.places == (7, 8, 13, 14)
    assert initials("한국 A") == "ㅎㄱ A"


@given(st.text(max_size=12), st.text(max_size=40))
def test_any_text_is_safe_and_places_are_inside(query: str, text: str) -> None:
    fits = match(query, text)
    if fits is not None:
        assert all(0 <= place < len(text) for place in fits.places)
        if query.split():
            assert fits.places


@given(st.text(min_size=1, max_size=20))
def test_a_text_fits_itself(text: str) -> None:
    assert match(text, text) is not None
