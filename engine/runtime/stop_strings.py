"""Ends an answer at a stop string, wherever the token borders fall."""

from __future__ import annotations

from collections.abc import Iterable

from engine.runtime.answer_split import overlap


class StopStrings:
    """A filter over a stream of text.

    The answer ends before the stop string that is complete first (the longest, if several end at the same character),
    so the result does not depend on how the text is cut into pieces. Only text that may still become a stop string
    is held back.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        """Empty strings are ignored."""
        self._stops = [stop for stop in stops if stop]
        self._held = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """(what may be shown now, whether a stop string was met). After a stop, feed nothing more."""
        text = self._held + text
        matches = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        if matches:
            self._held = ""
            return text[: min(matches)[1]], True
        held = max((overlap(text, stop) for stop in self._stops), default=0)
        shown = text[: len(text) - held]
        self._held = text[len(shown) :]
        return shown, False

    def flush(self) -> str:
        """What was held back and turned out to be plain text."""
        text, self._held = self._held, ""
        return text
