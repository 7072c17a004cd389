"""What becomes of chats that are in memory only, because their file cannot be written: a copy in another folder while
that lasts, a question before the program ends, and an offer when it starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from PySide6.QtCore import QObject, QTimer, Signal, Slot
from PySide6.QtWidgets import QWidget

from app import tasks
from app.chat.storage import rescue
from app.chat.storage.rescue import Copy, Rescued
from app.chat.storage.store import ChatStore
from app.chat.unsaved_question import UnsavedQuestion
from app.language import tr
from app.notices import Notices
from app.words import home_path
from engine.errors import GreenroomError

#: Between two copies. A program that is killed meanwhile loses as much.
COPY_MS = 2000
#: Of unsaved messages: more is copied at the end only, for it takes the window longer than a frame.
MOST_CHARACTERS = 2_000_000
NOTICE = "rescued"


class SessionManager(Protocol):
    """Qt's, at the end of a session."""

    def allowsInteraction(self) -> bool: ...
    def release(self) -> None: ...
    def cancel(self) -> None: ...


class Keeping(QObject):
    #: The user has answered: the window may close now.
    quitWanted = Signal()
    #: int: a chat that came back
    chatWanted = Signal(int)

    def __init__(self, store: ChatStore, flush: Callable[[], None], notices: Notices, window: QWidget) -> None:
        """flush: brings what is being written, in the composer and by the model, into the store."""
        super().__init__(window)
        self._store, self._flush, self._notices, self._window = store, flush, notices, window
        self._question: UnsavedQuestion | None = None
        self._offered: list[Rescued] = []
        #: Copies of earlier runs that are here, but not yet in the file.
        self._brought: list[Path] = []
        self._copy = Copy(store.path)
        #: Copies so far, and the state of the store that the last one shows.
        self._number = self._copied = 0
        self._writing: tasks.Task | None = None
        self._copy_timer = QTimer(self, interval=COPY_MS)
        self._copy_timer.timeout.connect(self._copy_if_changed)
        store.subscribe(self._store_changed)
        self._store_changed(0)

    # While it lasts

    def _store_changed(self, chat_id: int) -> None:
        if self._store.problem is not None:
            if not self._copy_timer.isActive():
                self._copied = self._store.changes
                self._copy_timer.start()
        else:
            self._copy_timer.stop()
            self._drop_copies()

    def _drop_copies(self) -> None:
        """All is in the file."""
        if self._number:
            self._number += 1
            self._copy.drop(self._number)
        while self._brought:
            rescue.remove(self._brought.pop())

    @Slot()
    def _copy_if_changed(self) -> None:
        store = self._store
        if store.closed or store.problem is None or store.changes == self._copied:
            return
        if self._writing is not None and self._writing.running:
            return
        self._copied = store.changes
        lost = store.unsaved
        if lost and lost.characters <= MOST_CHARACTERS:
            self._number += 1
            self._writing = tasks.run(self._copy.write, self._number, *store.give_unsaved())

    # The end

    def may_close(self) -> bool:
        """Whether nothing is lost when the window closes now. Otherwise the user is asked; `quitWanted` may follow."""
        if self._question is not None:
            self._question.raise_()
            self._question.activateWindow()
            return False
        if self._saved():
            return True
        self._question = question = UnsavedQuestion(self._store, self._window)
        question.quitWanted.connect(self.quitWanted)
        question.finished.connect(self._answered)
        question.open()
        return False

    @Slot()
    def _answered(self) -> None:
        self._question = None

    def _saved(self) -> bool:
        if self._store.closed:
            return True
        self._flush()
        return self._store.save_now()

    def end(self) -> None:
        """The program ends, whatever was answered: what cannot be saved is copied."""
        self._copy_timer.stop()
        if self._question is not None:
            self._question.close()
        if self._saved():
            self._drop_copies()
        else:
            self.copy_now()

    def copy_now(self) -> None:
        """Before anything else happens."""
        self._number += 1
        self._copied = self._store.changes
        self._copy.write(self._number, *self._store.give_unsaved())

    def end_session(self, manager: SessionManager) -> None:
        """The desktop is about to end, and waits for this: save, or copy and ask where it lets programs ask."""
        if self._saved():
            return
        self.copy_now()
        if not manager.allowsInteraction():
            return
        question = UnsavedQuestion(self._store, self._window)
        if not question.exec():
            manager.cancel()
        manager.release()

    # The next start

    def offer(self) -> None:
        """Ask about copies of an earlier run, one after the other."""
        self._offered = [copy for copy in rescue.found(self._store.path) if copy.path != self._copy.path]
        self._offer_next()

    def _offer_next(self) -> None:
        self._notices.dismiss(NOTICE)
        if not self._offered:
            return
        copy = self._offered[0]
        what = tr("Some of your chats were not saved when Greenroom ended")
        why = tr("a copy was kept in {path}", path=home_path(copy.path))
        note = GreenroomError(what, why, tr("Bring it in: what you have already stays as it is."))
        actions = [
            (tr("Bring it in"), partial(self._bring_in, copy)),
            (tr("Leave it there"), partial(self._leave, copy)),
        ]
        self._notices.show(note, "info", NOTICE, actions)

    def _bring_in(self, copy: Rescued) -> None:
        self._offered.remove(copy)
        self._flush()
        try:
            chats = self._store.take_unsaved(copy.chats, copy.drafts)
        except GreenroomError as error:
            self._notices.show(error, "bad", NOTICE)
            return
        self._brought.append(copy.path)
        self._store_changed(0)
        self.chatWanted.emit(chats[0] if chats else 0)
        self._offer_next()

    def _leave(self, copy: Rescued) -> None:
        self._offered.remove(copy)
        rescue.leave(copy.path)
        self._offer_next()
