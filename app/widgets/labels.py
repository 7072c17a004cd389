"""Labels that say what they are, and one that shortens its text instead of growing."""

from __future__ import annotations

import html

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QLabel, QWidget


def label(text: str = "", role: str = "", wrap: bool = False, parent: QWidget | None = None) -> QLabel:
    """A plain-text label in one of the style sheet's roles."""
    made = QLabel(text, parent)
    made.setTextFormat(Qt.TextFormat.PlainText)
    made.setWordWrap(wrap)
    if role:
        made.setProperty("role", role)
    return made


def plain_tip(text: str) -> str:
    """A tool tip that shows names from files and from the network as they are: Qt would read HTML in them."""
    if "<" not in text and "&" not in text:
        return text
    lines = html.escape(text).replace("\n", "<br>")
    return f"<span>{lines}</span>"


def set_plain_tip(widget: QWidget, text: str) -> None:
    text = plain_tip(text)
    if text != widget.toolTip():
        widget.setToolTip(text)


def elided(text: str, metrics: QFontMetrics, mode: Qt.TextElideMode, room: int) -> str:
    """The text, shortened where it needs more than so many pixels.

    Qt measures in whole pixels, which may be a little less than the text, and would cut what has just that room.
    """
    return text if metrics.horizontalAdvance(text) <= room else metrics.elidedText(text, mode, room)


class ElideLabel(QLabel):
    """One line of plain text, ending in an ellipsis where it does not fit; the whole text is in its tool tip then."""

    def __init__(
        self,
        text: str = "",
        role: str = "",
        mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(text, parent)
        self._mode = mode
        #: What the tool tip says besides.
        self.detail = ""
        #: Texts that say it in less room, the longest first: the first that fits is shown.
        self.shorter: tuple[str, ...] = ()
        self.setTextFormat(Qt.TextFormat.PlainText)
        if role:
            self.setProperty("role", role)

    def minimumSizeHint(self) -> QSize:
        return QSize(
            min(super().sizeHint().width(), self.fontMetrics().horizontalAdvance("MMM…")), super().sizeHint().height()
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        area, metrics = self.contentsRect(), self.fontMetrics()
        texts = (self.text(), *self.shorter)
        fits = next((text for text in texts if metrics.horizontalAdvance(text) <= area.width()), texts[-1])
        shown = elided(fits, metrics, self._mode, area.width())
        tip = "\n".join(filter(None, (self.text() if shown != self.text() else "", self.detail)))
        set_plain_tip(self, tip)
        painter = QPainter(self)
        painter.setPen(self.palette().color(self.foregroundRole()))
        painter.drawText(area, int(self.alignment() | Qt.TextFlag.TextSingleLine), shown)
