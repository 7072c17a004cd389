"""The question before the window closes while chats cannot be saved."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QAbstractButton, QMessageBox, QWidget

from app.language import told, tr
from app.words import sentence
from engine.errors import GreenroomError


class UnsavedQuestion(QMessageBox):
    """Stays until the user has chosen. Deleted when it is closed."""

    quitWanted = Signal()
    exportWanted = Signal()

    def __init__(self, problem: GreenroomError, parent: QWidget) -> None:
        """problem: why chats are not saved"""
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setIcon(QMessageBox.Icon.Warning)
        self.setWindowTitle(tr("Unsaved changes"))
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setText(tr("If you quit now, the latest changes to your chats are lost"))
        self.setInformativeText(f"{sentence(told(problem.why))}. {told(problem.remedy)}")
        self.export = self.addButton(tr("Export now"), QMessageBox.ButtonRole.ActionRole)
        self.quit = self.addButton(tr("Quit anyway"), QMessageBox.ButtonRole.DestructiveRole)
        self.stay = self.addButton(QMessageBox.StandardButton.Cancel)
        self.setDefaultButton(self.stay)
        self.setEscapeButton(self.stay)
        self.buttonClicked.connect(self._answer)

    @Slot(QAbstractButton)
    def _answer(self, chosen: QAbstractButton) -> None:
        if chosen is self.quit:
            self.quitWanted.emit()
        elif chosen is self.export:
            self.exportWanted.emit()
