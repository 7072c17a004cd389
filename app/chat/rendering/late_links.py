"""Links whose definitions came after them: found when an answer is whole, a few milliseconds at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chat.rendering.markdown import Leaf
from app.chat.rendering.markdown_stream import StreamParser

#: Characters parsed at once, and seconds of that between two turns of the event loop.
PIECE, SECONDS = 1500, 0.01


class LateLinks(QObject):
    """Reads one text again, now that it is known what its links refer to."""

    found = Signal()

    def __init__(self, text: str, references: Mapping[str, Any], parent: QObject) -> None:
        """references: what the parser that has read the whole text knows at its end."""
        super().__init__(parent)
        self.references = references
        self._text, self._end = text, 0
        self._parser = StreamParser(references)
        self._leaves: list[Leaf] = []
        self._timer = QTimer(self, singleShot=True, interval=0)
        self._timer.timeout.connect(self._read)
        self._timer.start()

    @property
    def leaves(self) -> Sequence[Leaf]:
        """Of the whole text, once they are `found`."""
        return self._leaves

    @Slot()
    def _read(self) -> None:
        until = time.perf_counter() + SECONDS
        while self._end < len(self._text) and time.perf_counter() < until:
            # A block without end is parsed anew for each piece: with growing ones, that is a few times.
            self._end += max(PIECE, self._end - self._parser.parsed_to)
            keep, leaves = self._parser.update(self._text[: self._end])
            self._leaves[keep:] = leaves
        if self._end < len(self._text):
            self._timer.start()
        else:
            self.found.emit()
