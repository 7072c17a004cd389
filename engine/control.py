"""Work that another thread can stop, also while it waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from engine.errors import Cancelled


class Control:
    """Stops work from any thread. Whoever does the work, or waits in it, looks here often."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def check(self) -> None:
        """Raises Cancelled when stopped."""
        if self._stopped.is_set():
            raise Cancelled

    def sleep(self, seconds: float) -> None:
        """Raises Cancelled when stopped meanwhile."""
        if self._stopped.wait(seconds):
            raise Cancelled


_current: ContextVar[Control | None] = ContextVar("control", default=None)


def current_control() -> Control:
    """The control of the work on this thread; one that nobody stops where there is none."""
    return _current.get() or Control()


@contextmanager
def controlled_by(control: Control) -> Iterator[None]:
    """What is called inside finds this control as `current_control`. Threads that it starts do not."""
    before = _current.set(control)
    try:
        yield
    finally:
        _current.reset(before)
