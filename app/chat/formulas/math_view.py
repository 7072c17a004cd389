"""One formula on a line of its own."""

from __future__ import annotations

from math import ceil

from PySide6.QtCore import Qt, Slot
from PySide6.QtGui import (
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QWheelEvent,
)
from PySide6.QtWidgets import QWidget

from app.chat.rendering.flow_view import FlowView
from app.chat.rendering.markdown import Math
from app.language import tr
from app.theme import theme


class FormulaView(FlowView):
    """A formula on a line of its own, in the middle; one wider than the column scrolls sideways."""

    def __init__(self, leaf: Math, ink: str = "text", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self._ink = ink
        self.show_leaf(leaf)

    def show_leaf(self, leaf: Math) -> None:
        self.setAccessibleName(tr("Formula: {source}", source=leaf.text))
        self._formulas.clear()
        self.document().clear()
        cursor = QTextCursor(self.document())
        form = QTextBlockFormat()
        form.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        cursor.setBlockFormat(form)
        base = QTextCharFormat()
        base.setFont(self.document().defaultFont())
        base.setForeground(theme().colour(self._ink))
        self._formulas.insert(cursor, leaf.text, True, base)
        self._begin()
        self.fit()

    @Slot()
    def _refit(self) -> None:
        """The formula has taken its source's place."""
        self._begin()
        super()._refit()

    def _begin(self) -> None:
        """Qt keeps the cursor in sight, and it has gone to the end."""
        self.moveCursor(QTextCursor.MoveOperation.Start)
        self.horizontalScrollBar().setValue(0)

    def fit(self) -> None:
        if self._width <= 0:
            return
        self._wrapped = 0
        self._wrap_at(-1)
        natural = ceil(max(self.document().size().width(), self.document().idealWidth()))
        self._wrap_at(max(natural, self._width))
        bar = self.horizontalScrollBar().sizeHint().height() if natural > self._width else 0
        self._take(self._width, ceil(self.document().size().height()) + bar)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Sideways turns scroll the formula, all others the chat."""
        delta = event.angleDelta()
        if abs(delta.x()) > abs(delta.y()):
            super(FlowView, self).wheelEvent(event)
        else:
            event.ignore()

    def _room_of_line(self) -> float:
        return 0.0
