"""The real program, `greenroom`, with a witness inside: what is on the screen, and where, for those who cannot look.

    python watched.py SOCKET

It says over a Unix socket what a screen reader would be told: the name, place and state of whatever is in sight, and
what of it cannot be read as a whole. It never acts: hands are xdotool's.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PySide6.QtCore import QMetaObject, QObject, QPoint, QRect, Qt, Slot
from PySide6.QtWidgets import QAbstractButton, QAbstractItemView, QApplication, QLabel, QMenu, QPlainTextEdit, QWidget

from app import language
from app.__main__ import main
from app.theme import theme

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from whole import unreadable


def _place(widget: QWidget, area: QRect) -> list[int]:
    """In pixels of the screen: left, top, width, height."""
    scale, corner = widget.devicePixelRatioF(), widget.mapToGlobal(area.topLeft())
    return [round(number * scale) for number in (corner.x(), corner.y(), area.width(), area.height())]


def _entry(widget: QWidget, kind: str, name: str, text: str, area: QRect, enabled: bool, on: bool) -> dict[str, Any]:
    return {
        "kind": kind,
        "name": name,
        "text": text,
        "place": _place(widget, area),
        "enabled": enabled,
        "on": on,
        "window": widget.window().windowTitle(),
    }


def _in_sight() -> Iterator[dict[str, Any]]:
    """Widgets, entries of menus and rows of lists that can be seen at least in part."""
    for widget in QApplication.allWidgets():
        if not widget.isVisible():
            continue
        seen = widget.visibleRegion().boundingRect()
        if seen.isEmpty():
            continue
        text = widget.toPlainText() if isinstance(widget, QPlainTextEdit) else str(widget.property("text") or "")
        name = widget.accessibleName()
        on = isinstance(widget, QAbstractButton) and widget.isChecked()
        if isinstance(widget, QMenu):
            for action in widget.actions():
                area = widget.actionGeometry(action)
                yield _entry(widget, "entry", action.text(), "", area, action.isEnabled(), action.isChecked())
        elif isinstance(widget, QAbstractItemView):
            model = widget.model()
            for row in range(model.rowCount() if model is not None else 0):
                index = model.index(row, 0)
                area = widget.visualRect(index) & widget.viewport().rect()
                if not area.isEmpty():
                    chosen = index == widget.currentIndex()
                    found = _entry(widget.viewport(), "row", str(index.data() or ""), "", area, True, chosen)
                    yield found | {"list": widget.accessibleName()}
        kind = "label" if isinstance(widget, QLabel) else type(widget).__name__
        if name or text or widget is QApplication.focusWidget():
            yield _entry(widget, kind, name, text, seen, widget.isEnabled(), on) | {
                "focus": widget is QApplication.focusWidget(),
                "whole": widget.visibleRegion().boundingRect() == widget.rect(),
            }


class Witness(QObject):
    """Answers in the thread of the window."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: dict[str, Any] = {}
        self.told = threading.Event()

    @Slot()
    def look(self) -> None:
        try:
            window = next((w for w in QApplication.topLevelWidgets() if hasattr(w, "chat_page")), None)
            windows = [w for w in QApplication.topLevelWidgets() if w.isVisible()]
            self.answer = {
                "items": list(_in_sight()),
                "windows": [w.windowTitle() for w in windows],
                "unreadable": [fault for w in windows for fault in unreadable(w)],
            }
            if window is not None:
                stage = window.contents.stage
                settings = window.contents.pages.get("settings")
                scale = window.devicePixelRatioF()
                corner = window.mapToGlobal(QPoint(0, 0))
                self.answer |= {
                    "state": window.host.state.kind,
                    "page": window.page,
                    "model": window.host.state.model_name,
                    "section": settings.section if settings is not None else "",
                    "language": language.language(),
                    "dark": theme().dark,
                    "zoom": theme().zoom,
                    "minimised": window.isMinimized(),
                    "performance": getattr(window.chat_page, "performance", None) is not None,
                    "stage": stage is not None and stage.isVisible(),
                    "replay": stage is not None and stage.replay is not None,
                    "size": [round(window.width() * scale), round(window.height() * scale)],
                    "corner": [round(corner.x() * scale), round(corner.y() * scale)],
                    "scale": scale,
                }
        finally:
            self.told.set()


def _serve(path: str) -> None:
    while QApplication.instance() is None:
        time.sleep(0.02)
    witness = Witness()
    witness.moveToThread(QApplication.instance().thread())
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        while True:
            caller, _ = server.accept()
            with caller:
                witness.told.clear()
                QMetaObject.invokeMethod(witness, "look", Qt.ConnectionType.QueuedConnection)
                witness.told.wait(30)
                caller.sendall(json.dumps(witness.answer).encode())


if __name__ == "__main__":
    # What every thread is at, to stderr, for a program that does not end.
    faulthandler.register(signal.SIGUSR1)
    threading.Thread(target=_serve, args=(sys.argv[1],), daemon=True, name="witness").start()
    sys.exit(main([]))
