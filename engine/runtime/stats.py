"""The clock of one answer."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from engine.runtime.events import GenerationStats


class StatsMeter:
    """Started when the answer is asked for; told about each prompt chunk and each token as it happens."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._start = clock()
        self._prompt_tokens = 0
        self._reused_tokens = 0
        self._prefill_tokens = 0
        self._prefill_start = self._prefill_end = self._start
        self._tokens = 0
        self._drafted = self._accepted = 0
        self._first = self._last = self._start

    def prefill_starts(self, prompt_tokens: int, reused_tokens: int) -> None:
        self._prompt_tokens = prompt_tokens
        self._reused_tokens = reused_tokens
        self._prefill_start = self._prefill_end = self._clock()

    def prefilled(self, tokens: int) -> None:
        """A chunk of this many prompt tokens has been computed."""
        self._prefill_tokens += tokens
        self._prefill_end = self._clock()

    def token(self) -> None:
        """One token of the answer has been chosen."""
        self._last = self._clock()
        if self._tokens == 0:
            self._first = self._last
        self._tokens += 1

    def drafted(self, tokens: int) -> None:
        """So many tokens have been guessed and are computed now."""
        self._drafted += tokens

    def accepted(self) -> None:
        """A guessed token has come true."""
        self._accepted += 1

    def snapshot(self) -> GenerationStats:
        prefill_s = self._prefill_end - self._prefill_start
        decode_s = self._last - self._first
        return GenerationStats(
            prompt_tokens=self._prompt_tokens,
            reused_tokens=self._reused_tokens,
            prefilled_tokens=self._prefill_tokens,
            completion_tokens=self._tokens,
            first_token_s=self._first - self._start,
            prefill_s=prefill_s,
            prefill_tps=self._prefill_tokens / prefill_s if prefill_s > 0 else 0.0,
            decode_tps=(self._tokens - 1) / decode_s if decode_s > 0 else 0.0,
            drafted_tokens=self._drafted,
            accepted_tokens=self._accepted,
        )
