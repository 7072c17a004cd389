"""How bytes are written and rounded."""

from __future__ import annotations

import pytest

from engine.units import size_down, size_fine, size_text, size_up


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (340, "340 B"),
        (2_000, "2.0 kB"),
        (99_000, "99 kB"),
        (999_600, "1.0 MB"),
        (9_940_000, "9.9 MB"),
        (10_000_000, "10 MB"),
        (840_000_000, "840 MB"),
        (999_400_000, "999 MB"),
        (999_600_000, "1.0 GB"),
        (17_900_000_000, "17.9 GB"),
        (99_960_000_000, "100 GB"),
        (1_030_000_000_000, "1030 GB"),
    ],
)
def test_the_nearest_size_keeps_a_digit_that_says_something(nbytes: int, text: str) -> None:
    assert size_text(nbytes) == text


@pytest.mark.parametrize(
    ("nbytes", "needed", "free"),
    [
        (17_200_000_000, "17.2 GB", "17.2 GB"),
        (17_200_000_001, "17.3 GB", "17.2 GB"),
        (310_500_000, "311 MB", "310 MB"),
        (999_500_000, "1.0 GB", "999 MB"),
        (0, "0 MB", "0 MB"),
    ],
)
def test_needs_round_up_and_free_rounds_down(nbytes: int, needed: str, free: str) -> None:
    assert (size_up(nbytes), size_down(nbytes)) == (needed, free)


@pytest.mark.parametrize(("nbytes", "text"), [(1_254_000_000, "1.25 GB"), (120e6, "0.12 GB"), (57_300_000, "57.3 MB")])
def test_what_a_token_reads_has_a_digit_more(nbytes: float, text: str) -> None:
    assert size_fine(nbytes) == text
