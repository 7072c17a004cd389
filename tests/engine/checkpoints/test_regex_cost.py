"""How long patterns may search: against a small matcher that counts its steps, and patterns that models publish."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from fuzzing import Fuzzer
from tokenizers import Regex, pre_tokenizers

from engine.checkpoints.pretokenizers import LINEAR_PATTERNS, PRE_TOKENIZERS
from engine.checkpoints.regex_cost import is_linear, most_steps


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        r"\s+",
        " {2,}",
        r"[\n\r\t]",
        r"\p{N}{1,3}",
        r"\s?\p{L}+",
        "[一-龥&&[^a]]+",
        r"(?<!\S)x",
        "(?i:'s|'t)",
        "ab|a",
    ],
)
def test_patterns_that_use_up_what_they_look_at(pattern: str) -> None:
    assert is_linear(pattern)


@pytest.mark.parametrize(
    "pattern", ["a*b", r"\s+$", r"\s+(?!\S)", "(?=a*)a", "a(?=b*)", "a{2000}", "[^x]*?x", "(?:a+b)?"]
)
def test_patterns_that_look_at_the_same_again_and_again(pattern: str) -> None:
    assert not is_linear(pattern)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|aa)+$", "(?:a?){25}b", "a*a*b", "[a]*[a]*[a]*b", r"(?:\w+\s?)*!", "(?=(a|ab)*c)x"]
)
def test_patterns_that_try_all_ways(pattern: str) -> None:
    assert most_steps(pattern, 512) > 100 * 512


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a)\1", r"\g<0>", "(?<n>a)", "(?~a)", "(*FAIL)", "(?i)a", "(?x: a)", "a{3}?", "a{2,1}", "a{", "a{,}", "[a",
        "[]a]", "(a", "a)", "*a", "(?<=a{0,5000})b", r"\X", r"\K", r"\R", "(?(1)a|b)", "(?#c)", "\\",
        "(" * 20 + ")" * 20, "(?:(?:(?:a{100}){100}){100}){10}", "a" * 10_000,
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        most_steps(pattern, 512)


@pytest.mark.parametrize("rule", PRE_TOKENIZERS)
def test_published_patterns_are_understood(rule: str) -> None:
    for pattern in PRE_TOKENIZERS[rule].splits:
        assert most_steps(pattern, 512) > 1


RUNS = (
    " ",
    "a",
    "A",
    "1",
    "!",
    "\n",
    " a",
    " A",
    "a ",
    "aA",
    "\u0301",
    "日",
    "'",
    " \n",
    "1,",
    "😀",
    "\u00a0",
    "a!",
    "ǅ",
    "ʰ",
)


@pytest.mark.parametrize("pattern", sorted(LINEAR_PATTERNS))
def test_known_patterns_take_no_longer_in_long_texts(pattern: str) -> None:
    """A million letters would take hours if each looked at all that follow; the test's own limit ends it then."""
    cutter = pre_tokenizers.Split(Regex(pattern), "contiguous")
    for run in RUNS:
        for text in (run * (300_000 // len(run)) + "x1", "x" + run * (300_000 // len(run)) + "\n?"):
            assert cutter.pre_tokenize_str(text)


# A matcher that counts

Node = tuple[Any, ...]


def pattern_of(node: Node) -> str:
    match node:
        case ("one", letters):
            return f"[{letters}]"
        case ("row", *parts):
            return "".join(map(pattern_of, parts))
        case ("choice", *parts):
            return f"(?:{'|'.join(map(pattern_of, parts))})"
        case ("repeat", part, least, most, mode):
            sign = {(0, 1): "?", (0, None): "*", (1, None): "+"}.get((least, most))
            if sign is None:
                return f"(?:{pattern_of(part)}){{{least},{'' if most is None else most}}}" + "?" * (mode == "?")
            return f"(?:{pattern_of(part)}){sign}{mode}"
        case ("look", part, negative):
            return f"(?{'!' if negative else '='}{pattern_of(part)})"
        case ("held", part):
            return f"(?>{pattern_of(part)})"
    raise AssertionError(node)


def random_node(rng: random.Random, depth: int) -> Node:
    kind = rng.choice(("one", "one", "row", "row", "choice", "repeat", "repeat", "look", "held")) if depth else "one"
    if kind == "one":
        return ("one", rng.choice(("a", "b", "ab", "c")))
    if kind in ("row", "choice"):
        return (kind, *(random_node(rng, depth - 1) for _ in range(rng.randint(1, 3))))
    part = random_node(rng, depth - 1)
    if kind == "repeat":
        least, most = rng.choice(((0, 1), (0, None), (1, None), (1, 3), (2, 4), (0, 2), (2, None)))
        simple = (least, most) in ((0, 1), (0, None), (1, None))
        return (kind, part, least, most, rng.choice(("", "", "?", "+")) if simple else rng.choice(("", "?")))
    return (kind, part, rng.random() < 0.5) if kind == "look" else (kind, part)


class Counting:
    """Matches at one position by trying one way after the other, and counts the letters it looks at."""

    MOST = 20_000

    def __init__(self, text: str) -> None:
        self.text, self.steps = text, 0

    def ends(self, node: Node, at: int) -> Iterator[int]:
        match node:
            case ("one", letters):
                self.steps += 1
                if self.steps < self.MOST and at < len(self.text) and self.text[at] in letters:
                    yield at + 1
            case ("row",):
                yield at
            case ("row", first, *rest):
                for end in self.ends(first, at):
                    yield from self.ends(("row", *rest), end)
            case ("choice", *parts):
                for part in parts:
                    yield from self.ends(part, at)
            case ("repeat", part, least, most, "+"):
                yield from self._first(("repeat", part, least, most, ""), at)
            case ("repeat", part, least, most, mode):
                yield from self._rounds(part, least, most, mode == "?", at)
            case ("look", part, negative):
                if (next(self.ends(part, at), None) is None) == negative:
                    yield at
            case ("held", part):
                yield from self._first(part, at)

    def _first(self, node: Node, at: int) -> Iterator[int]:
        end = next(self.ends(node, at), None)
        if end is not None:
            yield end

    def _rounds(self, part: Node, least: int, most: int | None, lazy: bool, at: int) -> Iterator[int]:
        if lazy and least <= 0:
            yield at
        if most != 0:
            for end in self.ends(part, at):
                if end > at or least > 0:
                    yield from self._rounds(part, least - 1, None if most is None else most - 1, lazy, end)
        if not lazy and least <= 0:
            yield at


def test_no_search_takes_more_steps_than_foretold(fuzzer: Fuzzer) -> None:
    for rng in fuzzer.rounds():
        node = random_node(rng, 4)
        text = "".join(rng.choices("aabbc", k=rng.randint(0, 24))) if rng.random() < 0.5 else "a" * rng.randint(0, 24)
        pattern = pattern_of(node)
        matcher = Counting(text)
        next(matcher.ends(node, 0), None)
        assert matcher.steps <= most_steps(pattern, len(text)), (pattern, text)
