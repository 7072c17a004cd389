"""Drafts are found where the conversation repeats itself, and made where that pays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.models.spec import DRAFT
from engine.runtime.lookup import CALL_SIZES, LONGEST, SHORTEST, CallCosts, Lookup


def costs(relative: dict[int, float]) -> CallCosts:
    """relative: in eighths of a millisecond."""
    known = CallCosts()
    for tokens, cost in relative.items():
        known.add(tokens, cost / 8192)
    return known


FREE = {1: 1.0, 16: 1.0}
LINEAR = {1: 1.0, 16: 16.0}


def drafted(text: bytes, most: int = 100, relative: dict[int, float] = FREE) -> bytes:
    return bytes(Lookup(list(text), 1000, costs(relative)).draft(most))


def test_a_draft_is_what_followed_the_longest_repetition() -> None:
    assert drafted(b"one cat, two cats; one cat", 6) == b", two"
    # Of two places the one where more matches, though the other is later.
    assert drafted(b"the cat sat. a cat ran. the cat", 3) == b" sa"
    # Of equals the latest.
    assert drafted(b"a cat ran. a cat sat. a cat", 3) == b" sa"


def test_beyond_its_end_a_repetition_goes_on() -> None:
    assert drafted(b"xyxyxy", 15) == b"xyxyxyxyxyxyxyx"
    assert drafted(b"aaaa", 7) == b"aaaaaaa"


@pytest.mark.parametrize("text", [b"", b"a", b"ab", b"abcdefg", b"ab ab", b"a1b2c3d4"])
def test_without_a_repetition_nothing_is_drafted(text: bytes) -> None:
    assert len(text) < 2 or drafted(text) == b""


def test_a_draft_is_as_long_as_is_wanted_at_most() -> None:
    assert len(drafted(b"abcdefgh" * 3)) == DRAFT - 1 == CALL_SIZES[-1] - 1
    for most in range(9):
        assert len(drafted(b"abcdefgh" * 3, most)) <= most


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(0, 20))
@settings(max_examples=60)
def test_drafts_equal_a_plain_search(tokens: list[int], most: int) -> None:
    def plain() -> list[int]:
        for matched in range(min(LONGEST, len(tokens) - 1), SHORTEST - 1, -1):
            end = tokens[-matched:]
            for start in range(len(tokens) - matched - 1, -1, -1):
                if tokens[start : start + matched] == end:
                    known = list(tokens)
                    for _ in range(DRAFT):
                        known.append(known[start + matched + len(known) - len(tokens)])
                    return known[len(tokens) :]
        return []

    whole = Lookup(tokens, 60, costs(FREE))
    grown = Lookup(tokens[:1], 60, costs(FREE))
    for token in tokens[1:]:
        grown.add(token)
    draft = whole.draft(most)
    assert draft == plain()[: len(draft)]
    assert bool(draft) == bool(most and plain())
    # Experience may shorten a draft, or give it up, but not change it.
    learnt = grown.draft(most)
    assert learnt == plain()[: len(learnt)]


def test_nothing_is_drafted_before_the_cost_of_a_token_is_known() -> None:
    assert drafted(b"abcdefgh" * 3, relative={}) == b""
    assert drafted(b"abcdefgh" * 3, relative={1: 1.0})


def test_what_costs_as_much_as_it_gives_is_not_drafted() -> None:
    assert drafted(b"abcdefgh" * 3, relative=LINEAR) == b""
    # Until the sixth token a call costs nothing more, from then on a whole token for each.
    assert len(drafted(b"abcdefgh" * 3, relative={1: 1.0, 6: 1.0, 8: 3.0, 16: 11.0})) == 5


def test_on_a_slow_model_drafts_stay_short_enough_for_the_answer_to_flow() -> None:
    text = list(b"abcdefgh" * 3)
    relative = {1: 1.0, 8: 1.9, 12: 2.1, 16: 2.1}
    fast, slow = CallCosts(), CallCosts()
    for tokens, cost in relative.items():
        fast.add(tokens, 0.1 * cost)
        slow.add(tokens, cost)
    assert len(Lookup(text, 100, fast).draft(15)) == 15
    # More would pay, and keep the reader waiting for more than two seconds.
    assert len(Lookup(text, 100, slow).draft(15)) == 7


def test_guesses_that_fail_end_the_drafts_and_such_that_hold_bring_them_back() -> None:
    """Both without a draft being made: guesses are compared with what comes all the same."""
    costly = costs({1: 1.0, 2: 1.4, 16: 7.0})
    words = Lookup(list(b"abcd"), 4000, costly)
    rng = np.random.default_rng(0)
    for _ in range(20):
        # Known beginnings, unknown ends.
        for token in (*b"abcd", *rng.integers(0, 256, 3).tolist()):
            words.add(token)
    for token in b"abcd":
        words.add(token)
    assert words.draft(15) == []
    for token in b"once upon a time there was a king. " * 3:
        words.add(token)
    assert bytes(words.draft(15)).startswith(b"once")


def test_costs_are_relative_to_one_token_and_between_sizes_on_a_line() -> None:
    known = costs({1: 2.0, 4: 5.0, 8: 8.0})
    assert [known.relative(tokens) for tokens in (1, 3, 4, 6, 8, 12)] == [1.0, 2.0, 2.5, 3.25, 4.0, 5.5]
    assert CallCosts().relative(2) is None
    only_one = costs({1: 3.0}).relative(2)
    assert only_one is not None
    assert 1.0 < only_one < 2.0
    # A single call in a busy moment does not make several tokens cheaper than one.
    assert costs({1: 3.0, 2: 1.0}).relative(2) == 1.0


def test_costs_outlive_a_busy_moment() -> None:
    known = costs({1: 1.0, 4: 1.5})
    for cost in (9.0, 1.0, 1.0, 1.0, 8.0):
        known.add(1, cost / 8192)
    assert known.relative(4) == 1.5
    known.add(16, 100.0 / 8192)
    assert known.relative(16) == 100.0
    for _ in range(300):
        known.add(1, 1.0 / 8192)
    assert known.relative(16) == pytest.approx(1.0 + 15 * CallCosts._FIRST_GUESS)
