"""A file of chats that is damaged, or made by somebody who means harm: nothing hangs, and what is readable is shown."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat_fakes import FakeHost, ask
from fuzzing import Fuzzer
from hostile_text import hostile_text, is_one_clean_line
from pytestqt.qtbot import QtBot

from app.chat.message_view import AnswerView
from app.chat.page import ChatPage
from app.chat.sidebar import ChatList
from app.chat.storage import schema, travelling
from app.chat.storage.exporting import to_html, to_json
from app.chat.storage.portable import PortableChat, PortableMessage
from app.chat.storage.records import Attachment, Draft
from app.chat.storage.store import ChatStore
from engine.errors import GreenroomError
from engine.runtime.events import GenerationStats


def made(path: Path) -> tuple[int, list[int]]:
    """A file with a chat of four messages, the last two versions of each other, and another chat."""
    store = ChatStore(path)
    chat, question, answer = ask(store, "question one", "answer one")
    again = store.add_message(chat, question, "assistant", "answer two")
    store.finish(again, "answer two", GenerationStats(prompt_tokens=3, completion_tokens=5), "end")
    last = store.add_message(chat, answer, "user", "more", attachments=[Attachment("a.txt", "walrus", 6)])
    store.set_draft(chat, Draft("half", (Attachment("b.txt", "b", 1),)))
    store.set_chat_settings(chat, {"start": last, "system": "s"})
    store.set_note("key", "value")
    ask(store, "other", "chat")
    store.close()
    return chat, [question, answer, again, last]


def tamper(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def use(store: ChatStore, rng: random.Random | None = None) -> None:
    """All that a window does with the chats of a file."""
    store.look_for_changes()
    for query in ("", "answer", "an", "walrus", "1", "more two"):
        for info in store.chats(query):
            assert is_one_clean_line(info.title + info.folder)
            assert isinstance(info.created + info.updated, float)
            if query:
                store.find_in(info.id, query)
    numbers = [info.id for info in store.chats()]
    for chat in numbers:
        messages = store.messages(chat)
        for message in messages:
            assert isinstance(message.text + message.role + message.model, str)
            assert message.stats is None or message.stats.completion_tokens >= 0
        portable = store.portable(chat)
        assert portable is not None
        assert len(portable.path) <= len(portable.messages)
        to_json([portable])
        to_html([portable])
        store.draft(chat), store.chat_settings(chat), store.model_path(chat), store.title(chat)
    store.folders(), store.questions(5), store.unfinished(), store.note("key"), store.unsaved
    while store.index_next():
        pass
    rng = rng or random.Random(1)
    for chat in numbers[:3]:
        for message in store.messages(chat):
            actions: list[Callable[[], Any]] = [
                lambda m=message: store.show_version(m.id, rng.choice((-1, 1))),
                lambda m=message: store.show_message(m.id),
                lambda m=message: store.delete_message(m.id),
                lambda m=message: store.restore_message(m.id),
                lambda m=message: store.set_text(m.id, "new text"),
                lambda m=message: store.add_message(m.chat_id, m.id, "user", "below"),
                lambda m=message: store.finish(m.id, "done", None, "end"),
            ]
            for action in rng.sample(actions, 4):
                try:
                    action()
                except GreenroomError as error:
                    said = str(error)
                    assert is_one_clean_line(said)
        store.rename(chat, "renamed")
        store.delete(chat)
        store.restore(chat)
    store.settle_unfinished(10**6)
    store.add_portable([PortableChat("new", 1.0, 1.0, (PortableMessage("user", "x", None, 1.0),))])
    if numbers:
        store.delete(numbers[0])


def test_circles_end_and_the_chat_shows_what_is_outside_of_them(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    chat, (question, answer, _, last) = made(path)
    tamper(path, f"UPDATE messages SET parent_id = {last} WHERE id = {question}")
    store = ChatStore(path)
    assert store.problem is None
    assert [m.text for m in store.messages(chat)] == ["question one", "answer one", "more"]
    store.show_message(last)
    store.show_version(answer, 1)
    store.delete_message(question)
    store.restore_message(question)
    use(store)
    store.close()


@pytest.mark.parametrize("parent", ["id", "id + 1", "-5", "999", "'text'", "x'ff'", "1.5", "9223372036854775807"])
def test_parents_that_make_no_sense(tmp_path: Path, parent: str) -> None:
    path = tmp_path / "chats.sqlite3"
    chat, _ = made(path)
    tamper(path, "PRAGMA foreign_keys = OFF", f"UPDATE messages SET parent_id = {parent}")
    store = ChatStore(path)
    assert store.problem is None
    assert [m.text for m in store.messages(chat)][-1] == "more"
    use(store)
    store.close()


def test_a_parent_in_another_chat_does_not_show_that_chat(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    store = ChatStore(path)
    first, _, answer = ask(store, "secret", "of the first")
    second, question, _ = ask(store, "q", "a")
    store.close()
    tamper(path, f"UPDATE messages SET parent_id = {answer} WHERE id = {question}")
    store = ChatStore(path)
    assert [m.text for m in store.messages(second)] == ["q", "a"]
    assert [m.text for m in store.messages(first)] == ["secret", "of the first"]
    store.close()


@pytest.mark.parametrize("leaf", ["NULL", "-1", "999999", "'x'", "(SELECT MAX(id) FROM messages)"])
def test_an_end_that_is_not_there_shows_the_newest_message(tmp_path: Path, leaf: str) -> None:
    path = tmp_path / "chats.sqlite3"
    chat, _ = made(path)
    tamper(path, f"UPDATE chats SET leaf_id = {leaf}")
    store = ChatStore(path)
    assert [m.text for m in store.messages(chat)] == ["question one", "answer one", "more"]
    store.close()


EVERY = (
    "NULL",
    "x'ff00fe'",
    "'abc'",
    "1e18",
    "-1e18",
    "9e999",
    "-9e999",
    "0",
    "9223372036854775807",
    "zeroblob(100000)",
)


@pytest.mark.parametrize("value", EVERY)
def test_any_column_may_hold_anything(tmp_path: Path, value: str) -> None:
    path = tmp_path / "chats.sqlite3"
    for table, skipped in (("messages", ("id", "chat_id")), ("chats", ("id",)), ("attachments", ("id", "message_id"))):
        for column in [row[1] for row in _info(path, table) if row[1] not in skipped]:
            path.unlink(missing_ok=True)
            made(path)
            db = sqlite3.connect(path)
            try:
                db.execute(f"UPDATE {table} SET {column} = {value}")
            except sqlite3.IntegrityError:
                continue  # the file itself does not take it
            finally:
                db.commit()
                db.close()
            store = ChatStore(path)
            assert store.problem is None, column
            use(store)
            store.close()


def _info(path: Path, table: str) -> list[tuple[Any, ...]]:
    if not path.exists():
        made(path)
    db = sqlite3.connect(path)
    rows = db.execute(f"PRAGMA table_info({table})").fetchall()
    db.close()
    return rows


def test_bytes_that_are_no_utf_8_and_an_unknown_role(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    chat, _ = made(path)
    tamper(path, "UPDATE messages SET text = CAST(x'61ff62' AS TEXT), role = 'sys' || x'00' || 'op'")
    store = ChatStore(path)
    assert {(m.text, m.role) for m in store.messages(chat)} == {("a\ufffdb", "assistant")}
    use(store)
    store.close()


def test_triggers_views_and_indexes_of_somebody_else_go(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    chat, (question, *_) = made(path)
    tamper(
        path,
        "CREATE TRIGGER spy AFTER INSERT ON messages BEGIN DELETE FROM messages; END",
        'CREATE TRIGGER "odd ""name" AFTER UPDATE ON chats BEGIN SELECT RAISE(ABORT, \'no\'); END',
        "CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
        "CREATE UNIQUE INDEX once ON messages(role, text)",
        "DROP INDEX messages_tree",
        "CREATE INDEX messages_tree ON messages(created)",
        "DROP INDEX messages_parent",
    )
    store = ChatStore(path)
    assert store.problem is None
    store.add_message(chat, question, "user", "still there?")
    store.rename(chat, "other")
    assert [m.text for m in store.messages(chat)] == ["question one", "still there?"]
    left = schema._additions(store._db)
    store.close()
    assert left == schema._additions(schema._pattern())


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE messages RENAME TO m2", "CREATE VIEW messages AS SELECT * FROM m2"],
        [
            "DROP TABLE messages",
            "CREATE VIEW messages AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id, "
            "1 chat_id, id parent_id, '' role, '' text, 1 created, '' model, 1 thought_s, '' stats, '' stop_reason, "
            "'' error, 0 AS 'indexed', NULL deleted FROM n",
        ],
        ["ALTER TABLE notes RENAME COLUMN value TO other"],
        ["DROP TABLE attachments"],
        ["DROP TABLE chats", "CREATE TABLE chats (id TEXT PRIMARY KEY, title, created, updated, deleted, leaf_id)"],
        ["UPDATE sqlite_sequence SET seq = 9223372036854775807"],
        ["UPDATE sqlite_sequence SET seq = 'x'"],
        ["INSERT INTO chats(id, title, created, updated) VALUES (-3, 'x', 1, 1)"],
        ["INSERT INTO chats(id, title, created, updated) VALUES (9223372036854775807, 'x', 1, 1)"],
        ["PRAGMA user_version = -5"],
    ],
)
def test_a_file_of_another_make_is_left_alone(tmp_path: Path, statements: list[str]) -> None:
    path = tmp_path / "chats.sqlite3"
    made(path)
    tamper(path, *statements)
    before = path.read_bytes()
    store = ChatStore(path)
    assert store.problem is not None
    assert "damaged" in store.problem.why
    ask(store, "goes on", "RAM disk")
    use(store)
    store.close()
    assert path.read_bytes() == before


def test_a_damaged_index_is_given_up_and_made_again(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    chat, (question, *_) = made(path)
    tamper(path, "UPDATE search_data SET block = x'ffffffffffffffffffff' WHERE id > 1", "DELETE FROM search_idx")
    store = ChatStore(path)
    assert [info.id for info in store.chats("answer")] == [chat]
    store.set_text(question, "walrus again")
    store.finish(question, "walrus again", None, "end")
    assert store.problem is None
    assert [info.id for info in store.chats("walrus again")] == [chat]
    store.delete(chat)
    store.close()
    store = ChatStore(path)
    assert store.problem is None
    assert store.chats("walrus") == []
    while store.index_next():
        pass
    assert len(store.chats("chat")) == 1
    store.close()


def test_extensions_and_functions_with_effects_are_off(tmp_path: Path) -> None:
    store = ChatStore(tmp_path / "chats.sqlite3")
    assert store._db.execute("PRAGMA trusted_schema").fetchone() == (0,)
    assert store._db.execute("PRAGMA cell_size_check").fetchone() == (1,)
    with pytest.raises(sqlite3.OperationalError, match="not authorized"):
        store._db.execute("SELECT load_extension('x')")
    store.close()


def test_a_text_without_end_is_cut_and_not_indexed(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    chat, _ = made(path)
    tamper(path, "UPDATE messages SET text = replace(hex(zeroblob(5000000)), '00', 'ab '), indexed = 0 WHERE id = 1")
    store = ChatStore(path)
    assert len(store.messages(chat)[0].text) == 4_000_000
    while store.index_next():
        pass
    assert store._db.execute("SELECT indexed FROM messages WHERE id = 1").fetchone() == (0,)
    assert [info.id for info in store.chats("ab ab")] == [chat], "it is read"
    store.close()


def test_what_waits_for_the_index_is_found_and_taken_in_bit_by_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(travelling, "AT_ONCE", 1000)
    store = ChatStore(tmp_path / "chats.sqlite3")
    messages = tuple(PortableMessage("user", f"walrus {i}", i - 1 if i else None, 1.0) for i in range(1000))
    (chat,) = store.add_portable([PortableChat("x", 1.0, 1.0, messages)])
    waiting = "SELECT COUNT(*) FROM messages WHERE indexed = 0"
    assert store._db.execute(waiting).fetchone() == (995,)
    assert [info.id for info in store.chats("walrus 999")] == [chat]
    steps = 0
    while store.index_next():
        steps += 1
    assert steps == 9
    assert store._db.execute(waiting).fetchone() == (0,)
    assert [info.id for info in store.chats("walrus 999")] == [chat]
    store.close()


VALUES = ("NULL", "?", "x'00ff'", "-1", "0", "1", "3", "1e18", "9e999", "9223372036854775807", "'{}'", "'[1,[]]'", "''")
COLUMNS = {
    "messages": (
        *("chat_id", "parent_id", "role", "text", "created", "model", "thought_s", "stats", "stop_reason", "error"),
        *("indexed", "deleted", "id"),
    ),
    "chats": ("title", "created", "updated", "deleted", "leaf_id", "pinned", "folder", "draft", "settings", "id"),
    "attachments": ("message_id", "name", "text", "length", "indexed", "id"),
    "notes": ("key", "value"),
    "search_data": ("block", "id"),
    "search_docsize": ("sz",),
    "file_search_data": ("block",),
    "sqlite_sequence": ("seq", "name"),
}
JSON = (
    '{"prompt_tokens": NaN, "completion_tokens": 1e999, "predicted_tps": [1, -1, 2]}',
    '["%s", [["a", "b", 99999999999999999999]], [99999999999999999999999, "x", []]]',
    '[{"said": ["{a}{a}", {"a": {"said": ["{a:>99999999}", {"a": 1}, null, ""]}}, null, ""]}, "b", "c"]',
    '{"stepped_down": [{"said": ["{a.__class__}", {"a": 1}, 99, ""]}], "start": [], "own": 5}',
    "[" * 50_000,
)


def test_a_file_with_any_values_is_opened_used_and_closed(fuzzer: Fuzzer, tmp_path: Path) -> None:
    template = tmp_path / "template.sqlite3"
    made(template)
    tamper(template, "PRAGMA journal_mode = DELETE")
    whole = template.read_bytes()
    path = tmp_path / "data" / "chats.sqlite3"
    path.parent.mkdir()
    sound = 0
    for rng in fuzzer.rounds():
        for old in path.parent.iterdir():
            old.unlink()
        path.write_bytes(whole)
        db = sqlite3.connect(path)
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("PRAGMA writable_schema = ON")
        for _ in range(rng.randrange(1, 8)):
            table = rng.choice(list(COLUMNS))
            column, value = rng.choice(COLUMNS[table]), rng.choice(VALUES)
            text = rng.choice(JSON) if rng.random() < 0.4 else hostile_text(rng)
            text = text.encode("utf-8", "replace").decode()
            where = rng.choice(("1", "rowid = 1", "rowid = 2", "rowid % 2"))
            try:
                db.execute(f"UPDATE OR IGNORE {table} SET {column} = {value} WHERE {where}", [text] * value.count("?"))
            except sqlite3.Error:
                continue
        db.commit()
        db.close()
        store = ChatStore(path)
        sound += store.problem is None
        use(store, rng)
        store.close()
    assert sound


def test_the_window_shows_what_is_left(qtbot: QtBot, host: FakeHost, tmp_path: Path) -> None:
    """Values that no program of ours writes, through the list, the messages and their figures."""
    path = tmp_path / "chats.sqlite3"
    chat, _ = made(path)
    tamper(
        path,
        "UPDATE messages SET role = 'tool', stop_reason = x'ff', created = 1e18, thought_s = -5, model = x'1b5b326a',"
        ' stats = \'{"completion_tokens": 1e999, "decode_tps": NaN, "predicted_tps": [NaN, 1, 2],'
        ' "stepped_down": ["a\\u001b\\n\\u202eb"]}\' WHERE id > 1',
        'UPDATE messages SET text = x\'00ff41\', error = \'["a\\nb", "{", "}"]\', parent_id = 4 WHERE id = 1',
        "UPDATE chats SET title = 'a' || char(10, 27, 8238) || 'b', updated = 1e18, created = 'x', folder = x'ff',"
        " draft = '[1]', settings = '{\"own\": {\"seed\": NaN}}', pinned = 'x'",
        "UPDATE attachments SET name = char(27, 10) || 'a', length = -1, text = x'ff'",
    )
    store = ChatStore(path)
    listed = ChatList(store)
    qtbot.addWidget(listed)
    assert all(is_one_clean_line(row) for row in listed.rows)
    page = ChatPage(host, store)
    qtbot.addWidget(page)
    page.resize(800, 600)
    page.show()
    page.open_chat(chat)
    qtbot.waitUntil(lambda: len(page.transcript.findChildren(AnswerView)) == 2)
    assert page.grab().width() > 0
    page.shutdown()
    store.close()
