"""Attached files are searched like messages, and what another window changes is told."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.chat.list_model import HIT
from app.chat.sidebar import ChatList
from app.chat.storage import file_index, schema
from app.chat.storage.records import Attachment, Hit
from app.chat.storage.store import ChatStore

PATH = "chats.sqlite3"


def attach(store: ChatStore, name: str, text: str, question: str = "What is this?") -> tuple[int, int]:
    """(chat, message)"""
    chat = store.create_chat(question)
    return chat, store.add_message(chat, None, "user", question, attachments=[Attachment(name, text, len(text))])


def titles(store: ChatStore, query: str) -> list[int]:
    return [chat.id for chat in store.chats(query)]


def index(store: ChatStore) -> int:
    """Everything; returns the number of pieces."""
    pieces = 0
    while store.index_next():
        pieces += 1
    return pieces


@pytest.mark.parametrize("indexed", [False, True])
def test_words_of_files_are_found_before_they_are_in_the_index_and_after(store: ChatStore, indexed: bool) -> None:
    chat, message = attach(store, "notes.txt", 'first line\nThe Quokka sleeps here\n100%_sure "quoted" 한국어 문장')
    attach(store, "other.txt", "nothing of the kind")
    if indexed:
        assert index(store) == 2
    for query in ("quokka", "quok", "Quokka what", "100%_sure", '"quoted"', "한국어", "국어", "문장"):
        assert titles(store, query) == [chat], query
    for query in ("quokkas", "100_%", "한국인"):
        assert titles(store, query) == [], query
    assert store.find_in(chat, "quokka") == Hit(
        message, '…line The Quokka sleeps here 100%_sure "quoted" 한국어 문장', "notes.txt"
    )
    assert store.find_in(chat, "what").file == "", "the message says it itself"
    assert store.find_in(chat, "quokka absent").file == "notes.txt", "as many words as there are"


def test_a_long_file_is_taken_in_by_pieces_and_no_word_is_cut(store: ChatStore) -> None:
    words = {end: f"needle{end}" for end in (file_index.PIECE, 2 * file_index.PIECE)}
    text = list("x " * (3 * file_index.PIECE // 2))
    for end, word in words.items():
        text[end - 4 : end - 4 + len(word)] = word
    text[-8:] = " lastone"
    chat, _ = attach(store, "long.txt", "".join(text))
    assert index(store) == 3
    for word in (*words.values(), "lastone"):
        assert titles(store, word) == [chat], word


def test_what_is_deleted_for_good_leaves_the_index(store: ChatStore) -> None:
    gone, _ = attach(store, "a.txt", "walrus " * 20_000)
    kept, _ = attach(store, "b.txt", "walrus")
    index(store)
    store.delete(gone)
    assert titles(store, "walrus") == [kept], "not only after the end"
    store.restore(gone)
    assert sorted(titles(store, "walrus")) == [gone, kept]
    store.delete(gone)
    store.purge()
    left = store._db.execute("SELECT rowid FROM file_search WHERE file_search MATCH '\"walrus\"'").fetchall()
    assert len(left) == 1
    store.delete(kept)
    store.purge()
    assert store._db.execute("SELECT COUNT(*) FROM file_search WHERE file_search MATCH '\"walrus\"'").fetchone() == (0,)
    half, _ = attach(store, "c.txt", "walrus " * 20_000)
    store.index_next()
    store.delete(half)
    store.purge()
    assert store._db.execute("SELECT COUNT(*) FROM file_search WHERE file_search MATCH '\"walrus\"'").fetchone() == (0,)


def test_a_file_of_the_version_before_is_brought_up_and_searched(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / PATH)
    db.executescript("".join(schema.MIGRATIONS[:2]) + "PRAGMA user_version = 2;")
    db.execute("INSERT INTO chats(id, title, created, updated, leaf_id) VALUES (1, 'old', 1, 1, 1)")
    db.execute("INSERT INTO messages(id, chat_id, role, text, created, model) VALUES (1, 1, 'user', 'q', 1, '')")
    db.execute("INSERT INTO attachments(message_id, name, text, length) VALUES (1, 'a.txt', 'an old walrus', 13)")
    db.commit()
    db.close()
    store = ChatStore(tmp_path / PATH)
    assert store.problem is None
    assert titles(store, "walrus") == [1]
    assert index(store) == 1
    assert titles(store, "walrus") == [1]
    store.close()


def test_without_a_full_text_index_files_are_searched_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChatStore, "_make_search", staticmethod(lambda db: False))
    store = ChatStore(tmp_path / PATH)
    chat, _ = attach(store, "a.txt", "a walrus")
    assert not store.index_next()
    assert titles(store, "walrus") == [chat]
    store.delete(chat)
    store.close()


def test_two_windows_index_each_piece_once(tmp_path: Path) -> None:
    first, second = ChatStore(tmp_path / PATH), ChatStore(tmp_path / PATH)
    attach(first, "a.txt", "walrus " * 20_000)
    turns = 0
    while first.index_next() | second.index_next():
        turns += 1
    rows = first._db.execute("SELECT rowid FROM file_search WHERE file_search MATCH '\"walrus\"'").fetchall()
    assert len(rows) == len(set(rows)) == -(-7 * 20_000 // file_index.PIECE)
    first.close()
    second.close()


def test_the_list_says_that_a_hit_is_in_a_file(store: ChatStore, qtbot: QtBot) -> None:
    attach(store, "zoo.txt", "a walrus and a seal")
    chats = ChatList(store)
    qtbot.addWidget(chats)
    chats.filter("walrus")
    qtbot.waitUntil(lambda: any(row == "What is this?" for row in chats.rows) and chats.view.words == ["walrus"])
    row = chats.view.model().index(1, 0)
    assert row.data(HIT).line == "in zoo.txt: a walrus and a seal"
    assert row.data(Qt.ItemDataRole.ToolTipRole) == "What is this?\nin zoo.txt: a walrus and a seal"
    chats.resize(300, 200)
    chats.show()
    assert not chats.grab().isNull(), "it is painted with its sign"
    assert row.data(Qt.ItemDataRole.AccessibleDescriptionRole) == "in zoo.txt: a walrus and a seal"


def test_what_another_window_changes_is_told_once(tmp_path: Path) -> None:
    here, there = ChatStore(tmp_path / PATH), ChatStore(tmp_path / PATH)
    told: list[int] = []
    here.subscribe(told.append)
    here.look_for_changes()
    chat = there.create_chat("elsewhere")
    here.look_for_changes()
    here.look_for_changes()
    assert told == [0]
    here.rename(chat, "here")
    here.look_for_changes()
    assert told == [0, chat], "what this window did is no news"
    there.close()
    here.close()
    here.look_for_changes()
