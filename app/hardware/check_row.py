"""Findings about this PC as rows: mark, title, sentence, figure."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QVBoxLayout, QWidget

from app.hardware.checks import Check
from app.language import mark, tr
from app.theme import theme
from app.theme.icons import make_pixmap
from app.widgets.labels import label

#: A narrower list folds its rows.
ROOMY = 660
TITLE_WIDTH = 118

#: state: (icon, ink, what a screen reader says)
_MARKS = {
    "good": ("check", "accent", mark("Good")),
    "warn": ("warning", "warn", mark("Warning")),
    "bad": ("cross", "bad", mark("Problem")),
    "note": ("info", "muted", mark("Note")),
    "wait": ("gauge", "faint", mark("Not known yet")),
}


class CheckRow(QFrame):
    """margin: at the left and the right, in pixels; 0 for a list without a frame."""

    def __init__(self, check: Check, first: bool, margin: int = 16, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("surface", "row")
        self.setProperty("first", "true" if first else "false")
        self._mark = QLabel()
        self._mark.setFixedSize(theme().px(20), theme().px(20))
        self._title = label("", "strong")
        self._title.setFixedWidth(theme().px(TITLE_WIDTH))
        self._sentence = label("", wrap=True)
        self._sentence.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._sentence.setAlignment(Qt.AlignmentFlag.AlignTop)
        self._note = label("", "small")
        self._note.setContentsMargins(0, 2, 0, 0)
        self._grid = grid = QGridLayout(self)
        grid.setContentsMargins(margin, 12, margin, 12)
        grid.setHorizontalSpacing(12)
        grid.setVerticalSpacing(2)
        for column, part in enumerate((self._mark, self._title, self._sentence, self._note)):
            top = Qt.AlignmentFlag(0) if part is self._sentence else Qt.AlignmentFlag.AlignTop
            grid.addWidget(part, 0, column, top)
        grid.setColumnStretch(2, 1)
        self._compact = False
        theme().changed.connect(self._draw)
        self.show_check(check)

    def show_check(self, check: Check) -> None:
        self.check = check
        title, said = tr(check.title), tr(_MARKS[check.state][2])
        self.setAccessibleName(f"{title}: {said}. {check.sentence} {check.note}".strip())
        self._title.setText(title)
        # A word joiner: a unit is not broken at its slash.
        self._sentence.setText(check.sentence.replace("/s", "/\u2060s"))
        self._note.setText(check.note)
        self._note.setVisible(bool(check.note))
        self._draw()

    def set_compact(self, compact: bool) -> None:
        """For a narrow window: the figure goes under the sentence."""
        if compact != self._compact:
            self._compact = compact
            self._grid.removeWidget(self._note)
            self._grid.addWidget(self._note, *((1, 2) if compact else (0, 3)), Qt.AlignmentFlag.AlignTop)

    def _draw(self) -> None:
        icon, ink, _ = _MARKS[self.check.state]
        self._mark.setPixmap(make_pixmap(icon, getattr(theme().tokens, ink), theme().px(16), self.devicePixelRatioF()))


class CheckList(QFrame):
    """Rows in their order; those that stay keep their place when others come."""

    def __init__(self, margin: int = 16, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._margin = margin
        self._box = QVBoxLayout(self)
        self._box.setContentsMargins(0, 0, 0, 0)
        self._box.setSpacing(0)

    @property
    def rows(self) -> list[CheckRow]:
        return [self._box.itemAt(i).widget() for i in range(self._box.count())]

    def show_checks(self, found: Sequence[Check]) -> None:
        rows = self.rows
        for row, check in zip(rows, found, strict=False):
            if row.check != check:
                row.show_check(check)
        for number, check in enumerate(found[len(rows) :], len(rows)):
            row = CheckRow(check, number == 0, self._margin)
            row.set_compact(self.width() < theme().px(ROOMY))
            self._box.addWidget(row)
        for row in rows[len(found) :]:
            self._box.removeWidget(row)
            row.hide()
            row.deleteLater()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        for row in self.rows:
            row.set_compact(self.width() < theme().px(ROOMY))
