"""Attached files as small plates: with a cross while a message is written, without one in the message."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.chat.composing.attachment_view import AttachmentView
from app.chat.speed.figures import tokens
from app.chat.storage.records import Attachment
from app.language import tr
from app.theme import theme
from app.theme.icons import make_pixmap
from app.widgets.buttons import button
from app.widgets.labels import ElideLabel, label

NAME_WIDTH = 220


def described(attachment: Attachment, count: int | None, exact: bool = True) -> str:
    """ "1.2k tokens", "~76k tokens", "the beginning · 3k tokens"; without a count, its characters."""
    if count is None:
        size = tr("%n characters", n=len(attachment.text))
    else:
        size = tr("%n tokens", n=count, written=("" if exact else "~") + tokens(count))
    return size if attachment.whole else tr("beginning · {size}", size=size)


class Chip(QFrame):
    """One file; a click, Enter or Space shows what is in it."""

    removed = Signal()

    def __init__(self, attachment: Attachment, removable: bool, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.attachment = attachment
        self.setObjectName("attachment")
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self._mark = label("")
        self._mark.setPixmap(make_pixmap("file", theme().tokens.muted, theme().px(14), self.devicePixelRatioF()))
        self._name = ElideLabel(attachment.name, "strong", Qt.TextElideMode.ElideMiddle)
        self._name.setMaximumWidth(theme().px(NAME_WIDTH))
        self._size = label("", "small")
        row = QHBoxLayout(self)
        row.setContentsMargins(8, 3, 4 if removable else 8, 3)
        row.setSpacing(6)
        for part in (self._mark, self._name, self._size):
            row.addWidget(part)
        self.cross: QPushButton | None = None
        if removable:
            name = tr("Remove {name}", name=attachment.name)
            self.cross = button("", icon="cross", kind="ghost", role="muted", name=name, tip=name)
            self.cross.setFixedSize(theme().px(22), theme().px(22))
            self.cross.clicked.connect(self.removed)
            row.addWidget(self.cross)
        self.set_tokens(None)

    def open_file(self) -> None:
        AttachmentView(self.attachment, self).open()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() != Qt.MouseButton.LeftButton:
            super().mousePressEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton and self.rect().contains(event.position().toPoint()):
            self.open_file()
        else:
            super().mouseReleaseEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self.open_file()
        else:
            super().keyPressEvent(event)

    @property
    def size_text(self) -> str:
        return self._size.text()

    def set_tokens(self, count: int | None, exact: bool = True) -> None:
        self._size.setText(described(self.attachment, count, exact))
        self.setAccessibleName(f"{self.attachment.name}, {self._size.text()}")


class ChipRows(QWidget):
    """Plates below each other, hidden while there are none."""

    #: int: the place of the file that is not wanted any more
    removed = Signal(int)

    def __init__(self, removable: bool, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._removable = removable
        self.chips: list[Chip] = []
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(4)
        self.hide()

    def show_files(self, attachments: Sequence[Attachment]) -> None:
        while (item := self._column.takeAt(0)) is not None:
            item.widget().hide()
            item.widget().deleteLater()
        self.chips = []
        for place, attachment in enumerate(attachments):
            chip = Chip(attachment, self._removable, self)
            chip.removed.connect(lambda place=place: self.removed.emit(place))
            self._column.addWidget(chip, 0, Qt.AlignmentFlag.AlignLeft)
            self.chips.append(chip)
        self.setVisible(bool(attachments))
