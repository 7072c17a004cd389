"""Before the program ends while chats cannot be saved: it tries, asks, keeps a copy, and offers that when it starts."""

from __future__ import annotations

import json

import pytest
from chat_fakes import ask
from full_disk import LONG, FullDisk
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication, QPushButton, QWidget

from app import language, tasks
from app.chat import keeping
from app.chat.keeping import Keeping
from app.chat.storage import rescue
from app.chat.storage.importing import read
from app.chat.storage.records import Attachment, Draft, Edit
from app.chat.storage.store import ChatStore
from app.chat.unsaved_question import UnsavedQuestion
from app.notices import Notices
from app.settings.store import SettingsStore


@pytest.fixture
def places(tmp_path, monkeypatch):
    monkeypatch.setattr(rescue, "places", lambda chats: [tmp_path / "elsewhere"])
    return tmp_path / "elsewhere"


@pytest.fixture
def disk(monkeypatch):
    return FullDisk(monkeypatch)


class Window(QWidget):
    def __init__(self, host, store):
        super().__init__()
        self.store, self.flushed, self.quits, self.opened = store, 0, 0, []
        self.notices = Notices(host, SettingsStore(), self)
        self.notices.banners.setParent(self)
        self.keeping = Keeping(store, self.flush, self.notices, self)
        self.keeping.quitWanted.connect(self.quit)
        self.keeping.chatWanted.connect(self.opened.append)

    def flush(self):
        self.flushed += 1

    def quit(self):
        self.quits += 1

    @property
    def question(self):
        found = [w for w in self.findChildren(UnsavedQuestion) if w.isVisible()]
        return found[0] if found else None

    def banner(self):
        return next((b for b in self.notices.banners.banners if b.key == "rescued"), None)

    def press(self, text):
        next(b for b in self.banner().findChildren(QPushButton) if b.text() == text).click()


@pytest.fixture
def make(qtbot, host, places):
    def made(store):
        window = Window(host, store)
        qtbot.addWidget(window)
        window.show()
        return window

    return made


@pytest.fixture
def full(store, disk, make):
    """A window with an answer that is in memory only."""
    ask(store, "Which sea is deep?", "old")
    disk.fill(store)
    window = make(store)
    ask(store, "A long one", LONG)
    return window


def test_a_window_whose_chats_are_saved_just_closes(store, make):
    window = make(store)
    ask(store, "q", "a")
    assert window.keeping.may_close()
    window.keeping.end()
    assert (window.question, window.flushed) == (None, 2)


def test_closing_saves_where_there_is_room_again(full, store, disk):
    disk.free(store)
    assert full.keeping.may_close()
    assert store.problem is None


def test_the_question_says_what_would_be_lost_why_and_what_to_do(full, store):
    assert not full.keeping.may_close()
    question = full.question
    assert question.text == (
        "1 message is in memory only\n"
        "·  “A long one”: 1 message\n"
        f"The disk of {store.path.parent} is full. 0 MB is free there, and about 3 MB is needed. "
        "Free some space, then try again."
    )
    assert [b.text() for b in (question.export, question.stay, question.quit, question.again)] == [
        "Export elsewhere…",
        "Cancel",
        "Quit anyway",
        "Try again",
    ]
    assert not full.keeping.may_close()
    assert full.question is question, "it asks once"


def test_in_korean(full, qapp):
    language.set_language("ko")
    full.keeping.may_close()
    text = full.question.text
    assert text.startswith("메시지 1개가 메모리에만 있습니다\n·  “A long one”: 메시지 1개\n")
    assert "남은 공간은 0 MB이고 약 3 MB가 필요합니다" in text
    assert full.question.quit.text() == "그래도 끝내기"


def test_more_than_messages(store, disk, make):
    chats = [ask(store, f"Chat {number}", "a")[0] for number in range(8)]
    disk.fill(store)
    ask(store, "A long one", LONG)
    for chat in chats[:7]:
        store.add_message(chat, None, "user", "once more")
    store.rename(chats[7], "Another name")
    store.set_draft(None, Draft("half a"))
    window = make(store)
    window.keeping.may_close()
    said = window.question.text.splitlines()
    assert said[0] == "8 messages are in memory only"
    assert said[6:9] == [
        "·  in 3 more chats",
        "·  the name, folder, options or draft of 1 chat",
        "·  what is written for a new chat",
    ]


def test_cancel_leaves_everything_as_it_is(full, store):
    full.keeping.may_close()
    full.question.stay.click()
    assert (full.question, full.quits) == (None, 0)
    assert store.unsaved.messages == 1
    assert not full.keeping.may_close(), "the next time it asks again"
    assert full.question is not None


