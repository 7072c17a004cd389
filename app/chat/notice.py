"""Calm lines above the composer: what there is to say about the open chat, and what can be done about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QEvent, QObject, Qt, Signal, Slot
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QScrollArea, QVBoxLayout, QWidget

from app.language import tr
from app.widgets.buttons import button
from app.widgets.labels import label
from app.widgets.tab_order import tab_in_order_made
from app.widgets.wrap_row import WrapRow

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
    """One notice. closed: called when the user closes it or takes a choice."""

    def __init__(self, notice: Notice, closed: Callable[[], object], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.notice = notice
        self._closed = closed
        self._text = label("", wrap=True)
        self._text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        close = button("", icon="cross", kind="ghost", role="muted", name=tr("Dismiss"))
        close.clicked.connect(self._close)
        self._row = WrapRow()
        self.buttons: list[QPushButton] = []
        head = QHBoxLayout()
        head.addWidget(self._text, 1)
        head.addWidget(close, 0, Qt.AlignmentFlag.AlignTop)
        column = QVBoxLayout(self)
        column.setContentsMargins(14, 8, 8, 8)
        column.setSpacing(6)
        column.addLayout(head)
        column.addLayout(self._row)
        self._fill()

    @property
    def text(self) -> str:
        return self._text.text()

    def show_notice(self, notice: Notice) -> None:
        """What it says now. Buttons stay where they say the same: what they do is looked up when they are pressed."""
        before, self.notice = self.notice, notice
        if _said(before) != _said(notice):
            self._fill()

    def _fill(self) -> None:
        notice = self.notice
        while (item := self._row.takeAt(0)) is not None:
            if item.widget() is not None:
                item.widget().hide()
                item.widget().deleteLater()
        self.buttons = []
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

    def _choose(self, place: int) -> None:
        choices = self.notice.choices
        if place < len(choices):
            self._closed()
            choices[place][1]()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self._close()
        else:
            super().keyPressEvent(event)

    @Slot()
    def _close(self) -> None:
        self._closed()


def _said(notice: Notice) -> tuple[object, ...]:
    return notice.text, notice.warns, [text for text, _ in notice.choices]


class NoticeArea(QScrollArea):
    """All notices there are, the most pressing at the top. Where there is little room for them, they are scrolled."""

    #: str: the key of a notice that the user has closed, or of which a choice was taken
    closed = Signal(str)

    def __init__(self, before: QWidget, parent: QWidget | None = None) -> None:
        """before: what Tab visits before them"""
        super().__init__(parent)
        self._before = before
        self.bars: list[NoticeBar] = []
        self._room = 0
        self._inside = QWidget()
        self._column = QVBoxLayout(self._inside)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(8)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setWidgetResizable(True)
        self.setWidget(self._inside)
        self._inside.installEventFilter(self)
        self.hide()

    @property
    def text(self) -> str:
        """What all of them say, a line each."""
        return "\n".join(bar.text for bar in self.bars)

    @property
    def buttons(self) -> list[QPushButton]:
        """The choices of all of them."""
        return [made for bar in self.bars for made in bar.buttons]

    def show_notices(self, notices: Sequence[Notice]) -> None:
        known = {bar.notice.key: bar for bar in self.bars}
        self.bars = []
        for place, notice in enumerate(notices):
            bar = known.pop(notice.key, None)
            if bar is None:
                bar = NoticeBar(notice, partial(self.closed.emit, notice.key))
            else:
                bar.show_notice(notice)
            if self._column.indexOf(bar) != place:
                self._column.insertWidget(place, bar)
            self.bars.append(bar)
        for gone in known.values():
            self._column.removeWidget(gone)
            gone.hide()
            gone.deleteLater()
        last = tab_in_order_made(self._before)
        for bar in self.bars:
            last = tab_in_order_made(bar, last)
        self.setVisible(bool(self.bars))
        self._fit()

    def set_room(self, height: int) -> None:
        """What it may take. The most pressing notice is seen whole whatever that is."""
        self._room = height
        self._fit()

    def _fit(self) -> None:
        if self.bars:
            width = self.width()
            first, all_ = self.bars[0].heightForWidth(width), self._column.totalHeightForWidth(width)
            self.setFixedHeight(max(first, min(all_, self._room)))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:
            self._fit()
        return super().eventFilter(watched, event)
