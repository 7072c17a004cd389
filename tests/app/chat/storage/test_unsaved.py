"""What is in memory only while the chat file cannot be written, and how it comes into the file."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chat_fakes import ask
from full_disk import LONG as UNINDEXED
from full_disk import FullDisk

from app.chat.storage import database
from app.chat.storage.connection import StandIn
from app.chat.storage.portable import PortableChat, PortableMessage
from app.chat.storage.records import Attachment, Draft
from app.chat.storage.store import ChatStore
from engine.errors import GreenroomError

#: Short enough for the index.
LONG = UNINDEXED[:90_000]
PAPER = Attachment("notes.txt", "what was noted", 14)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


def everything(store: ChatStore) -> list[PortableChat | None]:
    return [store.portable(chat.id) for chat in store.chats()]


def check_index(store: ChatStore) -> None:
    store._db.execute("INSERT INTO search(search, rank) VALUES ('integrity-check', 1)")


def test_chats_go_on_in_memory_and_are_saved_as_soon_as_there_is_room(store: ChatStore, disk: FullDisk) -> None:
    chat, question, answer = ask(store, "Which sea is deep?", "old words")
    disk.fill(store)
    heard: list[int] = []
    store.subscribe(heard.append)
    store.finish(store.add_message(chat, question, "assistant"), LONG, None, "end")
    assert store.problem is not None
    assert store.problem.what == "Chats are not being saved"
    assert "full" in store.problem.why
    assert heard
    new = store.create_chat("new")
    first = store.add_message(new, None, "user", "a new question", attachments=[PAPER, PAPER])
    store.finish(store.add_message(new, first, "assistant"), "a new answer", None, "end")
    store.set_text(answer, "better")
    store.finish(answer, "better words", None, "end")
    store.rename(chat, "The sea")
    store.set_draft(new, Draft("half a thought", (PAPER,)))
    store.set_draft(None, Draft("half a beginning"))
    store.delete_message(first)
    store.restore_message(first)
    assert store.unsaved
    assert store.chats("deepest") == []
    assert [known.id for known in store.chats("new answer")] == [new]
    before, shown = everything(store), [store.messages(number) for number in (chat, new)]

    assert not store.save_now(), "there is no room yet"
    store.look_for_changes()
    assert store.problem is not None
    disk.free(store)
    heard.clear()
    store.look_for_changes()
    assert (store.problem, store.unsaved, heard) == (None, False, [0])
    assert everything(store) == before
    assert [store.messages(number) for number in (chat, new)] == shown, "messages keep their numbers"
    check_index(store)
    store.close()

    again = ChatStore(store.path)
    assert again.problem is None
    assert everything(again) == before
    assert (again.draft(new), again.draft(None)) == (Draft("half a thought", (PAPER,)), Draft("half a beginning"))
    assert [known.id for known in again.chats("better words")] == [chat]
    assert not again.chats("old words")
    again.close()


def test_a_try_that_fails_halfway_changes_nothing(store: ChatStore, disk: FullDisk) -> None:
    ask(store, "q", "a")
    disk.fill(store)
    ask(store, "a long one", LONG)
    ask(store, "a small one", "b")
    ask(store, "another long one", LONG)
    assert not store.save_now()
    with sqlite3.connect(store.path) as db:
        assert db.execute("SELECT COUNT(*) FROM chats WHERE title = 'a small one'").fetchone() == (0,)
    db.close()
    assert [m.text for m in store.messages(store.chats("small one")[0].id)] == ["a small one", "b"]


def test_tries_have_time_between_them(store: ChatStore, disk: FullDisk) -> None:
    disk.fill(store)
    ask(store, "q", LONG)
    store.look_for_changes()
    disk._full = False
    store.look_for_changes()
    assert store.problem is not None, "it was tried a moment ago"
    store._next_try = 0.0
    store.look_for_changes()
    assert store.problem is None


def test_what_is_unsaved_is_saved_when_the_program_ends(store: ChatStore, disk: FullDisk) -> None:
    disk.fill(store)
    chat, _, _ = ask(store, "q", LONG)
    disk.free(store)
    store.close()
    again = ChatStore(store.path)
    assert [m.text for m in again.messages(chat)] == ["q", LONG]
    again.close()


def test_what_cannot_be_saved_in_the_end_is_lost_and_the_file_stays_as_it_was(store: ChatStore, disk: FullDisk) -> None:
    _, _, answer = ask(store, "q", "a")
    before = everything(store)
    disk.fill(store)
    store.set_text(answer, LONG)
    ask(store, "another", "b")
    store.close()
    disk.free(store)
    again = ChatStore(store.path)
    assert again.problem is None
    assert everything(again) == before
    again.close()


def test_a_disk_that_fills_up_again_and_again_loses_nothing(store: ChatStore, disk: FullDisk) -> None:
    for number in range(5):
        disk.fill(store)
        ask(store, f"question {number}", f"{number} {LONG}")
        assert store.problem is not None
        disk.free(store)
        store.look_for_changes()
        assert store.problem is None
        ask(store, f"between {number}", "saved at once")
    check_index(store)
    assert len(store.chats()) == 10


@pytest.mark.parametrize("first", [0, 1])
def test_two_windows_that_were_both_in_memory_save_both(tmp_path: Path, disk: FullDisk, first: int) -> None:
    windows = [ChatStore(tmp_path / "chats.sqlite") for _ in range(2)]
    chat, _, answer = ask(windows[0], "q", "a")
    for number, window in enumerate(windows):
        disk.fill(window)
        ask(window, f"from {number}", f"{number} {LONG}", chat, answer)
        window.rename(ask(window, f"chat {number}", "new")[0], f"renamed {number}")
        assert window.problem is not None
    for window in (windows[first], windows[1 - first]):
        disk.free(window)
        window.look_for_changes()
        assert window.problem is None
    for window in windows:
        window.look_for_changes()
        assert {known.title for known in window.chats()} == {"q", "renamed 0", "renamed 1"}
        texts = {m.text for m in window.portable(chat).messages}
        assert texts == {"q", "a", "from 0", "from 1", f"0 {LONG}", f"1 {LONG}"}
        check_index(window)
        window.close()


def test_what_another_window_has_written_meanwhile_stays(store: ChatStore, disk: FullDisk) -> None:
    chat, _, answer = ask(store, "q", "a")
    disk.fill(store)
    ask(store, "here", LONG, chat, answer)
    disk.free(store)
    other = ChatStore(store.path)
    other.rename(chat, "Another name")
    ask(other, "there", "b", chat, answer)
    store.look_for_changes()
    assert store.problem is None
    assert store.title(chat) == "Another name"
    assert {m.text for m in store.portable(chat).messages} == {"q", "a", "here", LONG, "there", "b"}
    other.close()


def test_a_chat_that_another_window_has_removed_keeps_everything_in_memory(store: ChatStore, disk: FullDisk) -> None:
    chat, _, answer = ask(store, "q", "a")
    disk.fill(store)
    store.set_text(answer, LONG)
    ask(store, "and then?", "b", chat, answer)
    disk.free(store)
    other = ChatStore(store.path)
    other.delete(chat)
    other.close()
    assert not store.save_now()
    assert [m.text for m in store.messages(chat)] == ["q", LONG, "and then?", "b"]


def test_what_an_error_undoes_is_not_saved_later(store: ChatStore, disk: FullDisk) -> None:
    disk.fill(store)
    chat, _, answer = ask(store, "q", LONG)
    kept = len(store._db.pending)
    nobody: Any = None
    path = [PortableMessage("user", "more", None, 1.0), PortableMessage(nobody, "refused", None, 1.0)]
    with pytest.raises(GreenroomError):
        store.add_path(chat, answer, path)
    assert len(store._db.pending) == kept
    disk.free(store)
    assert store.save_now()
    assert [m.text for m in store.messages(chat)] == ["q", LONG]


def test_a_draft_that_is_saved_with_every_pause_is_kept_once(store: ChatStore, disk: FullDisk) -> None:
    disk.fill(store)
    chat, _, _ = ask(store, "q", LONG)
    kept = len(store._db.pending)
    for chat_id in (chat, None):
        for length in range(1, 9):
            store.set_draft(chat_id, Draft("a thought"[:length]))
    assert len(store._db.pending) == kept + 2
    disk.free(store)
    assert store.save_now()
    assert store.draft(chat) == store.draft(None) == Draft("a though")


def test_a_folder_that_can_be_written_at_last_takes_what_was_written_before(tmp_path: Path) -> None:
    path = tmp_path / "data" / "chats.sqlite"
    (tmp_path / "data").write_text("in the way")
    store = ChatStore(path)
    assert store.problem is not None
    assert not store.unsaved, "nothing is lost yet"
    chat, _, _ = ask(store, "q", "a")
    store.set_draft(chat, Draft("half a thought", (PAPER,)))
    assert not store.save_now()
    (tmp_path / "data").unlink()
    assert store.save_now()
    assert store.problem is None
    store.close()
    again = ChatStore(path)
    assert [m.text for m in again.messages(chat)] == ["q", "a"]
    assert again.draft(chat) == Draft("half a thought", (PAPER,))
    again.close()


def test_a_file_that_is_read_only_at_the_start_is_shown_and_saved_to_later(
    store: ChatStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat, _, answer = ask(store, "q", "a")
    store.close()
    real = database.connect

    def read_only(path: Path | str, **options: object) -> sqlite3.Connection:
        made = real(path, **options)
        made.execute("PRAGMA query_only = ON")
        return made

    monkeypatch.setattr(database, "connect", read_only)
    again = ChatStore(store.path)
    assert again.problem is not None
    assert again.problem.why.startswith("Greenroom cannot write to")
    ask(again, "and then?", "b", chat, answer)
    assert not again.save_now()
    monkeypatch.setattr(database, "connect", real)
    assert again.save_now()
    assert isinstance(again._db, StandIn) is False
    assert [m.text for m in again.messages(chat)] == ["q", "a", "and then?", "b"]
    again.close()


@pytest.mark.parametrize(("free", "why"), [(0, "is full"), (10**9, "cannot write to")])
def test_a_disk_that_is_full_at_the_start_is_told_as_such(
    store: ChatStore, monkeypatch: pytest.MonkeyPatch, free: int, why: str
) -> None:
    def use_log(db: sqlite3.Connection, patience_s: float) -> None:
        if not isinstance(db, StandIn):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
            raise error

    ask(store, "q", "a")
    store.close()
    monkeypatch.setattr(database, "use_write_ahead_log", use_log)
    monkeypatch.setattr(database.shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    again = ChatStore(store.path)
    assert why in again.problem.why
    assert [chat.title for chat in again.chats()] == ["q"]
    again.close()


@pytest.mark.parametrize("newer", [False, True])
def test_a_file_that_is_damaged_or_newer_is_not_tried_again(tmp_path: Path, newer: bool) -> None:
    path = tmp_path / "chats.sqlite"
    if newer:
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA user_version = 999")
        db.close()
    else:
        path.write_bytes(b"this is no database" * 300)
    before = path.read_bytes()
    store = ChatStore(path)
    ask(store, "q", "a")
    assert store.unsaved
    path.rename(tmp_path / "elsewhere")
    assert not store.save_now(), "another file would lack the chats that were seen"
    store.close()
    assert not path.exists()
    assert (tmp_path / "elsewhere").read_bytes() == before
