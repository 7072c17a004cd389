"""Opens the popover of a chat's settings, and carries presets to files and back after it has closed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

from app.chat.controller import ChatController
from app.chat.options import ChatOptions
from app.chat.storage.preset_store import write
from app.chat.storage.presets import Preset, Sampling
from app.host import EngineHost
from app.language import tr
from app.settings.store import Settings
from app.widgets.file_dialog import FileDialog
from engine.errors import GreenroomError


class OptionsOpener(QObject):
    #: GreenroomError
    failed = Signal(object)
    #: str: what has come in or gone out
    said = Signal(str)
    #: GreenroomError, [(text, action)]: something that can be taken back
    noteWanted = Signal(object, object)
    #: Presets came in, or went.
    presetsChanged = Signal()

    def __init__(
        self, host: EngineHost, controller: ChatController, settings: Callable[[], Settings], parent: QWidget
    ) -> None:
        super().__init__(parent)
        self._host, self._controller, self._settings = host, controller, settings
        self._window = parent
        self._options: ChatOptions | None = None
        #: The chat whose popover was opened last.
        self._chat: int | None = None

    def open(self, chat_id: int | None, anchor: QWidget) -> None:
        """Over the anchor; what is chosen there holds at once."""
        self._chat = chat_id
        chat = self._controller.settings_of(chat_id)
        options = ChatOptions(chat, self._controller.presets, self._host.state, self._settings(), self._window)
        options.changed.connect(lambda chosen: self._controller.set_settings(chat_id, chosen))
        options.failed.connect(self.failed)
        options.deleted.connect(self._offer_undo)
        options.filesWanted.connect(self._choose_file)
        self._options = options
        options.open_above(anchor)

    @Slot(object, int)
    def _offer_undo(self, preset: Preset, place: int) -> None:
        note = GreenroomError(
            tr("The preset “{name}” was deleted", name=preset.name),
            tr("chats that used it now use “Recommended”"),
            tr("You can still undo this."),
        )
        self.noteWanted.emit(note, [(tr("Undo"), lambda: self._restore(preset, place))])

    def _restore(self, preset: Preset, place: int) -> None:
        try:
            self._controller.presets.restore(preset, place)
        except GreenroomError as error:
            self.failed.emit(error)
        self.presetsChanged.emit()

    def _use(self, presets: Sequence[Preset]) -> None:
        """The first of those that came in is the chat's."""
        self.said.emit(tr("%n presets were imported", n=len(presets)))
        if presets:
            chat = self._controller.settings_of(self._chat)
            chosen = replace(chat, preset=presets[0].name, own=Sampling(), system=None, thinking=None)
            self._controller.set_settings(self._chat, chosen)

    @property
    def current(self) -> ChatOptions | None:
        """The popover while it is open."""
        return self._options if self._options is not None and isValid(self._options) else None

    @Slot(str)
    def _choose_file(self, kind: str) -> None:
        dialog = FileDialog(self._window, tr("Import presets") if kind == "import" else tr("Export presets"))
        dialog.setNameFilter(tr("Presets") + " (*.json)")
        if kind == "export":
            dialog.setAcceptMode(FileDialog.AcceptMode.AcceptSave)
            dialog.selectFile("greenroom-presets.json")
        dialog.fileSelected.connect(lambda path: self.exchange(kind, Path(path)))
        dialog.open()

    def exchange(self, kind: str, path: Path) -> None:
        """kind: "import" or "export"."""
        presets = self._controller.presets
        try:
            if kind == "export":
                write(presets.own, path if path.suffix else path.with_suffix(".json"))
                self.said.emit(tr("Saved as {name}", name=path.name))
            else:
                self._use(presets.take(path))
        except GreenroomError as error:
            self.failed.emit(error)
        self.presetsChanged.emit()
