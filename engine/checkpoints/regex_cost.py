"""How long a regular expression from a file may search: an upper bound, worked out before the expression is used.

The library searches by backtracking (Oniguruma). It gives up at one position after ten million steps, but it has no
limit for a whole text: an expression that wastes a little less at each position takes hours. Only the constructs that
tokenizers use are understood here. Every other expression is refused.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

_MAX_LENGTH = 8_192  # characters; the longest published pattern (DeepSeek LLM's list of letters) has about 2,000
_MAX_DEPTH = 16  # groups within groups; published patterns have 3
_MAX_SIZE = 32_768  # parts once all {n} are written out, as the library does; published patterns have some hundreds
_MAX_WASTE = 1_000  # steps at one position that a search in any text may spend in vain

_ESCAPE = re.compile(
    r"\\(?:[dDwWsShHnrtfvae]|[pP]\{\^?[A-Za-z_0-9 ]+\}|x\{[0-9A-Fa-f]{1,8}\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[^\w\s]| )"
)
_BORDER = re.compile(r"\\[AzZbBG]|[\^$]")
_POSIX_CLASS = re.compile(r"\[:\^?[a-z]+:\]")
_INTERVAL = re.compile(r"\{(?:(?P<exact>\d{1,5})|(?P<least>\d{0,5}),(?P<most>\d{0,5}))\}")
_GROUP = re.compile(r"\((?:\?(?P<kind>:|=|!|<=|<!|>|-?[im]{1,2}:))?")


class _Cost(NamedTuple):
    """What it takes to match one part of an expression at one position.

    ways:  in how many ways it may match; each is tried when what follows fails
    all:   steps for all of them
    first: steps until the first match
    fail:  steps until it is clear that there is no match
    waste: steps until the first match or none, but for those that go through what the match uses up
    sure:  it always matches, if need be nothing
    least: characters that it goes through when it matches, at least
    size:  parts of the expression, each {n} written out
    """

    ways: float
    all: float
    first: float
    fail: float
    waste: float
    sure: bool
    least: int
    size: int


_NOTHING = _Cost(1, 0, 0, 0, 0, True, 0, 0)
_CHARACTER = _Cost(1, 1, 1, 1, 1, False, 1, 1)
_PLACE = _Cost(1, 1, 1, 1, 1, False, 0, 1)


def most_steps(pattern: str, length: float) -> float:
    """Steps at one position of a text of `length` characters. Raises ValueError for what is not understood."""
    cost = _Parser(pattern, length).parse()
    return max(cost.first, cost.fail) + 1


def is_linear(pattern: str) -> bool:
    """Whether the time for each character is the same in a long text as in a short one.

    That is so when a search goes through few characters that no match uses up. Raises ValueError for what is not
    understood.
    """
    cost = _Parser(pattern, math.inf).parse()
    return max(cost.waste, cost.fail) <= _MAX_WASTE and most_steps(pattern, 1) <= _MAX_WASTE


def _sequence(parts: list[_Cost]) -> _Cost:
    rest = _NOTHING
    for part in reversed(parts):
        retried = part.all + _times(part.ways, rest.fail)
        rest = _Cost(
            part.ways * rest.ways,
            part.all + _times(part.ways, rest.all),
            part.first + rest.first if rest.sure else retried + rest.first,
            part.fail if rest.sure else retried,
            part.waste + rest.waste if rest.sure else retried + rest.waste,
            part.sure and rest.sure,
            part.least + rest.least,
            part.size + rest.size,
        )
    return rest


def _choice(branches: list[_Cost]) -> _Cost:
    if len(branches) == 1:
        return branches[0]
    return _Cost(
        sum(branch.ways for branch in branches),
        sum(branch.all for branch in branches),
        sum(max(branch.first, branch.fail) for branch in branches),
        sum(branch.fail for branch in branches),
        sum(max(branch.waste, branch.fail) for branch in branches),
        any(branch.sure for branch in branches),
        min(branch.least for branch in branches),
        sum(branch.size for branch in branches),
    )


def _repeated(part: _Cost, least: int, most: int | None, length: float) -> _Cost:
    if most is not None:
        rounds: float = max(most, 1)
    elif part.least:
        rounds = max(length / part.least, least, 1)
    else:
        rounds = length + least + 1  # a round that goes through nothing is the last
    if most is not None and rounds == 1:
        ways, every = part.ways + 1 - least, part.all
    elif part.ways == 1:
        ways, every = rounds - least + 1, rounds * max(part.all, 1) + part.fail
    else:
        ways = every = math.inf
    if least <= 1:
        first, fail = rounds * max(part.first, 1) + part.fail, part.fail if least else 0
        waste = part.waste + part.fail
    else:
        first = every
        fail = waste = least * max(part.all, 1) + part.fail if part.ways == 1 else every
    copies = least + 1 if most is None else max(most, 1)
    return _Cost(ways, every, first, fail, waste, least == 0 or part.sure, least * part.least, copies * (part.size + 1))


def _looked(part: _Cost) -> _Cost:
    """A look ahead or behind: it goes one way only, and what it goes through is not used up."""
    steps = part.first + part.fail
    return _Cost(1, steps, steps, steps, steps, False, 0, part.size + 1)


def _held(part: _Cost) -> _Cost:
    """A part that is never tried in another way."""
    return _Cost(1, part.first, part.first, part.fail, part.waste, part.sure, part.least, part.size)


def _times(ways: float, steps: float) -> float:
    return ways * steps if steps else 0


class _Parser:
    """Reads the part of Oniguruma's syntax in which the meaning of every sign is certain."""

    def __init__(self, pattern: str, length: float) -> None:
        if len(pattern) > _MAX_LENGTH:
            raise ValueError("it has a pattern longer than any tokenizer's")
        self._pattern = pattern
        self._length = length
        self._at = 0
        self._depth = 0

    def parse(self) -> _Cost:
        cost = self._alternatives()
        if self._at < len(self._pattern):
            raise self._unknown()
        return cost

    def _unknown(self) -> ValueError:
        return ValueError(f"it has a pattern that is not understood at {self._pattern[self._at : self._at + 20]!r}")

    def _take(self, sign: str) -> bool:
        found = self._pattern.startswith(sign, self._at)
        self._at += len(sign) * found
        return found

    def _match(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        found = expression.match(self._pattern, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _alternatives(self) -> _Cost:
        branches: list[list[_Cost]] = [[]]
        while self._at < len(self._pattern) and self._pattern[self._at] != ")":
            if self._take("|"):
                branches.append([])
            else:
                branches[-1].append(self._repetition())
        return _choice([_sequence(parts) for parts in branches])

    def _repetition(self) -> _Cost:
        part = self._atom()
        while self._at < len(self._pattern):
            sign = self._pattern[self._at]
            if sign in "?*+":
                self._at += 1
                part = _repeated(part, int(sign == "+"), 1 if sign == "?" else None, self._length)
                # A question mark after it makes it lazy: the same ways in another order.
                if not self._take("?") and self._take("+"):
                    part = _held(part)
            elif sign == "{":
                part = self._interval(part)
            else:
                break
            if part.size > _MAX_SIZE:
                raise ValueError("it has a pattern that is far too large once it is written out")
        return part

    def _interval(self, part: _Cost) -> _Cost:
        found = self._match(_INTERVAL)
        if found is None or found[0] == "{,}":
            raise self._unknown()
        most: int | None
        if found["exact"]:
            least = most = int(found["exact"])
            if self._pattern.startswith("?", self._at):
                raise self._unknown()  # dialects disagree on what {n}? is
        else:
            least, most = int(found["least"] or 0), int(found["most"]) if found["most"] else None
            self._take("?")
        if most is not None and least > most:
            raise self._unknown()
        return _repeated(part, least, most, self._length)

    def _atom(self) -> _Cost:
        sign = self._pattern[self._at]
        if sign == "(":
            return self._group()
        if self._match(_BORDER) is not None:
            return _PLACE
        if sign == "[":
            self._class()
        elif self._match(_ESCAPE) is None:
            if sign in "\\?*+{}])":
                raise self._unknown()
            self._at += 1
        return _CHARACTER

    def _group(self) -> _Cost:
        found = self._match(_GROUP)
        if found is None or self._pattern.startswith(("?", "*"), self._at):
            raise self._unknown()
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._unknown()
        inner = self._alternatives()
        self._depth -= 1
        if not self._take(")"):
            raise self._unknown()
        kind = found["kind"]
        if kind in ("<=", "<!") and inner.first > _MAX_WASTE:
            raise self._unknown()
        if kind in ("=", "!", "<=", "<!"):
            return _looked(inner)
        return _held(inner) if kind == ">" else inner

    def _class(self) -> None:
        depth = 0
        while depth or self._pattern[self._at] == "[":
            if self._at >= len(self._pattern):
                raise self._unknown()
            if self._match(_POSIX_CLASS) is not None or self._match(_ESCAPE) is not None:
                continue
            sign = self._pattern[self._at]
            self._at += 1
            if sign == "[":
                depth += 1
                self._take("^")
                if self._pattern.startswith("]", self._at):
                    raise self._unknown()
            elif sign == "]":
                depth -= 1
                if not depth:
                    return
            elif sign == "\\":
                raise self._unknown()
