"""Progress and cancellation as plain objects: the terminal and the window both observe them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One report from long work.

    done, total: in bytes or steps; total 0 means unknown.
    message:     what is happening now, e.g. "Reading experts of layer 31 of 48".
    seconds_left: until all is done, where whoever works can tell
    """

    done: int
    total: int
    message: str
    seconds_left: float | None = None

    @property
    def fraction(self) -> float:
        """Share done in 0..1; 0 when the total is unknown."""
        return min(1.0, self.done / self.total) if self.total > 0 else 0.0


#: Called from the working thread. It may raise `engine.errors.Cancelled` to stop the work.
ProgressCallback = Callable[[Progress], None]


def ignore_progress(_: Progress) -> None:
    """The callback for callers who do not watch."""
