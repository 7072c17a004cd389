"""Saving something of a chat in a file that the user names."""

from __future__ import annotations

import os
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMessageBox, QWidget

from app.language import tr
from app.widgets.file_dialog import FileDialog
from engine.safe_paths import offered_name


def save_bytes(parent: QWidget, title: str, name: str, data: bytes, kinds: str = "") -> FileDialog:
    """Ask for a file and write it, without holding up the window; a failure is told in a message box.

    name: what is offered; kinds: the dialog's filter, e.g. "Pictures (*.png)"
    """
    dialog = FileDialog(parent, title, kinds=kinds)
    dialog.setAcceptMode(FileDialog.AcceptMode.AcceptSave)
    stem, ending = os.path.splitext(name)
    dialog.selectFile(offered_name(stem, "greenroom") + ending)
    dialog.setDefaultSuffix(ending.lstrip("."))
    # Not the parent itself: a child whose end is the end of its parent is deleted twice.
    dialog.fileSelected.connect(lambda path: _write(dialog.parentWidget(), Path(path), data))
    dialog.open()
    return dialog


def _write(parent: QWidget, path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        box = QMessageBox(parent)
        box.setIcon(QMessageBox.Icon.Warning)
        box.setTextFormat(Qt.TextFormat.PlainText)
        box.setWindowTitle(tr("Not saved"))
        box.setText(tr("{name} was not saved", name=path.name))
        why = error.strerror or str(error)
        box.setInformativeText(tr("System error: {why}. Choose another folder or name.", why=why))
        box.finished.connect(box.deleteLater)
        box.open()
