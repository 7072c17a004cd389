"""Figures as the user reads them."""

from __future__ import annotations

import pytest

from app.words import gigabytes, needed, rate, rate_range, sentence
from engine.placement.plan import Range


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 MB"),
        (840_000_000, "840 MB"),
        (999_400_000, "999 MB"),
        (999_600_000, "1.0 GB"),
        (17_900_000_000, "17.9 GB"),
        (377_000_000_000, "377 GB"),
    ],
)
def test_bytes(count: int, text: str) -> None:
    assert gigabytes(count) == text


@pytest.mark.parametrize(("value", "text"), [(0.4, "0.4"), (58.34, "58.3"), (99.96, "100"), (312.4, "312")])
def test_rates(value: float, text: str) -> None:
    assert rate(value) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(49, 66, "49 to 66"), (6.2, 8.9, "6.2 to 8.9"), (12.1, 12.3, "12"), (8.7, 12.2, "9 to 12")],
)
def test_ranges(low: float, high: float, text: str) -> None:
    assert rate_range(Range(low, (low + high) / 2, high)) == text


@pytest.mark.parametrize(
    ("count", "text"), [(808_100_000, "809 MB"), (999_500_000, "1.0 GB"), (17_410_000_000, "17.5 GB")]
)
def test_what_is_needed_is_rounded_up(count: int, text: str) -> None:
    assert needed(count) == text


def test_sentences_begin_with_a_capital() -> None:
    assert sentence("limited by RAM bandwidth") == "Limited by RAM bandwidth"
    assert sentence("") == ""
