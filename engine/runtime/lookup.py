"""Drafts of an answer's next tokens: what followed the last time the same tokens stood in the conversation.

One call for a token and its draft costs little more than one for the token alone, because both read the same weights.
Where an answer repeats its prompt (edited code, quotations, summaries) most of a draft turns out right. Prompt lookup
decoding (Saxena, 2023) and LLMA (Yang et al., 2023, "Inference with Reference") are the same idea. Which tokens come is
not touched by it: a drafted token counts only if the sampler chooses the same one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import numpy as np

#: Tokens that must have stood together before. Two are met by chance all the time; beyond eight nothing is gained.
SHORTEST, LONGEST = 3, 8
#: Tokens per call, the known one included, up to DRAFT. Few sizes, so that each is timed often.
CALL_SIZES = (2, 3, 4, 6, 8, 12, 16)
#: Expected gain from which a draft is tried: what a wrong guess of costs and chances may lose.
_WORTHWHILE = 1.05
#: Longest call made for a draft, so that the answer still flows: seconds, or so many times what one token takes.
_LONGEST_SECONDS, _LONGEST_RELATIVE = 0.5, 2.0


class CallCosts:
    """How long calls take by their number of tokens: medians of the newest of each, for a machine that others use too.

    Kept over answers. Calls of several tokens that have not been made for a while are forgotten, so that a figure from
    a busy moment is tried again.
    """

    _NEWEST, _FORGOTTEN_AFTER = 7, 200
    #: Before any draft was timed: each further token costs this share of the first. 0.1 to 0.2 measured on small dense
    #: models, 0.7 where every token wakes other experts.
    _FIRST_GUESS = 0.3

    def __init__(self) -> None:
        self._seconds: dict[int, deque[float]] = {}
        self._median: dict[int, float] = {}
        self._last_call: dict[int, int] = {}
        self._calls = 0

    def add(self, tokens: int, seconds: float) -> None:
        self._calls += 1
        newest = self._seconds.setdefault(tokens, deque(maxlen=self._NEWEST))
        newest.append(seconds)
        self._median[tokens] = median(newest)
        self._last_call[tokens] = self._calls
        for size, call in list(self._last_call.items()):
            if size > 1 and self._calls - call > self._FORGOTTEN_AFTER:
                del self._seconds[size], self._median[size], self._last_call[size]

    @property
    def one(self) -> float | None:
        """Seconds of a call of one token; None before one was timed."""
        return self._median.get(1)

    def relative(self, tokens: int) -> float | None:
        """Of a call of so many tokens, the cost of one of a single token being 1; None before one was timed.

        Between sizes that are known, and beyond them, along a straight line.
        """
        if (one := self.one) is None:
            return None
        known = sorted((size, max(1.0, seconds / one)) for size, seconds in self._median.items())
        if len(known) == 1:
            known.append((2, 1.0 + self._FIRST_GUESS))
        lines = list(pairwise(known))
        (size, cost), (next_size, next_cost) = next((line for line in lines if tokens <= line[1][0]), lines[-1])
        slope = (next_cost - cost) / (next_size - size)
        return max(1.0, cost + (tokens - size) * slope)


class Lookup:
    """Finds drafts in one conversation, and learns from every token whether its guesses come true.

    Also guesses that were not drafted are compared with what came, which costs nothing: so an answer that starts to
    repeat its prompt is noticed without a draft having been risked.
    """

    #: How fast old experience fades: about the last 20 guesses count.
    _FADE = 0.95
    #: Guesses that the first estimates count for. Sure enough to try, unsure enough to give up soon.
    _PRIOR = 3.0

    def __init__(self, prompt: Sequence[int], context: int, costs: CallCosts) -> None:
        """prompt: token ids; context: the most tokens that the conversation may have."""
        self._tokens = np.empty(context, dtype=np.int32)
        self._tokens[: len(prompt)] = prompt
        self._length = len(prompt)
        self._costs = costs
        #: By the number of tokens that matched: guesses, and those that came true.
        self._tried = dict.fromkeys(range(SHORTEST, LONGEST + 1), self._PRIOR)
        self._true = {matched: self._PRIOR * (0.3 + 0.07 * matched) for matched in self._tried}
        self._found = self._find()

    def add(self, token: int) -> None:
        """The conversation goes on with this token."""
        if self._found is not None:
            at, matched = self._found
            self._tried[matched] = self._tried[matched] * self._FADE + 1.0
            self._true[matched] = self._true[matched] * self._FADE + float(self._tokens[at + 1] == token)
        self._tokens[self._length] = token
        self._length += 1
        self._found = self._find()

    def draft(self, most: int) -> list[int]:
        """What may follow the conversation's last token, at most `most` tokens; empty where it would not pay."""
        if self._found is None:
            return []
        at, matched = self._found
        size = self._best_size(matched, most + 1)
        # A conversation that repeats itself with a period goes on doing so beyond its end.
        period = self._length - 1 - at
        return [int(self._tokens[at + 1 + i % period]) for i in range(size - 1)]

    def _best_size(self, matched: int, most: int) -> int:
        """Tokens of the call that is expected to give the most tokens for its cost; 1 for no draft."""
        best, best_rate = 1, _WORTHWHILE
        expected, chance, size = 1.0, 1.0, 1
        longest = max(_LONGEST_RELATIVE, _LONGEST_SECONDS / (self._costs.one or 1.0))
        for call in CALL_SIZES:
            cost = self._costs.relative(call)
            if call > most or cost is None or cost > longest:
                break
            while size < call:
                # If it comes true, one more token matches.
                seen = min(matched + size - 1, LONGEST)
                chance *= self._true[seen] / self._tried[seen]
                expected += chance
                size += 1
            if expected / cost > best_rate:
                best, best_rate = call, expected / cost
        return best

    def _find(self) -> tuple[int, int] | None:
        """Where the longest end of the conversation stood before, the latest of several: (position of its last token,
        tokens that match, at most LONGEST). None below SHORTEST.
        """
        tokens, last = self._tokens, self._length - 1
        found = np.flatnonzero(tokens[:last] == tokens[last])
        matched = min(1, found.size)
        while matched and matched < LONGEST:
            longer = found[found >= matched]
            longer = longer[tokens[longer - matched] == tokens[last - matched]]
            if not longer.size:
                break
            found, matched = longer, matched + 1
        return (int(found[-1]), matched) if matched >= SHORTEST else None
