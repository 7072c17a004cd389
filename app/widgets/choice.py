"""A box to choose from."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QComboBox


class Choice(QComboBox):
    """Its list is as wide as what is in it. A turn of the wheel changes it only while it has the focus."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setAccessibleName(name)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def showPopup(self) -> None:
        super().showPopup()
        view, screen = self.view(), self.screen().availableGeometry()
        lacking = view.sizeHintForColumn(self.modelColumn()) - view.viewport().width()
        if lacking > 0:
            place = view.window().geometry()
            place.setWidth(min(place.width() + lacking, screen.width()))
            place.moveLeft(max(screen.left(), min(place.left(), screen.right() + 1 - place.width())))
            view.window().setGeometry(place)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()
