"""Full collections wait for the end of an answer."""

from __future__ import annotations

import gc
import weakref

from PySide6.QtCore import QObject, Signal

from app.garbage import RARELY, collect_after


class Source(QObject):
    finished = Signal(object)


class Knot:
    def __init__(self) -> None:
        self.me = self


def test_garbage_is_looked_for_when_an_answer_has_ended(qtbot):
    before = gc.get_threshold()
    try:
        source = Source()
        timer = collect_after(source.finished, source)
        timer.setInterval(0)
        assert gc.get_threshold() == (*before[:2], RARELY)
        gc.disable()
        knot = weakref.ref(Knot())
        assert knot() is not None
        source.finished.emit(None)
        qtbot.waitUntil(lambda: knot() is None, timeout=60_000)
    finally:
        gc.enable()
        gc.unfreeze()
        gc.set_threshold(*before)
