"""One calm line above the composer: something about the open chat, and what can be done about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import Qt, Slot
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.language import tr
from app.widgets.buttons import button
from app.widgets.labels import label

#: (text on the button, what it does)
Choice = tuple[str, Callable[[], object]]


@dataclass(frozen=True)
class Notice:
    """key:     tells causes apart: one that was closed does not come back for the same chat
    text:    a sentence, with the figures it takes to choose
    choices: buttons, the likeliest first
    warns:   something is in the way, rather than merely worth knowing
    """

    key: str
    text: str
    choices: tuple[Choice, ...] = ()
    warns: bool = False


class NoticeBar(QFrame):
    """Shows one notice, or nothing."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.notice: Notice | None = None
        self._closed: Callable[[], object] = lambda: None
        self._text = label("", wrap=True)
        self._text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        close = button("", icon="cross", kind="ghost", role="muted", name=tr("Close this message"))
        close.clicked.connect(self._close)
        self._row = QHBoxLayout()
        self._row.setSpacing(8)
        self.buttons: list[QPushButton] = []
        head = QHBoxLayout()
        head.addWidget(self._text, 1)
        head.addWidget(close, 0, Qt.AlignmentFlag.AlignTop)
        column = QVBoxLayout(self)
        column.setContentsMargins(14, 8, 8, 8)
        column.setSpacing(6)
        column.addLayout(head)
        column.addLayout(self._row)
        self.hide()

    @property
    def text(self) -> str:
        return self._text.text() if self.notice is not None else ""

    def show_notice(self, notice: Notice | None, closed: Callable[[], object] = lambda: None) -> None:
        """closed: called when the user closes it or takes a choice."""
        self._closed = closed
        said = (notice.text, notice.warns, [text for text, _ in notice.choices]) if notice is not None else None
        before = self.notice
        self.notice = notice
        if before is not None and said == (before.text, before.warns, [text for text, _ in before.choices]):
            return  # what the buttons do is looked up when they are pressed
        while (item := self._row.takeAt(0)) is not None:
            if item.widget() is not None:
                item.widget().hide()
                item.widget().deleteLater()
        self.buttons = []
        if notice is None:
            self.hide()
            return
        self.setProperty("surface", "banner-warn" if notice.warns else "banner-info")
        self.style().unpolish(self)
        self.style().polish(self)
        self._text.setText(notice.text)
        self.setAccessibleName(notice.text)
        for place, (text, _) in enumerate(notice.choices):
            made = button(text.replace("&", "&&"), kind="primary" if place == 0 else "", name=text, parent=self)
            made.clicked.connect(lambda checked=False, place=place: self._choose(place))
            self._row.addWidget(made)
            self.buttons.append(made)
        self._row.addStretch(1)
        self.show()

    def _choose(self, place: int) -> None:
        notice = self.notice
        if notice is not None and place < len(notice.choices):
            self._closed()
            notice.choices[place][1]()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self._close()
        else:
            super().keyPressEvent(event)

    @Slot()
    def _close(self) -> None:
        self._closed()
