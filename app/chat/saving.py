"""Saving something of a chat in a file that the user names."""

from __future__ import annotations

import re
from pathlib import Path

from PySide6.QtWidgets import QFileDialog, QMessageBox, QWidget

from app.language import tr


def save_bytes(parent: QWidget, title: str, name: str, data: bytes, kinds: str = "") -> QFileDialog:
    """Ask for a file and write it, without holding up the window; a failure is told in a message box.

    name: what is offered; kinds: the dialog's filter, e.g. "Pictures (*.png)"
    """
    dialog = QFileDialog(parent, title)
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    if kinds:
        dialog.setNameFilter(kinds)
    dialog.selectFile(safe_name(name))
    dialog.setDefaultSuffix(Path(name).suffix.lstrip("."))
    dialog.fileSelected.connect(lambda path: _write(parent, Path(path), data))
    dialog.finished.connect(dialog.deleteLater)
    dialog.open()
    return dialog


def safe_name(name: str) -> str:
    """A file's name without what some system does not allow in one."""
    return re.sub(r'[\x00-\x1f<>:"/\\|?*]', "-", name).strip(" .") or "greenroom"


def _write(parent: QWidget, path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        box = QMessageBox(parent)
        box.setIcon(QMessageBox.Icon.Warning)
        box.setWindowTitle(tr("Not saved"))
        box.setText(tr("{name} was not saved", name=path.name))
        why = error.strerror or str(error)
        box.setInformativeText(tr("The system says: {why}. Choose another folder or name.", why=why))
        box.finished.connect(box.deleteLater)
        box.open()
