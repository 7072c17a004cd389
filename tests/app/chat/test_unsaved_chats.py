"""What the window does while chats cannot be saved: a banner, an export, and a question before it closes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chat_fakes import FakeHost, ask
from full_disk import LONG, FullDisk
from PySide6.QtWidgets import QApplication, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app import chat_part, language, tasks
from app.chat.message_view import QuestionView
from app.chat.page import ChatPage
from app.chat.storage.importing import read
from app.chat.storage.store import ChatStore
from app.chat.unsaved_question import UnsavedQuestion
from app.chat_part import ChatPart
from app.notices import Notices
from app.settings.store import SettingsStore
from app.widgets.banner import Banner
from app.widgets.file_dialog import FileDialog


class Window(QWidget):
    def __init__(self, host: FakeHost) -> None:
        super().__init__()
        self.resize(900, 600)
        settings = SettingsStore()
        self.notices = Notices(host, settings, self)
        self.notices.banners.setParent(self)
        self.part = ChatPart(host, settings, self.notices, self)
        self.page, self.chats = self.part.make(host, self)
        for widget in (self.page, self.chats):
            widget.setParent(self)
        self.quits = 0
        self.part.quitWanted.connect(self._quit)

    def _quit(self) -> None:
        self.quits += 1

    @property
    def store(self) -> ChatStore:
        assert self.part.store is not None
        return self.part.store

    @property
    def banner(self) -> Banner | None:
        return next((banner for banner in self.notices.banners.banners if banner.key == "chats-saving"), None)

    @property
    def question(self) -> UnsavedQuestion | None:
        return next((question for question in self.findChildren(UnsavedQuestion) if question.isVisible()), None)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


@pytest.fixture
def window(host: FakeHost, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot) -> Iterator[Window]:
    monkeypatch.setattr(chat_part, "FOLLOW_MS", 20)
    made = Window(host)
    qtbot.addWidget(made)
    made.show()
    yield made
    made.page.shutdown()


@pytest.fixture
def full(window: Window, disk: FullDisk) -> Window:
    """A window with an answer that is in memory only."""
    ask(window.store, "Which sea is deep?", "old")
    disk.fill(window.store)
    ask(window.store, "A long one", LONG)
    return window


def shown(page: ChatPage) -> list[str]:
    return [v.message.text if isinstance(v, QuestionView) else v.body.text for v in page.transcript.views]


def take_export(qtbot: QtBot, path: Path) -> None:
    """Choose a file in the dialog that is open."""
    qtbot.waitUntil(lambda: isinstance(QApplication.activeModalWidget(), FileDialog))
    dialog = QApplication.activeModalWidget()
    dialog.fileSelected.emit(str(path))
    dialog.close()


def test_a_banner_says_why_and_stays_until_all_is_saved(full: Window, disk: FullDisk, qtbot: QtBot) -> None:
    banner = full.banner
    assert banner is not None
    folder = full.store.path.parent
    assert str(banner.error) == (
        f"Chats are not being saved: the disk with {folder} is full. "
        "Free some disk space. Greenroom then saves everything."
    )
    assert [b.text() for b in banner.findChildren(QPushButton)] == ["Export now"]
    full.store.rename(full.store.chats()[0].id, "Another name")
    assert full.banner is banner, "it is said once"
    disk.free(full.store)
    qtbot.waitUntil(lambda: full.banner is None)
    assert not full.store.unsaved


def test_the_chat_goes_on_meanwhile(full: Window, host: FakeHost, disk: FullDisk, qtbot: QtBot) -> None:
    page = full.page
    page.new_chat()
    page.send("And now?")
    host.say("It goes ")
    page._controller._flush_timer.timeout.emit()
    assert shown(page) == ["And now?", "It goes "]
    host.answer("on.")
    page.send("Really?")
    disk.free(full.store)
    qtbot.waitUntil(lambda: full.store.problem is None)
    host.say("It ")
    host.answer("does.")
    assert shown(page) == ["And now?", "It goes on.", "Really?", "It does."]
    with_file = ChatStore(full.store.path)
    assert [m.text for m in with_file.messages(page.chat)] == shown(page)
    with_file.close()


def test_an_answer_that_is_written_is_not_kept_again_with_every_word(full: Window, host: FakeHost) -> None:
    full.page.send("Count")
    kept = len(full.store._db.pending)
    for number in range(9):
        host.say(f"{number} ")
        full.page._controller._flush_timer.timeout.emit()
    assert len(full.store._db.pending) == kept
    full.part.flush()
    assert full.store.messages(full.page.chat)[-1].text == "0 1 2 3 4 5 6 7 8 "


def test_the_banner_exports_every_chat_and_stays(full: Window, tmp_path: Path, qtbot: QtBot) -> None:
    full.banner.findChild(QPushButton).click()
    path = tmp_path / "All chats.json"
    take_export(qtbot, path)
    qtbot.waitUntil(path.exists)
    tasks.finish()
    assert {chat.title: chat.path[-1].text for chat in read(path)} == {"A long one": LONG, "Which sea is deep?": "old"}
    assert full.banner is not None


def test_a_window_whose_chats_are_saved_just_closes(window: Window) -> None:
    ask(window.store, "q", "a")
    assert window.part.may_close()
    assert window.question is None


def test_closing_saves_where_there_is_room_again(full: Window, disk: FullDisk) -> None:
    disk.free(full.store)
    assert full.part.may_close()
    assert not full.store.unsaved


def test_what_closing_saves_may_be_what_finds_the_disk_full(window: Window, disk: FullDisk) -> None:
    ask(window.store, "q", "a")
    disk.fill(window.store)
    window.page.composer.set_text(LONG)
    assert not window.part.may_close()
    assert window.question is not None


def test_the_question_says_what_why_and_what_to_do(full: Window) -> None:
    assert not full.part.may_close()
    question = full.question
    assert question.text() == "If you quit now, the latest changes to your chats are lost"
    assert question.informativeText() == (
        f"The disk with {full.store.path.parent} is full. Free some disk space. Greenroom then saves everything."
    )
    assert [b.text().replace("&", "") for b in (question.export, question.quit, question.stay)] == [
        "Export now",
        "Quit anyway",
        "Cancel",
    ]
    assert question.defaultButton() is question.stay
    assert not full.part.may_close()
    assert full.question is question, "it asks once"


def test_quitting_anyway_quits(full: Window, qtbot: QtBot) -> None:
    full.part.may_close()
    full.question.quit.click()
    qtbot.waitUntil(lambda: full.quits == 1)
    assert full.question is None


@pytest.mark.parametrize("answer", [lambda question: question.stay.click(), lambda question: question.reject()])
def test_cancel_leaves_everything_as_it_is(full: Window, answer: Callable[[UnsavedQuestion], object]) -> None:
    full.part.may_close()
    answer(full.question)
    QApplication.processEvents()
    assert (full.question, full.quits) == (None, 0)
    assert full.store.unsaved
    assert not full.part.may_close(), "the next time it asks again"
    assert full.question is not None


def test_an_export_before_quitting_leaves_the_window_open(full: Window, tmp_path: Path, qtbot: QtBot) -> None:
    full.part.may_close()
    full.question.export.click()
    path = tmp_path / "All chats.json"
    take_export(qtbot, path)
    qtbot.waitUntil(path.exists)
    tasks.finish()
    assert len(read(path)) == 2
    assert (full.question, full.quits) == (None, 0)


def test_nobody_is_asked_while_the_session_ends(full: Window) -> None:
    full.part.end_session()
    assert full.part.may_close()
    assert full.question is None
    full.part._session_ends.timeout.emit()
    full.part._session_ends.stop()
    assert not full.part.may_close(), "another program has kept the session open"


def test_in_korean(full: Window) -> None:
    language.set_language("ko")
    full.part.may_close()
    assert full.question.text() == "지금 끝내면 채팅의 최근 변경 내용이 사라집니다"
