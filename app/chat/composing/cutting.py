"""How much of a file's beginning fits into the context: found by counting what would be sent, not by its characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal, Slot

from app.chat.composing.attaching import beginning
from app.chat.composing.context import ROOM, ContextMeter
from app.chat.storage.records import Attachment
from app.host import EngineHost, TokenCount

_KEY = "beginning"
#: Of the context, what may stay free; and as many tokens in any case.
SPARE, FEW = 0.005, 16
#: As often it is counted at the most.
MOST_COUNTS = 16
#: Characters that are not looked at one by one.
CLOSE = 32
#: Share taken on trust where nobody counts: characters are not all of one size.
SURE = 0.95


@dataclass
class _Search:
    """low, high: characters that fit, and that do not, each with its tokens in all; counted: whether high's are.

    asked: the part that is being counted; best: the longest one that fits
    """

    files: tuple[Attachment, ...]
    place: int
    low: int
    low_tokens: int
    high: int
    high_tokens: int
    counted: bool = False
    counts: int = 0
    asked: Attachment | None = None
    best: Attachment | None = None

    def __post_init__(self) -> None:
        self._base = self.low_tokens

    def next(self, wanted: int) -> int:
        """Characters to try, so that all takes `wanted` tokens."""
        width, missing = self.high - self.low, max(1, wanted - self.low_tokens)
        if self.counted and self.counts % 3 == 2:
            return self.low + width // 2  # where the text changes its kind, straight lines go on for ever
        rise = max(1, self.high_tokens - self.low_tokens)
        step = width * missing // rise
        if not self.counted and self.best is not None:
            # What follows is likely to be as what was counted, rather than as all of the rest.
            taken = max(1, self.low_tokens - self._base)
            step = self.low * missing // taken
        return self.low + min(max(step, 1), width)

    def with_part(self, part: Attachment) -> list[Attachment]:
        return [*self.files[: self.place], part, *self.files[self.place + 1 :]]


class Cutting(QObject):
    """One search at a time, on the engine's thread as all counting."""

    #: list[Attachment]: the draft's files, one of them cut
    found = Signal(list)

    def __init__(self, host: EngineHost, meter: ContextMeter, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._host, self._meter = host, meter
        self._search: _Search | None = None
        self._prompt: tuple[object, ...] = ()
        host.tokensCounted.connect(self._take)

    def cuts(self, files: Sequence[Attachment]) -> bool:
        """Whether it is at work on these."""
        return self._search is not None and self._search.files == tuple(files)

    def begin(self, files: Sequence[Attachment], place: int, size: int, free: int) -> None:
        """Cut the file at `place`. size: its tokens, free: those that it may take; both may be estimates."""
        text, base = files[place].text, self._limit - free
        self._search = _Search(tuple(files), place, 0, base, len(text), base + size)
        self._count()

    def stop(self) -> None:
        self._search = None

    @property
    def _limit(self) -> int:
        return self._meter.size - ROOM

    @property
    def _wanted(self) -> int:
        """Tokens to aim at: in the middle of what is near enough."""
        return self._limit - self._spare // 2

    @property
    def _spare(self) -> int:
        return max(FEW, round(SPARE * self._meter.size))

    def _count(self) -> None:
        search = self._search
        assert search is not None
        part = beginning(search.files[search.place], search.next(self._wanted))
        if len(part.text) <= search.low:
            part = beginning(search.files[search.place], (search.low + search.high) // 2)
        if len(part.text) <= search.low or search.counts == MOST_COUNTS:
            self._end()
            return
        search.asked, search.counts = part, search.counts + 1
        prompt, thinking = self._meter.prompt_with(search.with_part(part))
        self._prompt = tuple(prompt)
        self._host.count(_KEY, prompt, thinking)

    @Slot(object)
    def _take(self, count: TokenCount) -> None:
        search = self._search
        if count.request.key != _KEY or search is None or tuple(count.request.prompt) != self._prompt:
            return
        if self._meter.size == 0 or self._meter.files != search.files:
            self.stop()
            return
        part = search.asked
        assert part is not None
        if count.tokens is None:
            self._end()
            return
        if count.tokens <= self._limit:
            search.low, search.low_tokens, search.best = len(part.text), count.tokens, part
        else:
            search.high, search.high_tokens, search.counted = len(part.text), count.tokens, True
        enough = search.best is not None and self._limit - search.low_tokens <= self._spare
        if enough or search.high - search.low <= CLOSE:
            self._end()
        else:
            self._count()

    def _end(self) -> None:
        search, self._search = self._search, None
        assert search is not None
        part = search.best
        if part is None:
            # Nobody can count it, or even a little is too much.
            share = (self._limit - search.low_tokens) / max(1, search.high_tokens - search.low_tokens)
            part = beginning(search.files[search.place], int(search.high * share * SURE))
        self.found.emit(search.with_part(part))
