"""The control for the models folder, with the question what becomes of the models in the old one."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QAbstractButton, QHBoxLayout, QMessageBox, QVBoxLayout

from app import tasks
from app.language import told, tr
from app.settings.fields import CONTROL_WIDTH, Sided
from app.settings.store import Settings, SettingsStore
from app.theme import theme
from app.widgets.buttons import button
from app.widgets.file_dialog import FileDialog
from app.widgets.labels import ElideLabel
from app.words import home_path, sentence
from engine.errors import GreenroomError
from engine.hub.trash import move_models


class ModelsFolder(Sided):
    def __init__(self, settings: SettingsStore) -> None:
        super().__init__()
        self._settings = settings
        self.folder = ElideLabel("", "small", Qt.TextElideMode.ElideMiddle)
        self.folder.setFixedWidth(theme().px(CONTROL_WIDTH))
        self.choose = button(tr("Choose…"), name=tr("Choose the models folder"))
        self.choose.clicked.connect(self._choose)
        self.default = button(tr("Reset to default"), kind="link")
        self.default.clicked.connect(lambda: settings.change(models_folder=None))
        self._buttons = buttons = QHBoxLayout()
        buttons.addStretch(1)
        buttons.addWidget(self.default)
        buttons.addWidget(self.choose)
        buttons.addStretch(0)
        cell = QVBoxLayout(self)
        cell.setContentsMargins(0, 0, 0, 0)
        cell.setSpacing(4)
        cell.addLayout(buttons)
        cell.addWidget(self.folder)

    def keep_left(self, left: bool) -> None:
        side = Qt.AlignmentFlag.AlignLeft if left else Qt.AlignmentFlag.AlignRight
        self.folder.setAlignment(side | Qt.AlignmentFlag.AlignVCenter)
        self._buttons.setStretch(0, 0 if left else 1)
        self._buttons.setStretch(self._buttons.count() - 1, 1 if left else 0)

    def show_values(self, values: Settings) -> None:
        self.folder.setText(values.models_folder or tr("Default folder"))
        self.default.setVisible(values.models_folder is not None)

    @Slot()
    def _choose(self) -> None:
        start = self._settings.values.models_folder or str(Path.home())
        dialog = FileDialog(self, tr("Choose the models folder"), start)
        dialog.setFileMode(FileDialog.FileMode.Directory)
        dialog.fileSelected.connect(self.take)
        dialog.open()

    def take(self, path: str) -> None:
        """A new folder; asks first when there are models in the old one."""
        from engine.hub.library import models_folder

        values = self._settings.values
        old = Path(values.models_folder) if values.models_folder else models_folder()
        if Path(path) == old or not _holds_something(old):
            self._settings.change(models_folder=path)
            return
        box = QMessageBox(self)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.setWindowTitle(tr("Models folder"))
        box.setTextFormat(Qt.TextFormat.PlainText)
        box.setText(tr("Move the models in {folder} to the new folder?", folder=home_path(old)))
        box.setInformativeText(tr("On the same disk this takes a moment. Models are not moved to another disk."))
        move = box.addButton(tr("Move them"), QMessageBox.ButtonRole.AcceptRole)
        box.addButton(tr("Leave them there"), QMessageBox.ButtonRole.DestructiveRole)
        cancel = box.addButton(QMessageBox.StandardButton.Cancel)

        def answer(chosen: QAbstractButton) -> None:
            if chosen is move:
                tasks.run(move_models, old, Path(path), done=lambda _: self._moved(path), failed=self._not_moved)
            elif chosen is not cancel:
                self._settings.change(models_folder=path)

        box.buttonClicked.connect(answer)
        box.open()

    def _moved(self, path: str) -> None:
        self._settings.change(models_folder=path)

    def _not_moved(self, error: GreenroomError) -> None:
        why = f"{sentence(told(error.why))}."
        box = QMessageBox(QMessageBox.Icon.Warning, told(error.what), why, parent=self)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.setTextFormat(Qt.TextFormat.PlainText)
        box.setInformativeText(told(error.remedy))
        box.open()


def _holds_something(folder: Path) -> bool:
    """A folder that is closed to us holds nothing that could be moved."""
    try:
        return any(folder.iterdir())
    except OSError:
        return False
