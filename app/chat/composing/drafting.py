"""What is being written in the open chat: kept when another chat is opened, and its files read and counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QWidget

from app import tasks
from app.chat.composing.attaching import MOST_INSERT, no_picture, pasted, read_text_file, too_long
from app.chat.composing.composer import Composer
from app.chat.composing.context import ContextMeter
from app.chat.storage.records import MOST_FILES, Attachment, Draft, Edit
from app.chat.storage.store import ChatStore
from app.host import EngineHost, TokenCount
from app.language import tr
from app.widgets.file_dialog import FileDialog
from engine.errors import GreenroomError

#: What is written is saved this long after the last key.
SAVE_MS = 700
_FILE = "file "


class Drafting(QObject):
    """Between the composer and the store."""

    #: GreenroomError
    failed = Signal(object)
    #: Files are on their way: what was wrong with others is of no interest any more.
    attaching = Signal()
    #: The tokens of a file are known.
    counted = Signal()

    def __init__(
        self, composer: Composer, host: EngineHost, store: ChatStore, meter: ContextMeter, parent: QWidget
    ) -> None:
        super().__init__(parent)
        self._composer, self._host, self._store, self._meter = composer, host, store, meter
        self._chat: int | None = None
        #: Off until a chat is open.
        self.keeping = False
        #: The id of the message in whose place the composer's text is written; None where it is a new message.
        self.edited: int | None = None
        #: By the file's text; None while they are being counted.
        self._tokens: dict[str, int | None] = {}
        self._save_soon = QTimer(self, singleShot=True, interval=SAVE_MS)
        self._save_soon.timeout.connect(self.save)
        composer.draftChanged.connect(self._changed)
        composer.attachWanted.connect(self.attach)
        composer.pasteWanted.connect(self._paste)
        composer.pictureGiven.connect(lambda: self.failed.emit(no_picture()))
        host.tokensCounted.connect(self._take_count)

    @property
    def file_tokens(self) -> list[int | None]:
        """Of each attached file; None where they are not known."""
        return [self._tokens.get(a.text) for a in self._composer.attachments]

    def open(self, chat_id: int | None) -> None:
        """Show what was being written in that chat."""
        self._chat, self.keeping, self.edited = chat_id, True, None
        self._composer.set_draft(self._store.draft(chat_id))
        self._save_soon.stop()

    def resume(self) -> None:
        """Show again what is kept for the open chat."""
        self.open(self._chat)

    @property
    def edit(self) -> Edit | None:
        """What is kept of a change of an earlier message of the open chat."""
        return self._store.draft(self._chat).edit

    def end_edit(self) -> None:
        """Go on with the draft that waited. What was written in place of a message is kept no more."""
        self.resume()
        self.save()

    def take_in(self, edit: Edit) -> None:
        """The message it was to replace cannot be seen any more: it goes on as a draft."""
        self._composer.set_draft(self._composer.draft.and_also(edit.text, edit.attachments))
        self.save()

    @Slot()
    def save(self) -> None:
        self._save_soon.stop()
        if self.keeping and not self._store.closed:
            written = self._composer.draft
            if self.edited is not None:
                edit = Edit(self.edited, written.text, written.attachments)
                written = replace(self._store.draft(self._chat), edit=edit)
            self._put(self._chat, written)

    def sent(self, chat_id: int) -> None:
        """What was written is a message of that chat now."""
        before, self._chat, self.keeping = self._chat, chat_id, True
        self._composer.clear()
        self._put(before, Draft())
        self._save_soon.stop()

    def _put(self, chat_id: int | None, draft: Draft) -> None:
        try:
            if self._store.draft(chat_id) != draft:
                self._store.set_draft(chat_id, draft)
        except GreenroomError as error:
            self.failed.emit(error)

    @Slot()
    def _changed(self) -> None:
        self._meter.show_draft(self._composer.draft)
        self.count_files()
        self._save_soon.start()

    # Files

    @Slot(list)
    def attach(self, paths: Sequence[str]) -> None:
        """Attach text files; without any, have the user choose some."""
        if not paths:
            dialog = FileDialog(self._composer, tr("Attach text files"))
            dialog.setFileMode(FileDialog.FileMode.ExistingFiles)
            dialog.filesSelected.connect(self.attach)
            dialog.open()
            return
        self.attaching.emit()
        for path in paths[: MOST_FILES + 1]:  # one too many is told when it comes
            tasks.run(read_text_file, Path(path), done=self._add_one, failed=self.failed.emit)

    @Slot(str)
    def _paste(self, text: str) -> None:
        self.attaching.emit()
        try:
            if not self._composer.takes_files:
                raise too_long(MOST_INSERT)
            self.add([pasted(text)])
        except GreenroomError as error:
            self.failed.emit(error)

    def _add_one(self, attachment: Attachment) -> None:
        self.add([attachment])

    def add(self, new: Sequence[Attachment]) -> None:
        if not self._composer.takes_files:
            # They were on their way when an answer was taken up, which has none: they wait with the draft.
            waiting = self._store.draft(self._chat)
            self._put(self._chat, waiting.and_also("", new))
            return
        files = list(self._composer.attachments)
        files += [a for a in new if a not in files]
        if len(files) > MOST_FILES:
            why = tr("a message can have at most {count}", count=MOST_FILES)
            remedy = tr("Attach the others to the next message.")
            self.failed.emit(GreenroomError(tr("Not all files were attached"), why, remedy))
        self._composer.set_attachments(files[:MOST_FILES])
        self._composer.setFocus(Qt.FocusReason.OtherFocusReason)

    def count_files(self) -> None:
        """Show the sizes that are known, and ask for the others."""
        files, known = self._composer.attachments, self._tokens
        self._tokens = {a.text: known.get(a.text) for a in files}
        for attachment, chip in zip(files, self._composer.chips.chips, strict=True):
            count = self._tokens[attachment.text]
            chip.set_tokens(count)
            if count is None and self._meter.hopeless(attachment.text):
                chip.set_tokens(self._meter.estimate(attachment.text), exact=False)
            elif count is None and attachment.text not in known and self._meter.size:
                self._host.count(_FILE + attachment.name, attachment.text)

    def count_anew(self) -> None:
        """Another model counts otherwise."""
        self._tokens = {}
        self.count_files()

    @Slot(object)
    def _take_count(self, count: TokenCount) -> None:
        if not count.request.key.startswith(_FILE):
            return
        for attachment, chip in zip(self._composer.attachments, self._composer.chips.chips, strict=True):
            if attachment.text == count.request.prompt:
                self._tokens[attachment.text] = count.tokens
                chip.set_tokens(count.tokens)
        self.counted.emit()
