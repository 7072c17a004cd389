"""The file of the chats survives what happens to programs: kill -9, full disks, closed folders, damage, newer ones."""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from chat_fakes import ask

from app.chat.storage import schema
from app.chat.storage.records import Draft
from app.chat.storage.store import ChatStore
from engine.errors import GreenroomError

KILLED = """
import sys, time
from pathlib import Path
from app.chat.storage.store import ChatStore
store = ChatStore(Path(sys.argv[1]))
chat = store.create_chat("count")
answer = store.add_message(chat, store.add_message(chat, None, "user", "count"), "assistant")
text = ""
for number in range(10**9):
    text += f"{number} "
    store.set_text(answer, text)
    print(number, flush=True)
"""


def test_kill_9_loses_nothing_that_was_set(tmp_path):
    path = tmp_path / "chats.sqlite3"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[4]
    )
    seen = -1
    while seen < 50:
        seen = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    seen = max([seen, *(int(line) for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n"))])
    process.wait()
    process.stdout.close()

    store = ChatStore(path)
    assert store.problem is None
    question, answer = store.messages(store.chats()[0].id)
    assert answer.text.startswith("0 1 2 3 ")
    assert int(answer.text.split()[-1]) >= seen
    assert answer.stop_reason is None
    assert [chat.id for chat in store.chats("48 49")] == [question.chat_id], "a cut-off answer is searchable too"
    store.close()


def test_two_windows_on_one_file_keep_the_index_right(tmp_path):
    path = tmp_path / "chats.sqlite3"
    first = ChatStore(path)
    chat_id = first.create_chat("q")
    answer_id = first.add_message(chat_id, first.add_message(chat_id, None, "user", "q"), "assistant")
    first.set_text(answer_id, "early words")
    second = ChatStore(path)  # takes the answer for one that was cut off, and indexes it
    first.finish(answer_id, "late words", None, "end")
    assert second.chats("late")
    assert not second.chats("early")
    second._db.execute("INSERT INTO search(search, rank) VALUES ('integrity-check', 1)")
    second.close()
    first.close()


WRITER = """
import sys
from pathlib import Path
from app.chat.storage.store import ChatStore
store = ChatStore(Path(sys.argv[1]))
chat = store.create_chat("q")
answer = store.add_message(chat, store.add_message(chat, None, "user", "q"), "assistant")
store.set_text(answer, "so far")
print(chat, answer, flush=True)
sys.stdin.readline()
"""


def test_an_answer_that_another_window_writes_is_not_cut_off_until_that_one_dies(tmp_path):
    path = tmp_path / "chats.sqlite3"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[4],
    )
    chat_id, answer_id = map(int, writer.stdout.readline().split())
    store = ChatStore(path)
    assert store.unfinished() is None
    store.settle_unfinished(answer_id)
    answer = store.messages(chat_id)[-1]
    assert (answer.text, answer.stop_reason, answer.elsewhere, answer.cut_off) == ("so far", None, True, False)
    with pytest.raises(GreenroomError, match="it is being written in another window"):
        store.reopen(answer_id)
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdin.close()
    writer.stdout.close()
    assert store.unfinished() == (chat_id, answer_id)
    assert store.messages(chat_id)[-1].cut_off
    store.reopen(answer_id)
    other = ChatStore(path)
    assert other.messages(chat_id)[-1].elsewhere, "now this one writes it"
    store.finish(answer_id, "so far, so good", None, "end")
    assert not other.messages(chat_id)[-1].elsewhere
    other.close()
    store.close()
    assert not list(tmp_path.glob("*writing*")), "nothing is left behind"


def test_what_another_window_has_deleted_is_told_or_passed_over(tmp_path):
    first, second = ChatStore(tmp_path / "chats.sqlite3"), ChatStore(tmp_path / "chats.sqlite3")
    chat_id, question_id, answer_id = ask(first, "q", "a")
    second.delete(chat_id)
    second.close()
    with pytest.raises(GreenroomError, match="it was deleted in another window"):
        first.add_message(chat_id, answer_id, "user", "and then?")
    assert first.problem is None, "no reason to leave the file"
    assert first.portable(chat_id) is None
    first.delete_message(question_id)
    first.restore_message(question_id)
    first.show_version(answer_id, 1)
    first.show_message(answer_id)
    first.finish(answer_id, "late", None, "end")
    assert first.messages(chat_id) == []
    first.close()


def test_windows_that_bring_a_file_up_to_date_at_once_do_it_once(tmp_path):
    path = tmp_path / "chats.sqlite3"
    db = sqlite3.connect(path)
    db.executescript(schema.MIGRATIONS[0] + "PRAGMA journal_mode = WAL; PRAGMA user_version = 1;")
    db.close()
    problems = []

    def start(_):
        store = ChatStore(path)
        problems.append(store.problem)
        store.close()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(start, range(6)))
    assert problems == [None] * 6


def test_a_file_with_damage_inside_is_left_alone(tmp_path):
    path = tmp_path / "chats.sqlite3"
    store = ChatStore(path)
    for number in range(20):
        ask(store, f"question {number} " * 30, "answer " * 100)
    store.close()
    whole = path.read_bytes()
    for page in range(1, len(whole) // 4096):
        broken = bytearray(whole)
        broken[4096 * page + 8 : 4096 * page + 40] = b"\xff" * 32
        path.write_bytes(broken)
        store = ChatStore(path)
        for chat in store.chats():
            store.messages(chat.id)
            store.portable(chat.id)
        ask(store, "does it go on?", "yes")
        store.close()
        if store.problem is not None:
            assert "damaged" in store.problem.why
            assert path.read_bytes() == broken


def test_a_folder_that_cannot_be_made_leaves_chats_in_memory(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store = ChatStore(tmp_path / "file" / "chats.sqlite3")
    assert store.problem is not None
    assert store.problem.what == "Chats are not being saved"
    assert str(tmp_path / "file") in store.problem.why
    chat_id, _, _ = ask(store, "does it go on?", "yes")
    assert [m.text for m in store.messages(chat_id)] == ["does it go on?", "yes"]
    assert store.chats("yes")
    store.close()


def test_a_damaged_file_is_left_alone(tmp_path):
    path = tmp_path / "chats.sqlite3"
    path.write_bytes(b"this is no database at all, but somebody may still want it" * 100)
    before = path.read_bytes()
    store = ChatStore(path)
    assert "damaged" in store.problem.why
    ask(store, "q", "a")
    store.close()
    assert path.read_bytes() == before


def test_a_file_of_a_newer_program_is_left_alone(tmp_path):
    path = tmp_path / "chats.sqlite3"
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 999")
    db.close()
    store = ChatStore(path)
    assert "newer version of Greenroom" in store.problem.why
    ask(store, "q", "a")
    store.close()
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (999,)
    db.close()


def test_a_file_that_becomes_read_only_keeps_its_chats_and_goes_on_in_memory(tmp_path):
    store = ChatStore(tmp_path / "chats.sqlite3")
    chat_id, _, answer_id = ask(store, "q", "a")
    heard = []
    store.subscribe(heard.append)
    store._db.execute("PRAGMA query_only = ON")
    follow_up = store.add_message(chat_id, answer_id, "user", "still there?")
    assert [m.text for m in store.messages(chat_id)] == ["q", "a", "still there?"]
    assert store.messages(chat_id)[-1].id == follow_up
    assert store.problem is not None
    assert heard
    store.close()


def test_a_busy_file_is_an_error_and_not_a_reason_to_leave_it(tmp_path):
    path = tmp_path / "chats.sqlite3"
    store = ChatStore(path)
    chat_id, _, answer_id = ask(store, "q", "a")
    store._db.execute("PRAGMA busy_timeout = 1")
    other = sqlite3.connect(path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(GreenroomError, match="another program"):
        store.set_text(answer_id, "b")
    other.rollback()
    other.close()
    assert store.problem is None
    store.set_text(answer_id, "b")
    assert store.messages(chat_id)[-1].text == "b"
    store.close()


def test_a_file_of_the_first_version_is_brought_up_to_date(tmp_path, monkeypatch):
    path = tmp_path / "chats.sqlite3"
    db = sqlite3.connect(path)
    db.executescript(schema.MIGRATIONS[0] + "PRAGMA user_version = 1;")
    with db:
        db.execute("INSERT INTO chats(id, title, created, updated, leaf_id) VALUES (1, 'old', 1, 2, 2)")
        db.execute("INSERT INTO messages VALUES (1, 1, NULL, 'user', 'q', 1, '', NULL, NULL, NULL, NULL, 0)")
        db.execute("INSERT INTO messages VALUES (2, 1, 1, 'assistant', 'a', 2, 'm', 1.5, NULL, 'end', NULL, 0)")
    db.close()
    new = ChatStore(path)
    assert new._db.execute("PRAGMA user_version").fetchone() == (len(schema.MIGRATIONS),)
    assert [m.text for m in new.messages(1)] == ["q", "a"]
    assert [(c.title, c.pinned, c.folder) for c in new.chats("q")] == [("old", False, "")]
    assert (new.draft(1), new.chat_settings(1), new.model_path(1)) == (Draft(), {}, "")
    new.close()


def test_released_migrations_stay_as_they_are():
    """Files in the world went through these steps: another text would leave two kinds of files with one number."""
    digests = [hashlib.sha256(" ".join(step.split()).encode()).hexdigest()[:16] for step in schema.MIGRATIONS]
    assert digests == ["1df05b4a6f4f1cc0", "d9a0b78782937e5c", "3747cbd42beb633d", "280d86927e6c105a"]


def test_a_file_that_cannot_be_brought_up_to_date_is_left_as_it_is(tmp_path):
    path = tmp_path / "chats.sqlite3"
    db = sqlite3.connect(path)
    # The second step makes its last table only after it has changed others.
    db.executescript(schema.MIGRATIONS[0] + "CREATE TABLE notes (something_else); PRAGMA user_version = 1;")
    db.close()
    store = ChatStore(path)
    assert "damaged" in store.problem.why
    ask(store, "does it go on?", "yes")
    store.close()
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (1,)
    assert "pinned" not in {row[1] for row in db.execute("PRAGMA table_info(chats)")}
    db.close()
