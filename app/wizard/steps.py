"""The wizard's left side: which steps there are, which are done, and where the user is."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.language import tr
from app.theme import theme
from app.theme.icons import make_pixmap
from app.theme.theme import restyle
from app.widgets.buttons import button
from app.widgets.labels import label
from app.widgets.logo import Logo

WIDE, SLIM, MARKS = 212, 168, 62


class _Mark(QWidget):
    """A number in a circle; a tick when the step is done."""

    SIDE = 22

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number, self.state = number, "ahead"
        side = theme().px(self.SIDE)
        self.setFixedSize(side, side)
        theme().changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        circle = QRectF(self.rect()).adjusted(0.75, 0.75, -0.75, -0.75)
        if self.state == "done":
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme().colour("soft"))
            painter.drawEllipse(circle)
            side = theme().px(12)
            tick = make_pixmap("check", theme().tokens.accent, side, self.devicePixelRatioF())
            place = (self.width() - side) // 2
            painter.drawPixmap(place, place, tick)
            return
        here = self.state == "here"
        painter.setPen(QPen(theme().colour("accent" if here else "line"), 1.5 if here else 1))
        painter.drawEllipse(circle)
        painter.setPen(theme().colour("accent" if here else "muted"))
        font = self.font()
        font.setPixelSize(theme().px(11))
        painter.setFont(font)
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, str(self._number))


class Steps(QWidget):
    skipped = Signal()

    def __init__(self, titles: Sequence[str], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("surface", "side")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._titles = list(titles)
        self._rows: list[tuple[_Mark, QWidget]] = []
        column = QVBoxLayout(self)
        column.setContentsMargins(theme().px(20), 28, 4, 20)
        column.setSpacing(18)
        head = QHBoxLayout()
        head.setSpacing(10)
        head.addWidget(Logo())
        self._name = label("Greenroom", "heading")
        head.addWidget(self._name)
        head.addStretch(1)
        column.addLayout(head)
        column.addSpacing(6)
        for number, title in enumerate(titles, 1):
            mark, text = _Mark(number), label(tr(title), "muted")
            row = QHBoxLayout()
            row.setSpacing(12)
            row.addWidget(mark, 0, Qt.AlignmentFlag.AlignLeft)
            row.addWidget(text, 1)
            column.addLayout(row)
            self._rows.append((mark, text))
        column.addStretch(1)
        self.skip = button(
            tr("Skip setup"), kind="link", tip=tr("Close setup. You can run it again from the This PC page")
        )
        self.skip.clicked.connect(self.skipped)
        column.addWidget(self.skip, 0, Qt.AlignmentFlag.AlignLeft)
        self.show_step(0)

    def show_words(self, on: bool) -> None:
        """Or only the marks, which have tool tips."""
        for mark, text in self._rows:
            text.setVisible(on)
            mark.setToolTip("" if on else text.text())
        self._name.setVisible(on)
        self.skip.setVisible(on)

    def show_step(self, current: int) -> None:
        for number, (mark, text) in enumerate(self._rows):
            mark.state = "done" if number < current else "here" if number == current else "ahead"
            mark.update()
            text.setProperty("role", "strong" if number == current else "muted")
            restyle(text)
        self.setAccessibleName(
            tr(
                "Step {number} of {count}: {title}",
                number=current + 1,
                count=len(self._rows),
                title=tr(self._titles[current]),
            )
        )
