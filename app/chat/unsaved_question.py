"""The question before the program ends while chats are in memory only: what would be lost, why, and what to do."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QDialog, QSizePolicy, QVBoxLayout, QWidget

from app import tasks
from app.chat.export_dialog import export_dialog
from app.chat.storage import columns
from app.chat.storage.database import SPARE
from app.chat.storage.exporting import write
from app.chat.storage.portable import PortableChat
from app.chat.storage.preset_store import PresetStore
from app.chat.storage.store import ChatStore
from app.chat.storage.unsaved import Unsaved
from app.language import told, tr
from app.theme import theme
from app.widgets.buttons import button
from app.widgets.labels import label
from app.widgets.wrap_row import WrapRow
from app.words import home_path, in_words, sentence
from engine.errors import GreenroomError
from engine.units import size_text, size_up

WIDTH = 520
#: Left of a small screen beside the window.
MARGIN = 24
#: Chats that are named; more are counted.
MOST_CHATS = 5
#: A message's text, the index over it, and the same again in the write-ahead log.
BYTES_PER_CHARACTER = 12


class UnsavedQuestion(QDialog):
    """Stays until the user has chosen, or there is room again. Deleted when it is closed."""

    #: All is saved, or the user quits without.
    quitWanted = Signal()

    def __init__(self, store: ChatStore, parent: QWidget) -> None:
        super().__init__(parent)
        self._store = store
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Not everything is saved"))
        self.setFixedWidth(min(theme().px(WIDTH), self.screen().availableGeometry().width() - MARGIN))
        self._head = label("", "heading", wrap=True)
        self._chats = label("", wrap=True)
        self._why = label("", wrap=True)
        self._said = label("", "strong", wrap=True)
        self._said.hide()
        hint = label(
            tr(
                "If you quit anyway, Greenroom keeps a copy in another folder where there is room for one, and offers "
                "it at the next start."
            ),
            "small",
            wrap=True,
        )
        self.export = button(tr("Export elsewhere…"))
        self.stay = button(tr("Cancel"))
        self.quit = button(tr("Quit anyway"))
        self.again = button(tr("Try again"), kind="primary")
        self.again.setDefault(True)
        self.export.clicked.connect(self._choose_target)
        self.stay.clicked.connect(self.reject)
        self.quit.clicked.connect(self._leave)
        self.again.clicked.connect(self._try_again)
        between = QWidget()
        between.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        column = QVBoxLayout(self)
        column.setContentsMargins(20, 18, 20, 16)
        column.setSpacing(12)
        for text in (self._head, self._chats, self._why, self._said, hint):
            column.addWidget(text)
        column.addSpacing(4)
        column.addLayout(WrapRow(self.export, between, self.stay, self.quit, self.again))
        self._look_soon = QTimer(self, singleShot=True, interval=0)
        self._look_soon.timeout.connect(self._look)
        store.subscribe(self._store_changed)
        self._show()
        self.again.setFocus()

    @property
    def text(self) -> str:
        """All that it says but for the hint."""
        said = (self._head, self._chats, self._why, self._said)
        return "\n".join(part.text() for part in said if not part.isHidden())

    def _store_changed(self, chat_id: int) -> None:
        self._look_soon.start()

    @Slot()
    def _look(self) -> None:
        """There may be room again, or more to lose."""
        if not self.isVisible():
            return  # it is answered
        if self._store.closed:
            self.reject()
        elif self._store.problem is None:
            self._leave()
        else:
            self._show()

    def _show(self) -> None:
        lost, problem = self._store.unsaved, self._store.problem
        self._head.setText(
            tr("%n messages are in memory only", n=lost.messages)
            if lost.messages
            else tr("What you changed is in memory only")
        )
        self._chats.setText("\n".join(lines(lost)))
        why = f"{sentence(told(problem.why))}."
        room = self._room(SPARE + BYTES_PER_CHARACTER * lost.characters)
        self._why.setText(f"{why} {room}" if room else f"{why} {told(problem.remedy)}")
        self._fit()

    def _room(self, size: int) -> str:
        """How much there is and how much it takes, where that is what is in the way. size: bytes that are needed."""
        try:
            free = shutil.disk_usage(self._store.path.parent).free
        except OSError:
            return ""
        if free >= size:
            return ""
        return tr(
            "{free} is free there, and about {needed} is needed. Free some space, then try again.",
            free=size_text(free),
            needed=size_up(size),
        )

    def _fit(self) -> None:
        self.layout().activate()
        self.setFixedHeight(self.layout().totalHeightForWidth(self.width()))

    @Slot()
    def _leave(self) -> None:
        self.done(QDialog.DialogCode.Accepted)
        self.quitWanted.emit()

    @Slot()
    def _try_again(self) -> None:
        if self._store.save_now():
            self._leave()
        else:
            self._show()
            self._say(tr("There is still no way to save it."))

    def _say(self, text: str) -> None:
        self._said.setText(text)
        self._said.setAccessibleName(text)
        self._said.show()
        self._fit()

    @Slot()
    def _choose_target(self) -> None:
        dialog = export_dialog(self, tr("Export elsewhere"), tr("Unsaved chats"), ".json")
        dialog.fileSelected.connect(lambda path: self.export_to(Path(path)))
        dialog.open()

    def export_to(self, path: Path) -> None:
        """The chats that have something unsaved, whole and with what is written but not sent, in the form that the
        file's ending names.
        """
        chats = with_drafts(*self._store.give_unsaved())
        tasks.run(write, chats, path, PresetStore().own, done=partial(self._exported, path), failed=self._not_exported)

    def _exported(self, path: Path, nothing: object) -> None:
        self._say(tr("A copy is in {path}.", path=home_path(path)))
        self.quit.setText(tr("Quit"))
        self.quit.setAccessibleName(tr("Quit"))

    @Slot(object)
    def _not_exported(self, error: GreenroomError) -> None:
        self._say(in_words(error))


def with_drafts(chats: Sequence[PortableChat], drafts: Sequence[tuple[int | None, str]]) -> list[PortableChat]:
    """Chats for people and other programs: what is not sent stands at their ends. Arguments as of `give_unsaved`."""
    found, now = list(chats), time.time()
    for place, packed in drafts:
        draft = columns.draft(packed).without_edit
        if draft.empty:
            continue
        chat = PortableChat(tr("New chat"), now, now, ()) if place is None else found[place]
        whole = chat.and_then(draft.text, draft.attachments, now)
        if place is None:
            found.append(whole)
        else:
            found[place] = whole
    return found


def lines(lost: Unsaved) -> list[str]:
    """What would be lost, a line each."""
    named = [chat for chat in lost.chats if chat.messages]
    found = [tr("“{title}”: %n messages", n=chat.messages, title=chat.title) for chat in named[:MOST_CHATS]]
    if len(named) > MOST_CHATS:
        rest = named[MOST_CHATS:]
        found.append(tr("in %n more chats", n=len(rest)))
    if lost.changed:
        found.append(tr("the name, folder, options or draft of %n chats", n=lost.changed))
    if lost.draft:
        found.append(tr("what is written for a new chat"))
    return [f"·  {line}" for line in found]
