"""Where chats are kept: one SQLite file. Only this module knows SQL.

Messages form a tree: a regenerated answer or an edited question is a sibling of the old one, so nothing is overwritten.
A chat shows one path through its tree, from the root to `leaf_id`.

Calls take far less than 10 ms on everyday histories, so the UI thread makes them directly.
"""

from __future__ import annotations

import functools
import json
import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from app.tasks import alive
from engine.errors import GreenroomError
from engine.runtime.events import GenerationStats

log = logging.getLogger(__name__)

TITLE_LENGTH = 60

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
)

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class ChatInfo:
    """One line of the chat list. Times are seconds since the epoch."""

    id: int
    title: str
    created: float
    updated: float


@dataclass(frozen=True)
class StoredMessage:
    """One message of the visible path.

    stop_reason: a key of STOP_REASONS; None for a question, an answer being written, and one cut off by a crash.
    version, versions: its 1-based place among the siblings that could stand here, and their number.
    thought_s: seconds spent in the thinking section, None while unknown.
    """

    id: int
    chat_id: int
    parent_id: int | None
    role: str
    text: str
    model: str
    thought_s: float | None
    stats: GenerationStats | None
    stop_reason: str | None
    error: GreenroomError | None
    version: int
    versions: int


def title_of(text: str) -> str:
    """A chat's title from its first question: the first line that says something, cut at a word."""
    lines = (" ".join(line.strip(" \t#>*-`").split()) for line in text.splitlines())
    line = next((line for line in lines if line), "")
    if not line:
        return "New chat"
    if len(line) <= TITLE_LENGTH:
        return line
    head = line[:TITLE_LENGTH]
    # Languages without spaces have no word to cut at.
    return (head.rsplit(" ", 1)[0] if " " in head[TITLE_LENGTH // 2 :] else head).rstrip(" ,.;:") + "…"


def _saves(method: Callable[Concatenate[ChatStore, P], R]) -> Callable[Concatenate[ChatStore, P], R]:
    """Run a method as one transaction; when the file can no longer be written, move to memory and run it again."""

    @functools.wraps(method)
    def run(self: ChatStore, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with self._db:
                return method(self, *args, **kwargs)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise GreenroomError(
                    "The chat could not be saved", "another program is using the chat file", "Try again."
                ) from error
            self._continue_in_memory(error)
            with self._db:
                return method(self, *args, **kwargs)

    return run


class ChatStore:
    """The chats in the file `path`. Never fails to open: what went wrong is in `problem`, and memory stands in.

    Use it from one thread. Listeners are called with the id of the chat whose line in the list changed.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        #: Why chats are kept in memory only; None when all is well.
        self.problem: GreenroomError | None = None
        self._listeners: list[Callable[[int], None]] = []
        self._closed = False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = self._prepare(sqlite3.connect(self.path, timeout=1.0))
        except GreenroomError as error:
            self.problem = error
            self._db = self._prepare(sqlite3.connect(":memory:"))
        except (OSError, sqlite3.Error) as error:
            self.problem = self._explain(error)
            self._db = self._prepare(self._readable_copy())

    def close(self) -> None:
        """Drop deleted chats for good and close the file. The store is unusable afterwards; closing again is fine."""
        if self._closed:
            return
        self._closed = True
        try:
            self.purge()
        except (GreenroomError, sqlite3.Error):
            log.warning("Deleted chats stay until the next start", exc_info=True)
        self._db.close()

    @property
    def closed(self) -> bool:
        return self._closed

    def subscribe(self, listener: Callable[[int], None]) -> None:
        """A method of a widget is called for as long as the widget lives."""
        self._listeners.append(listener)

    # Chats

    def chats(self, query: str = "") -> list[ChatInfo]:
        """Chats by last change, newest first. Each word of `query` must occur in the title or in a message."""
        where, values = "deleted IS NULL", []
        for word in query.split():
            condition, found = self._occurs(word)
            where += f" AND (title LIKE ? ESCAPE '\\' OR {condition})"
            values += [_like(word), found]
        rows = self._db.execute(
            f"SELECT id, title, created, updated FROM chats WHERE {where} ORDER BY updated DESC, id DESC", values
        )
        return [ChatInfo(*row) for row in rows]

    def title(self, chat_id: int) -> str | None:
        """The title, or None when there is no such chat (any more)."""
        row = self._db.execute("SELECT title FROM chats WHERE id = ? AND deleted IS NULL", (chat_id,)).fetchone()
        return None if row is None else str(row[0])

    @_saves
    def _create_chat(self, title: str) -> int:
        now = time.time()
        cursor = self._db.execute("INSERT INTO chats(title, created, updated) VALUES (?, ?, ?)", (title, now, now))
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def create_chat(self, first_question: str) -> int:
        """A new chat titled after its first question. Returns its id."""
        chat_id = self._create_chat(title_of(first_question))
        self._tell(chat_id)
        return chat_id

    def rename(self, chat_id: int, title: str) -> None:
        """An empty title changes nothing."""
        title = " ".join(title.split())
        if title:
            self._set("UPDATE chats SET title = ? WHERE id = ?", title, chat_id)
            self._tell(chat_id)

    def delete(self, chat_id: int) -> None:
        """Hide a chat. `restore` brings it back until `purge` or `close`."""
        self._set("UPDATE chats SET deleted = ? WHERE id = ?", time.time(), chat_id)
        self._tell(chat_id)

    def restore(self, chat_id: int) -> None:
        self._set("UPDATE chats SET deleted = NULL WHERE id = ?", chat_id)
        self._tell(chat_id)

    @_saves
    def purge(self) -> None:
        """Remove deleted chats for good."""
        gone = "SELECT id FROM chats WHERE deleted IS NOT NULL"
        if self._searchable:
            self._db.execute(
                "INSERT INTO search(search, rowid, text) SELECT 'delete', id, text FROM messages "
                f"WHERE indexed = 1 AND chat_id IN ({gone})"
            )
        self._db.execute(f"DELETE FROM messages WHERE chat_id IN ({gone})")
        self._db.execute("DELETE FROM chats WHERE deleted IS NOT NULL")

    # Messages

    def messages(self, chat_id: int) -> list[StoredMessage]:
        """The visible messages of a chat, first to last."""
        rows = self._db.execute(
            """
            WITH RECURSIVE visible(id, depth) AS (
                SELECT leaf_id, 0 FROM chats WHERE id = ?1 AND leaf_id IS NOT NULL
                UNION ALL
                SELECT m.parent_id, depth + 1 FROM visible JOIN messages m ON m.id = visible.id
                WHERE m.parent_id IS NOT NULL
            )
            SELECT m.id, m.chat_id, m.parent_id, m.role, m.text, m.model, m.thought_s, m.stats, m.stop_reason, m.error,
                (SELECT COUNT(*) FROM messages s
                 WHERE s.chat_id = ?1 AND s.parent_id IS m.parent_id AND s.id <= m.id),
                (SELECT COUNT(*) FROM messages s WHERE s.chat_id = ?1 AND s.parent_id IS m.parent_id)
            FROM visible JOIN messages m ON m.id = visible.id ORDER BY depth DESC
            """,
            (chat_id,),
        )
        return [StoredMessage(*row[:7], _stats(row[7]), row[8], _error(row[9]), *row[10:]) for row in rows]

    @_saves
    def _add(self, chat_id: int, parent_id: int | None, role: str, text: str, model: str) -> int:
        now = time.time()
        message_id = self._db.execute(
            "INSERT INTO messages(chat_id, parent_id, role, text, created, model) VALUES (?, ?, ?, ?, ?, ?)",
            (chat_id, parent_id, role, text, now, model),
        ).lastrowid
        assert message_id is not None
        if text:
            self._index(message_id)
        self._db.execute("UPDATE chats SET leaf_id = ?, updated = ? WHERE id = ?", (message_id, now, chat_id))
        return message_id

    def add_message(self, chat_id: int, parent_id: int | None, role: str, text: str = "", model: str = "") -> int:
        """Append a message below `parent_id` and make it the end of the visible path. Returns its id."""
        message_id = self._add(chat_id, parent_id, role, text, model)
        self._tell(chat_id)
        return message_id

    @_saves
    def set_text(self, message_id: int, text: str) -> None:
        """Save an answer so far."""
        self._replace_text(message_id, text)

    @_saves
    def finish(
        self,
        message_id: int,
        text: str,
        stats: GenerationStats | None,
        stop_reason: str,
        error: GreenroomError | None = None,
        thought_s: float | None = None,
    ) -> None:
        """Save a whole answer with how it went."""
        self._replace_text(message_id, text)
        self._db.execute(
            "UPDATE messages SET stats = ?, stop_reason = ?, error = ?, thought_s = ? WHERE id = ?",
            (
                json.dumps(asdict(stats)) if stats else None,
                stop_reason,
                json.dumps([error.what, error.why, error.remedy]) if error else None,
                thought_s,
                message_id,
            ),
        )
        self._index(message_id)

    @_saves
    def show_version(self, message_id: int, step: int) -> None:
        """Page to the sibling `step` places on; the visible path then runs to the newest message below it."""
        siblings = [
            row[0]
            for row in self._db.execute(
                "SELECT s.id FROM messages s JOIN messages m ON s.chat_id = m.chat_id AND s.parent_id IS m.parent_id "
                "WHERE m.id = ? ORDER BY s.id",
                (message_id,),
            )
        ]
        place = siblings.index(message_id) + step
        leaf = siblings[max(0, min(place, len(siblings) - 1))]
        newest_child = "SELECT MAX(id) FROM messages WHERE parent_id = ?"
        while (child := self._db.execute(newest_child, (leaf,)).fetchone()[0]) is not None:
            leaf = child
        self._db.execute(
            "UPDATE chats SET leaf_id = ? WHERE id = (SELECT chat_id FROM messages WHERE id = ?)", (leaf, leaf)
        )

    # Inside

    @_saves
    def _set(self, sql: str, *values: object) -> None:
        self._db.execute(sql, values)

    def _tell(self, chat_id: int) -> None:
        self._listeners = [listener for listener in self._listeners if alive(listener)]
        for listener in self._listeners:
            listener(chat_id)

    def _occurs(self, word: str) -> tuple[str, str]:
        """A condition on `chats` that is true where a message contains `word`, and the value it is bound to."""
        # The trigram index knows nothing shorter than three characters, and two are a whole word in Korean or Chinese.
        if self._searchable and len(word) >= 3:
            found = "SELECT rowid FROM search WHERE search MATCH ?"
            value = '"' + word.replace('"', '""') + '"'
        else:
            found = "SELECT id FROM messages WHERE text LIKE ? ESCAPE '\\'"
            value = _like(word)
        return f"id IN (SELECT chat_id FROM messages WHERE id IN ({found}))", value

    def _replace_text(self, message_id: int, text: str) -> None:
        if self._searchable:
            # Another window may have indexed what it took for a cut-off answer; the index must be told the old text.
            self._db.execute(
                "INSERT INTO search(search, rowid, text) SELECT 'delete', id, text FROM messages "
                "WHERE id = ? AND indexed = 1",
                (message_id,),
            )
        self._db.execute("UPDATE messages SET text = ?, indexed = 0 WHERE id = ?", (text, message_id))

    def _index(self, message_id: int) -> None:
        if self._searchable:
            row = self._db.execute("SELECT indexed, text FROM messages WHERE id = ?", (message_id,)).fetchone()
            if row is not None and not row[0]:
                self._db.execute("INSERT INTO search(rowid, text) VALUES (?, ?)", (message_id, row[1]))
                self._db.execute("UPDATE messages SET indexed = 1 WHERE id = ?", (message_id,))

    def _prepare(self, db: sqlite3.Connection) -> sqlite3.Connection:
        """Bring a connection to the present schema. Raises GreenroomError for a file of a newer program."""
        db.execute("PRAGMA foreign_keys = ON")
        # With a write-ahead log a killed process loses nothing that was committed, without waiting for the disk.
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            db.close()
            raise GreenroomError(
                "The saved chats were left alone",
                f"{self.path} was written by a newer Greenroom",
                "Update Greenroom to see them. Chats of this session are not saved.",
            )
        for number in range(version, len(MIGRATIONS)):
            db.executescript(f"BEGIN; {MIGRATIONS[number]} PRAGMA user_version = {number + 1}; COMMIT;")
        with db:  # also finds out whether the file can be written
            db.execute("UPDATE chats SET deleted = deleted WHERE id = 0")
        self._db = db
        self._searchable = self._make_search(db)
        if self._searchable:
            with db:
                for (message_id,) in db.execute("SELECT id FROM messages WHERE indexed = 0 AND text != ''").fetchall():
                    self._index(message_id)
        return db

    @staticmethod
    def _make_search(db: sqlite3.Connection) -> bool:
        """Whether this SQLite has the full-text index with trigrams (FTS5, from 3.34)."""
        try:
            db.execute(
                "CREATE VIRTUAL TABLE IF NOT EXISTS search "
                "USING fts5(text, content = 'messages', content_rowid = 'id', tokenize = 'trigram')"
            )
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
            log.info("No full-text index (%s): searching chats reads every message", error)
            return False
        return True

    def _readable_copy(self) -> sqlite3.Connection:
        """What can be read of a file that cannot be written, in memory."""
        memory = sqlite3.connect(":memory:")
        try:
            if self.path.is_file():
                source = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
                source.backup(memory)
                source.close()
                memory.execute("SELECT COUNT(*) FROM sqlite_schema")
        except (OSError, sqlite3.Error):
            log.warning("The chat file cannot be read either", exc_info=True)
            memory.close()
            memory = sqlite3.connect(":memory:")
        return memory

    def _continue_in_memory(self, error: sqlite3.Error) -> None:
        log.error("The chat file cannot be written any more: %s", error)
        memory = sqlite3.connect(":memory:")
        try:
            self._db.backup(memory)
            self._db.close()
        except sqlite3.Error as second:
            raise self._explain(error) from second
        self._db = memory
        self._db.execute("PRAGMA foreign_keys = ON")
        self.problem = self._explain(error)
        self._tell(0)

    def _explain(self, error: Exception) -> GreenroomError:
        code = getattr(error, "sqlite_errorcode", None)
        primary = code & 0xFF if code is not None else None
        folder = self.path.parent
        if primary in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return GreenroomError(
                "The saved chats cannot be read, so new ones are not saved",
                f"{self.path} is damaged",
                "Move that file elsewhere and start Greenroom again.",
            )
        why = f"{folder} cannot be written"
        remedy = "Make that folder writable and start Greenroom again."
        if primary == sqlite3.SQLITE_FULL:
            why, remedy = f"the disk of {folder} is full", "Free some space and start Greenroom again."
        elif primary == sqlite3.SQLITE_BUSY:
            why, remedy = f"another program is using {self.path}", "Close that program and start Greenroom again."
        elif isinstance(error, OSError) and error.strerror:
            why = f"{folder} cannot be used ({error.strerror.lower()})"
        return GreenroomError("Chats are not saved", why, remedy)


def _like(word: str) -> str:
    for special in ("\\", "%", "_"):
        word = word.replace(special, "\\" + special)
    return f"%{word}%"


def _stats(text: str | None) -> GenerationStats | None:
    if text is None:
        return None
    known: dict[str, Any] = json.loads(text)
    # A file may carry fields of another version of the program.
    return GenerationStats(**{k: v for k, v in known.items() if k in GenerationStats.__dataclass_fields__})


def _error(text: str | None) -> GreenroomError | None:
    return None if text is None else GreenroomError(*json.loads(text))
