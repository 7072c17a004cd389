"""The chat file when several programs make it, or bring it to the present schema, at once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from together import together

from app.chat.storage.schema import MIGRATIONS

OPEN = """
from pathlib import Path
from app.chat.storage.store import ChatStore

def work(place):
    store = ChatStore(Path(place) / "chats.sqlite")
    if store.problem is not None:
        return str(store.problem).replace(chr(10), " ")
    found = store._db.execute("SELECT COUNT(*) FROM search").fetchone()[0] if store._searchable else "not searchable"
    store.close()
    return found
"""


def test_first_starts_at_the_same_moment_make_one_file(tmp_path: Path) -> None:
    with together(3, OPEN) as processes:
        for number in range(40):
            assert processes.run(tmp_path / str(number)) == ["0"] * 3


def test_an_old_file_is_brought_up_once(tmp_path: Path) -> None:
    with together(3, OPEN) as processes:
        for number in range(40):
            path = tmp_path / str(number) / "chats.sqlite"
            path.parent.mkdir()
            with closing(sqlite3.connect(path)) as old:
                old.executescript(f"{MIGRATIONS[0]} PRAGMA user_version = 1;")
                old.execute("INSERT INTO chats(title, created, updated) VALUES ('a', 0, 0)")
                old.executemany(
                    "INSERT INTO messages(chat_id, role, text, created, model) VALUES (1, 'user', ?, 0, '')",
                    [(f"message {n}",) for n in range(50)],
                )
                old.commit()
            assert processes.run(path.parent) == ["50"] * 3
            with closing(sqlite3.connect(path)) as db:
                assert db.execute("SELECT COUNT(*) FROM search WHERE search MATCH 'message'").fetchone() == (50,)
                db.execute("INSERT INTO search(search) VALUES ('integrity-check')")
