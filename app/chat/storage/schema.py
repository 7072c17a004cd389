"""What a file of chats is made of, and whether a file that says it is one has that.

A file may come from anywhere, with triggers and views that run on our statements, and tables that only look like ours.
"""

from __future__ import annotations

import functools
import logging
import sqlite3

log = logging.getLogger(__name__)

#: Step n brings a file from version n to n + 1. Steps are never changed once released, only added.
MIGRATIONS = (
    """
    CREATE TABLE chats (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        title TEXT NOT NULL,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        deleted REAL,
        leaf_id INTEGER
    );
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        chat_id INTEGER NOT NULL REFERENCES chats(id) ON DELETE CASCADE,
        parent_id INTEGER REFERENCES messages(id) ON DELETE CASCADE,
        role TEXT NOT NULL,
        text TEXT NOT NULL,
        created REAL NOT NULL,
        model TEXT NOT NULL,
        thought_s REAL,
        stats TEXT,
        stop_reason TEXT,
        error TEXT,
        indexed INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX messages_tree ON messages(chat_id, parent_id);
    CREATE INDEX messages_parent ON messages(parent_id);
    CREATE INDEX messages_unindexed ON messages(id) WHERE indexed = 0;
    """,
    """
    ALTER TABLE chats ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE chats ADD COLUMN folder TEXT NOT NULL DEFAULT '';
    ALTER TABLE chats ADD COLUMN draft TEXT NOT NULL DEFAULT '';
    ALTER TABLE chats ADD COLUMN settings TEXT NOT NULL DEFAULT '';
    ALTER TABLE chats ADD COLUMN model_path TEXT NOT NULL DEFAULT '';
    ALTER TABLE messages ADD COLUMN deleted REAL;
    CREATE TABLE attachments (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        message_id INTEGER NOT NULL REFERENCES messages(id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        text TEXT NOT NULL,
        length INTEGER NOT NULL
    );
    CREATE INDEX attachments_message ON attachments(message_id);
    CREATE TABLE notes (key TEXT PRIMARY KEY, value TEXT NOT NULL);
    """,
    """
    ALTER TABLE attachments ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX attachments_unindexed ON attachments(id) WHERE indexed >= 0;
    """,
    """
    CREATE INDEX messages_last ON messages(substr(text, -1));
    CREATE INDEX messages_last_two ON messages(substr(text, -2));
    CREATE INDEX attachments_last ON attachments(substr(text, -1));
    CREATE INDEX attachments_last_two ON attachments(substr(text, -2));
    """,
)

#: Numbers of chats and messages, which the window hands on as 32-bit integers; a file never gets near the last one.
LAST_ID = 2**31 - 2
_TABLES = ("chats", "messages", "attachments", "notes")


def distrust(db: sqlite3.Connection) -> None:
    """What the file itself defines may call no function with effects, and damaged pages are found when they are read.

    Extensions stay off, as Python leaves them.
    """
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")


def upgrade(db: sqlite3.Connection) -> None:
    """Bring a file to the present version, within a transaction that writes from its start: others may do it too."""
    for number in range(db.execute("PRAGMA user_version").fetchone()[0], len(MIGRATIONS)):
        for statement in MIGRATIONS[number].split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {number + 1}")


def fault(db: sqlite3.Connection) -> str:
    """What is wrong with the tables of a file that says it is of the present version; "" for nothing."""
    if missing := _columns(_pattern()) - _columns(db):
        return f"it lacks {sorted(missing)}"
    for table in ("chats", "messages", "attachments"):
        low, high = db.execute(f"SELECT MIN(id), MAX(id) FROM {table}").fetchone()
        last = db.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        numbers = [number for number in (low, high, *(last or ())) if number is not None]
        if not all(isinstance(number, int) and 0 <= number <= LAST_ID for number in numbers):
            return f"the numbers of {table} are out of range"
    return ""


def remove_foreign(db: sqlite3.Connection) -> None:
    """Drop triggers, views and indexes that no program of ours has made, and make the indexes that are missing."""
    own, found = _additions(_pattern()), _additions(db)
    for key in found.keys() - own.keys():
        kind, name = key[:2]
        log.warning("the chat file has a foreign %s, which is dropped: %r", kind, name)
        quoted = name.replace('"', '""')
        db.execute(f'DROP {kind.upper()} "{quoted}"')
    for key in own.keys() - found.keys():
        db.execute(own[key])


def _columns(db: sqlite3.Connection) -> set[tuple[str, str, str, int, int]]:
    """(table, name, type, not null, place in the key); a view has no key."""
    return {
        (table, *row)
        for table in _TABLES
        for row in db.execute('SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (table,))
    }


def _additions(db: sqlite3.Connection) -> dict[tuple[str, str, str], str]:
    """What was made beside the tables: the statements by kind, name and, white space aside, the statement."""
    rows = db.execute(
        "SELECT type, name, sql FROM main.sqlite_schema WHERE type IN ('trigger', 'view', 'index') AND sql IS NOT NULL"
    )
    return {(kind, name, " ".join(sql.split())): sql for kind, name, sql in rows}


@functools.cache
def _pattern() -> sqlite3.Connection:
    """An empty file of the present version, in memory."""
    db = sqlite3.connect(":memory:", check_same_thread=False)
    upgrade(db)
    return db
