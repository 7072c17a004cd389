"""The dialogs that open a model: a file, or a folder of safetensors."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtWidgets import QWidget

from app.language import tr
from app.widgets.file_dialog import FileDialog


def choose_file(window: QWidget, start: str, chosen: Callable[[str], object]) -> None:
    """start: the folder that is shown first; chosen: takes the path."""
    dialog = _dialog(window, tr("Open a model file"), start, FileDialog.FileMode.ExistingFile)
    models, everything = tr("Models"), tr("All files")
    dialog.setNameFilter(f"{models} (*.gguf *.safetensors *.json);;{everything} (*)")
    dialog.fileSelected.connect(chosen)
    dialog.open()


def choose_folder(window: QWidget, start: str, chosen: Callable[[str], object]) -> None:
    dialog = _dialog(window, tr("Open a folder of safetensors"), start, FileDialog.FileMode.Directory)
    dialog.fileSelected.connect(chosen)
    dialog.open()


def _dialog(window: QWidget, title: str, start: str, mode: FileDialog.FileMode) -> FileDialog:
    dialog = FileDialog(window, title, start)
    dialog.setFileMode(mode)
    return dialog
