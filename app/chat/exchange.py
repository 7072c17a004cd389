"""Chats going out to files and coming in from them, a few at a time so that the window stays awake."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal, Slot
from PySide6.QtWidgets import QWidget

from app import tasks
from app.chat.export_dialog import export_dialog
from app.chat.storage.exporting import write
from app.chat.storage.importing import read
from app.chat.storage.portable import PortableChat
from app.chat.storage.preset_store import PresetStore
from app.chat.storage.store import ChatStore
from app.language import told, tr
from app.widgets.file_dialog import FileDialog
from engine.errors import GreenroomError
from engine.progress import Progress

#: Chats moved between two turns of the event loop; fewer where they have more characters than this.
SLICE, CHARACTERS = 8, 500_000
#: Files that are named when several were refused; more are counted.
MOST_NAMED = 3


def _together(refused: Sequence[GreenroomError]) -> GreenroomError:
    """What was wrong with several files."""
    named = [f"{told(error.what)}: {told(error.why)}" for error in refused[:MOST_NAMED]]
    if len(refused) > MOST_NAMED:
        rest = refused[MOST_NAMED:]
        named.append(tr("and %n more", n=len(rest)))
    return GreenroomError(tr("%n files were not imported", n=len(refused)), "; ".join(named), tr("Choose other files."))


def _first(chats: Sequence[PortableChat]) -> Sequence[PortableChat]:
    """Those that are taken in next: one at least."""
    size = 0
    for count, chat in enumerate(chats[:SLICE]):
        size += sum(len(message.text) for message in chat.messages)
        if size > CHARACTERS:
            return chats[: count + 1]
    return chats[:SLICE]


class Exchange(QObject):
    """One import or export at a time; others wait for its end."""

    #: The user has chosen files.
    begun = Signal()
    #: str: how far it is, or how it ended
    said = Signal(str)
    #: GreenroomError
    failed = Signal(object)
    #: list[int]: the chats that came in
    imported = Signal(list)
    #: All that was begun has come to its end.
    rested = Signal()

    def __init__(self, store: ChatStore, parent: QWidget) -> None:
        super().__init__(parent)
        self._store, self._window = store, parent
        #: Chats still to be collected, and the file they go to; the first one is being worked on.
        self._going: list[tuple[list[int], Path]] = []
        self._collected: list[PortableChat] = []
        self._coming: list[PortableChat] = []
        self._added: list[int] = []
        #: Files that are being read or written.
        self._files = 0
        #: Those that are being read, and what was wrong with others meanwhile.
        self._reading = 0
        self._refused: list[GreenroomError] = []
        self._turn = QTimer(self, singleShot=True, interval=0)
        self._turn.timeout.connect(self._work)

    @property
    def busy(self) -> bool:
        return bool(self._going or self._coming or self._files)

    # Asking for files

    def choose_target(self, chats: Sequence[int], ending: str, title: str) -> None:
        """Have the user choose where these chats go. ending: ".md", ".html" or ".json", which is offered first."""
        dialog = export_dialog(self._window, tr("Export"), title, ending)
        dialog.fileSelected.connect(self.begun)
        dialog.fileSelected.connect(lambda path: self.export(chats, Path(path)))
        dialog.open()

    def choose_source(self) -> None:
        dialog = FileDialog(self._window, tr("Import chats"))
        dialog.setFileMode(FileDialog.FileMode.ExistingFiles)
        names = tr("Greenroom, ChatGPT and LM Studio chats")
        dialog.setNameFilters([f"{names} (*.json *.zip)", tr("All files") + " (*)"])
        dialog.filesSelected.connect(self.begun)
        dialog.filesSelected.connect(lambda paths: [self.take(Path(path)) for path in paths])
        dialog.open()

    # Doing it

    def export(self, chats: Sequence[int], path: Path) -> None:
        self._going.append((list(chats), path))
        self._turn.start()

    def take(self, path: Path) -> None:
        """Import a file."""
        self.said.emit(tr("Reading {name}…", name=path.name))
        self._files += 1
        self._reading += 1
        tell = partial(self._tell_read, path.name)
        tasks.run(read, path, PresetStore().own, done=self._take_read, failed=self._refuse, progress=tell)

    def _tell_read(self, name: str, progress: Progress) -> None:
        if progress.total:
            self.said.emit(tr("Reading {name}: {share}", name=name, share=f"{progress.fraction:.0%}"))

    @Slot(object)
    def _take_read(self, chats: list[PortableChat]) -> None:
        self._files -= 1
        self._coming += chats
        self._end_reading()
        self._turn.start()

    @Slot(object)
    def _refuse(self, error: GreenroomError) -> None:
        self._files -= 1
        self._refused.append(error)
        self._end_reading()
        self._rest()

    def _end_reading(self) -> None:
        """When all files are read, say at once what was wrong with some."""
        self._reading -= 1
        if not self._reading and self._refused:
            refused, self._refused = self._refused, []
            self._fail(refused[0] if len(refused) == 1 else _together(refused))

    def _fail(self, error: GreenroomError) -> None:
        """What else is on its way goes on."""
        self.said.emit("")
        self.failed.emit(error)

    @Slot(object)
    def _fail_file(self, error: GreenroomError) -> None:
        self._files -= 1
        self._fail(error)
        self._rest()

    def _rest(self) -> None:
        if not self.busy:
            self.rested.emit()

    @Slot()
    def _work(self) -> None:
        if self._store.closed:
            return
        if self._coming:
            self._bring_in()
        elif self._going:
            self._take_out()
        if self._going or self._coming:
            self._turn.start()
        self._rest()

    def _bring_in(self) -> None:
        slice_ = _first(self._coming)
        del self._coming[: len(slice_)]
        try:
            self._added += self._store.add_portable(slice_)
        except GreenroomError as error:
            self._coming = []  # nor could the others be saved
            self._fail(error)
            if not self._added:
                return
        if self._coming:
            self.said.emit(tr("Importing: %n chats left", n=len(self._coming)))
        else:
            added, self._added = self._added, []
            self.said.emit(tr("%n chats were imported", n=len(added)))
            self.imported.emit(added)

    def _take_out(self) -> None:
        left, target = self._going[0]
        # One that was deleted meanwhile is none.
        self._collected += [chat for chat in map(self._store.portable, left[:SLICE]) if chat is not None]
        del left[:SLICE]
        if left:
            self.said.emit(tr("Exporting: %n chats left", n=len(left)))
            return
        chats, self._collected = self._collected, []
        self._going.pop(0)
        self._files += 1
        tasks.run(
            write,
            chats,
            target,
            PresetStore().own,
            done=partial(self._say_written, target.name),
            failed=self._fail_file,
        )

    def _say_written(self, name: str, nothing: object) -> None:
        self._files -= 1
        self.said.emit(tr("Saved as {name}", name=name))
        self._rest()
