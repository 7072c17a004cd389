"""What is in an attached file, to read and to copy."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialog, QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget

from app.chat.storage.records import Attachment
from app.language import tr
from app.theme import theme
from app.widgets.buttons import button

SIZE, MARGINS = QSize(760, 560), QSize(48, 96)


class AttachmentView(QDialog):
    """Deleted when it is closed."""

    def __init__(self, attachment: Attachment, parent: QWidget) -> None:
        super().__init__(parent.window())
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        whole = attachment.whole
        self.setWindowTitle(attachment.name if whole else tr("{name} (beginning)", name=attachment.name))
        self.text = QPlainTextEdit(attachment.text)
        self.text.setReadOnly(True)
        self.text.setAccessibleName(attachment.name)
        self.text.setFont(theme().mono())
        self.text.setTabChangesFocus(True)
        copy, close = button(tr("Copy")), button(tr("Close"), kind="primary")
        copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(attachment.text))
        close.clicked.connect(self.close)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(copy)
        row.addWidget(close)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(12)
        column.addWidget(self.text, 1)
        column.addLayout(row)
        look = theme()
        usual = QSize(look.px(SIZE.width()), look.px(SIZE.height()))
        self.resize(usual.boundedTo(self.screen().availableGeometry().size() - MARGINS))
