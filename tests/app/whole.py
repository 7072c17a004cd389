"""Whether what a window says can be read: nothing cut off, shortened, or lying over something else."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLabel,
    QLineEdit,
    QScrollArea,
    QStyle,
    QStyleOptionFrame,
    QWidget,
)

from app.widgets.labels import ElideLabel

CONTROLS = (QAbstractButton, QAbstractSpinBox, QComboBox, QLineEdit)
#: Rounding of text that is as wide as its label.
_SLACK = 1


def cut(window: QWidget) -> list[str]:
    """What cannot be read as a whole once the window has come to rest, and why; [] when all can."""
    for _ in range(3):  # a scroll bar that comes takes room, and so on
        QApplication.processEvents()
    return unreadable(window)


def unreadable(window: QWidget) -> list[str]:
    """What cannot be read as a whole now."""
    return [*_cut_controls(window), *_cut_labels(window), *_cut_hints(window), *_overlaps(window)]


def _seen(window: QWidget, kinds: type | tuple[type, ...]) -> Iterator[QWidget]:
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        for widget in window.findChildren(kind):
            # Popups and dialogs over the window are windows of their own.
            if widget.isVisible() and widget.window() is window.window() and not widget.visibleRegion().isEmpty():
                yield widget


def _cut_controls(window: QWidget) -> Iterator[str]:
    """Controls whose sides are out of sight, or that have no room for what they say."""
    for control in _seen(window, CONTROLS):
        # A list scrolls up and down, never sideways.
        around = control.parentWidget()
        while around is not None and not isinstance(around.parentWidget(), QScrollArea):
            around = around.parentWidget() if around is not window else None
        area = window if around is None else around
        place = QRect(control.mapTo(area, QPoint()), control.size())
        sides = place.left() < 0 or place.right() >= area.width()
        says = isinstance(control, QAbstractButton) and bool(control.text())
        least = control.minimumSizeHint()
        narrow = says and (control.width() < least.width() - _SLACK or control.height() < least.height() - _SLACK)
        if sides or narrow:
            name = control.accessibleName() or (control.text() if says else type(control).__name__)
            yield f"control {name}: {place.getRect()} in {area.width()}, wants {least.toTuple()}"


def _cut_labels(window: QWidget) -> Iterator[str]:
    for label in _seen(window, QLabel):
        text, room = label.text(), label.contentsRect().size()
        # A chip is as high as its letters, whatever room between lines a font asks for.
        if not text or label.textFormat() == Qt.TextFormat.RichText or label.property("chip"):
            continue
        if isinstance(label, ElideLabel):
            texts = (text, *label.shorter)
            if all(label.fontMetrics().horizontalAdvance(t) > room.width() + _SLACK for t in texts):
                yield f"shortened: {text!r} in {room.toTuple()}"
            continue
        flags = Qt.TextFlag.TextWordWrap if label.wordWrap() else Qt.TextFlag.TextSingleLine
        if label.buddy() is not None:
            flags |= Qt.TextFlag.TextShowMnemonic
        needed = label.fontMetrics().boundingRect(QRect(0, 0, room.width(), 100_000), flags, text).size()
        if needed.width() > room.width() + _SLACK or needed.height() > room.height() + _SLACK:
            yield f"cut: {text!r} needs {needed.toTuple()}, has {room.toTuple()}"


def _cut_hints(window: QWidget) -> Iterator[str]:
    for field in _seen(window, QLineEdit):
        option = QStyleOptionFrame()
        field.initStyleOption(option)
        room = field.style().subElementRect(QStyle.SubElement.SE_LineEditContents, option, field).width() - 4
        hint = field.placeholderText()
        if not field.text() and field.fontMetrics().horizontalAdvance(hint) > room:
            yield f"hint: {hint!r} in {room}"


def _overlaps(window: QWidget) -> Iterator[str]:
    """Texts of one parent that lie over each other."""
    texts = [w for w in _seen(window, (QLabel, QAbstractButton)) if not (isinstance(w, QLabel) and not w.text())]
    by_parent: dict[QWidget, list[QWidget]] = {}
    for widget in texts:
        by_parent.setdefault(widget.parentWidget(), []).append(widget)
    for parent, parts in by_parent.items():
        if parent.layout() is None:
            continue
        for number, first in enumerate(parts):
            for second in parts[number + 1 :]:
                common = first.geometry() & second.geometry()
                if common.width() > _SLACK and common.height() > _SLACK:
                    yield f"over each other: {_text(first)!r} and {_text(second)!r}"


def _text(widget: QWidget) -> str:
    return widget.text() or widget.accessibleName()