def test_trying_again_says_so_until_there_is_room(full, store, disk):
    full.keeping.may_close()
    full.question.again.click()
    assert full.question.text.endswith("There is still no way to save it.")
    assert full.quits == 0
    disk.free(store)
    full.question.again.click()
    assert (full.question, full.quits, store.problem) == (None, 1, None)


def test_room_that_comes_while_it_asks_answers_the_question(full, store, disk, qtbot):
    full.keeping.may_close()
    disk.free(store)
    store.look_for_changes()
    qtbot.waitUntil(lambda: full.quits == 1)
    assert full.question is None


def test_room_that_comes_after_a_cancel_quits_nothing(full, store, disk, qapp):
    full.keeping.may_close()
    disk.free(store)
    store.look_for_changes()  # its answer to that waits in the queue
    full.question.stay.click()
    qapp.processEvents()
    assert full.quits == 0


def test_what_comes_while_it_asks_is_counted(full, store, qtbot):
    full.keeping.may_close()
    ask(store, "Another long one", LONG)
    qtbot.waitUntil(lambda: full.question.text.startswith("3 messages"))


@pytest.mark.parametrize("ending", [".json", ".md", ".html"])
def test_an_export_elsewhere_is_a_copy_of_those_chats(full, store, tmp_path, ending):
    full.keeping.may_close()
    question, path = full.question, tmp_path / f"Unsaved{ending}"
    question.export_to(path)
    tasks.finish()
    assert question.text.endswith(f"A copy is in {path}.")
    assert question.quit.text() == "Quit"
    text = path.read_text(encoding="utf-8")
    assert "A long one" in text
    assert LONG.strip() in text
    assert "Which sea is deep?" not in text, "that one is saved"
    question.quit.click()
    assert full.quits == 1


def test_an_export_that_fails_says_why(full, tmp_path):
    full.keeping.may_close()
    question = full.question
    question.export_to(tmp_path / "nowhere" / "a.json")
    tasks.finish()
    assert "a.json was not written" in question.text
    assert question.quit.text() == "Quit anyway"


def test_the_export_dialog_gives_the_ending_of_the_form_that_is_chosen(full, qtbot):
    full.keeping.may_close()
    full.question.export.click()
    dialog = QApplication.activeModalWidget()
    assert [name.rpartition(" ")[2] for name in dialog.nameFilters()] == ["(*.json)", "(*.md)", "(*.html)"]
    assert dialog.defaultSuffix() == "json"
    dialog.filterSelected.emit(dialog.nameFilters()[1])
    assert dialog.defaultSuffix() == "md"
    dialog.close()


def test_quitting_anyway_keeps_a_copy_that_the_next_start_offers(full, store, disk, make, places):
    store.set_draft(None, Draft("half a thought"))
    full.keeping.may_close()
    full.question.quit.click()
    assert full.quits == 1
    full.keeping.end()
    store.close()
    (copy,) = places.iterdir()
    disk.free(store)

    again = ChatStore(store.path)
    window = make(again)
    window.keeping.offer()
    banner = window.banner()
    assert banner.error.what == "Some of your chats were not saved when Greenroom ended"
    assert str(copy) in banner.error.why
    window.press("Bring it in")
    assert window.banner() is None
    (chat,) = (chat for chat in again.chats() if chat.title == "A long one")
    assert window.opened == [chat.id]
    assert [m.text for m in again.messages(chat.id)] == ["A long one", LONG]
    assert again.draft(None) == Draft("half a thought")
    assert not copy.exists(), "it is in the file"
    window.keeping.offer()
    assert window.banner() is None
    again.close()


def test_a_copy_that_is_brought_in_on_a_full_disk_stays_until_there_is_room(full, store, disk, make):
    full.keeping.end()
    store.close()
    again = ChatStore(store.path)
    window = make(again)
    window.keeping.offer()
    copy = window.keeping._offered[0].path
    window.press("Bring it in")
    assert again.problem is not None
    assert copy.exists()
    disk.free(again)
    again.look_for_changes()
    assert again.problem is None
    assert not copy.exists()
    again.close()


def test_a_copy_that_is_left_stays_and_is_offered_no_more(full, store, disk, make, places):
    full.keeping.end()
    store.close()
    disk.free(store)
    again = ChatStore(store.path)
    window = make(again)
    window.keeping.offer()
    window.press("Leave it there")
    assert window.banner() is None
    window.keeping.offer()
    assert window.banner() is None
    assert len(list(places.iterdir())) == 1
    again.close()


def test_copies_of_several_runs_are_offered_one_after_the_other(store, make, places):
    for title in ("One", "Two"):
        other = ChatStore(store.path.with_name(f"{title}.sqlite"))
        chat, _, _ = ask(other, title, "a")
        rescue.Copy(store.path).write(1, [other.portable(chat)], [])
        other.close()
    window = make(store)
    window.keeping.offer()
    window.press("Bring it in")
    window.press("Bring it in")
    assert window.banner() is None
    assert sorted(chat.title for chat in store.chats()) == ["One", "Two"]
    assert not list(places.iterdir())


def test_a_copy_is_kept_up_to_date_while_it_lasts_and_goes_with_it(full, store, disk, places, monkeypatch):
    def copied():
        full.keeping._copy_if_changed()
        tasks.finish()
        return [found.chats for found in rescue.found(store.path)]

    assert full.keeping._copy_timer.isActive()
    full.keeping._copied = 0
    ((chat,),) = copied()
    assert chat.title == "A long one"
    before = [path.stat().st_mtime_ns for path in places.iterdir()]
    copied()
    assert [path.stat().st_mtime_ns for path in places.iterdir()] == before, "nothing was written meanwhile"
    ask(store, "Another", LONG)
    ((*chats,),) = copied()
    assert {chat.title for chat in chats} == {"A long one", "Another"}
    monkeypatch.setattr(keeping, "MOST_CHARACTERS", 10)
    ask(store, "A third", LONG)
    assert [len(chats) for chats in copied()] == [2], "much of it takes too long while the window is used"
    disk.free(store)
    store.look_for_changes()
    assert not list(places.iterdir())
    assert not full.keeping._copy_timer.isActive()


def test_a_copy_of_what_is_saved_meanwhile_does_not_come_late(full, store, disk, places):
    full.keeping._copied = 0
    full.keeping._copy_if_changed()
    disk.free(store)
    store.look_for_changes()
    tasks.finish()
    assert not list(places.iterdir())


# The desktop's end of session


class Manager:
    def __init__(self, asks):
        self._asks, self.said = asks, []

    def allowsInteraction(self):
        return self._asks

    def cancel(self):
        self.said.append("cancel")

    def release(self):
        self.said.append("release")


def test_at_the_end_of_the_session_a_copy_is_made_first(full, store):
    manager = Manager(asks=False)
    full.keeping.end_session(manager)
    assert manager.said == []
    assert [found.chats[0].title for found in rescue.found(store.path)] == ["A long one"]


@pytest.mark.parametrize(("button", "said"), [("stay", ["cancel", "release"]), ("quit", ["release"])])
def test_a_desktop_that_lets_programs_ask_is_asked_to_wait(full, store, button, said):
    manager = Manager(asks=True)
    QTimer.singleShot(0, lambda: getattr(full.question, button).click())
    full.keeping.end_session(manager)
    assert manager.said == said
    assert len(list(rescue.found(store.path))) == 1
    assert full.quits == 0, "the desktop says when"


def test_a_session_that_ends_with_everything_saved_is_not_held_up(store, make):
    window, manager = make(store), Manager(asks=True)
    window.keeping.end_session(manager)
    assert manager.said == []
    assert window.flushed == 1


def test_the_text_of_the_copy_is_an_export_that_anyone_may_import(full, store, places):
    full.keeping.copy_now()
    (path,) = places.iterdir()
    assert json.loads(path.read_text(encoding="utf-8"))["format"] == "greenroom-chats"


@pytest.mark.parametrize("ending", [".json", ".md", ".html"])
def test_an_export_elsewhere_has_what_is_not_sent(full, store, tmp_path, ending):
    chat = store.chats()[0].id
    message = store.messages(chat)[0].id
    store.set_draft(chat, Draft("half a question", (), Edit(message, "half a change")))
    store.set_draft(None, Draft("half a beginning", (Attachment("a.txt", "a file", 6),)))
    full.keeping.may_close()
    path = tmp_path / f"Unsaved{ending}"
    full.question.export_to(path)
    tasks.finish()
    text = path.read_text(encoding="utf-8")
    assert all(part in text for part in ("half a question", "half a change", "half a beginning", "a file"))
    if ending == ".json":
        found = {chat.title: chat.path[-1].text for chat in read(path)}
        assert found == {"A long one": "half a question\n\nhalf a change", "New chat": "half a beginning"}


def test_only_what_is_written_for_a_new_chat_is_exported_too(store, disk, make, tmp_path):
    window = make(store)
    disk.fill(store)
    store.set_draft(None, Draft(LONG))
    window.keeping.may_close()
    path = tmp_path / "Unsaved.md"
    window.question.export_to(path)
    tasks.finish()
    assert LONG.strip() in path.read_text(encoding="utf-8")
