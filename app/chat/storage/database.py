"""The file that chats are kept in: its schema, how it is opened, and what happens when it cannot be written."""

from __future__ import annotations

import functools
import logging
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from app.chat.storage import file_index, schema
from app.chat.storage.connection import Connection, StandIn, connect
from app.language import tr
from app.tasks import alive
from engine.errors import GreenroomError
from engine.folders import make_private, make_private_database
from engine.sqlite_file import PATIENCE_S, immediate, use_write_ahead_log

log = logging.getLogger(__name__)

#: Bytes of a file that is read through once when it is opened, to find damage before anything is shown.
CHECKED = 64_000_000
#: Characters of a message that the index takes in; a longer one is read when something is looked for. Where no three
#: are alike, more of them take seconds.
MOST_INDEXED = 100_000
#: Characters that are indexed when a file is opened or chats come in, and what a message counts besides its own; the
#: rest follows while there is nothing else to do.
AT_ONCE, MESSAGE = 200_000, 200
#: Milliseconds that an open file waits for another window: longer would hold up this one.
BUSY_MS = 1000
#: Between two tries to write a file that could not be written, and how long a try waits for another window.
RETRY_S, RETRY_PATIENCE_S = 5.0, 0.1
_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR)

P = ParamSpec("P")
R = TypeVar("R")
Opened = TypeVar("Opened", bound="Database")


def saves(method: Callable[Concatenate[Opened, P], R]) -> Callable[Concatenate[Opened, P], R]:
    """Run a method as one transaction, in memory when the file can no longer be written."""

    @functools.wraps(method)
    def run(self: Opened, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with self._db:
                return method(self, *args, **kwargs)
        except sqlite3.IntegrityError as error:
            raise GreenroomError(
                tr("The chat could not be saved"), tr("it was deleted in another window"), tr("Choose another chat.")
            ) from error
        except (sqlite3.OperationalError, sqlite3.DatabaseError) as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise GreenroomError(
                    tr("The chat could not be saved"), tr("another program is using the chat file"), tr("Try again.")
                ) from error
            if is_index(error):
                self._give_up_index(error)
            else:
                self._continue_in_memory(error)
            with self._db:
                return method(self, *args, **kwargs)

    return run


class Database:
    """An open file, or memory in place of it while it cannot be written: `problem` then says why, and
    `look_for_changes` tries again. Never fails to open. For one thread.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        #: Why chats are kept in memory only; None when all is well.
        self.problem: GreenroomError | None = None
        self._retries = True
        self._next_try = 0.0
        self._listeners: list[Callable[[int], None]] = []
        self._closed = False
        try:
            self._open_file(PATIENCE_S)
        except (GreenroomError, OSError, sqlite3.Error, ValueError) as error:
            log.error("The chat file cannot be used: %s", error)
            self._set_problem(error)
            memory = StandIn() if isinstance(error, GreenroomError) else self._readable_copy()
            try:
                self._prepare(memory)
            except (GreenroomError, sqlite3.Error, ValueError):
                log.warning("What could be read of the chat file cannot be used", exc_info=True)
                memory = StandIn()
                self._prepare(memory)
            memory.remember()
        #: SQLite's, of the file as it was when it was looked at last: now, before anybody reads a chat.
        self._version: int = self._db.execute("PRAGMA data_version").fetchone()[0]

    def _open_file(self, patience_s: float) -> None:
        make_private(self.path.parent)
        with suppress(OSError):  # SQLite says what is wrong
            make_private_database(self.path)
        file = connect(self.path, timeout=patience_s)
        try:
            self._prepare(file, patience_s)
        except BaseException:
            file.close()
            raise
        file.execute(f"PRAGMA busy_timeout = {BUSY_MS}")

    @property
    def closed(self) -> bool:
        return self._closed

    def subscribe(self, listener: Callable[[int], None]) -> None:
        """listener: called with the id of each chat whose line in the list has changed; 0 for any of them.

        A method of a widget is called for as long as the widget lives.
        """
        self._listeners.append(listener)

    def _tell(self, chat_id: int) -> None:
        self._listeners = [listener for listener in self._listeners if alive(listener)]
        for listener in self._listeners:
            listener(chat_id)

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
            fits = f"indexed = 0 AND typeof(text) = 'text' AND length(text) <= {MOST_INDEXED}"
            self._db.execute(
                f"INSERT INTO search(rowid, text) SELECT id, text FROM messages WHERE id = ? AND {fits}", (message_id,)
            )
            self._db.execute(f"UPDATE messages SET indexed = 1 WHERE id = ? AND {fits}", (message_id,))

    def _give_up_index(self, error: sqlite3.Error) -> None:
        """Search without the damaged index from now on; it is made again when the file is opened next."""
        log.error("The full-text index is damaged: %s", error)
        self._searchable = False
        try:
            with self._db:
                for index in ("search_terms", "search", "file_search_terms", "file_search"):
                    self._db.execute(f"DROP TABLE IF EXISTS {index}")
                self._db.execute("UPDATE messages SET indexed = 0 WHERE indexed != 0")
                self._db.execute("UPDATE attachments SET indexed = 0 WHERE indexed != 0")
        except sqlite3.Error:
            log.warning("The damaged index could not be removed", exc_info=True)

    @saves
    def index_next(self) -> bool:
        """Make some more of what was imported or attached searchable: a few milliseconds. False when all is."""
        if self.problem is not None:
            return False
        return self._searchable and (self._index_waiting(file_index.PIECE) or file_index.take_next(self._db))

    def _index_waiting(self, most: int, unfinished: bool = False) -> bool:
        """Take in messages that wait, about so many characters. False when none did.

        unfinished: also answers that somebody may still be writing
        """
        done = "1" if unfinished else "(role != 'assistant' OR stop_reason IS NOT NULL)"
        rows = self._db.execute(
            f"SELECT id, length(text) FROM messages WHERE indexed = 0 AND id > ? AND text != '' AND {done} "
            "ORDER BY id LIMIT ?",
            (self._passed, most // MESSAGE),
        ).fetchall()
        for message_id, length in rows:
            self._index(message_id)
            self._passed = message_id
            most -= MESSAGE + length
            if most < 0:
                break
        return bool(rows)

    def look_for_changes(self) -> None:
        """Tell the listeners when another program has changed the file since this, or the opening, looked last."""
        if self.problem is not None:
            if time.monotonic() >= self._next_try:
                self._write_pending()
            return
        try:
            version = self._db.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            return
        before, self._version = self._version, version
        if before != version:
            self._tell(0)

    def _prepare(self, db: Connection, patience_s: float = PATIENCE_S) -> None:
        """Bring a connection to the present schema. Raises GreenroomError for a file of a newer program."""
        schema.distrust(db)
        db.execute("PRAGMA foreign_keys = ON")
        use_write_ahead_log(db, patience_s)
        db.execute("PRAGMA synchronous = NORMAL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > len(schema.MIGRATIONS):
            raise GreenroomError(
                tr("The saved chats were not opened"),
                tr("{path} was saved by a newer version of Greenroom", path=self.path),
                tr("Update Greenroom to see them. Chats in this session are not saved."),
            )
        if version < 0:
            raise _damaged("its version is negative")
        if self._pages(db) <= CHECKED and (found := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise _damaged(found)
        self._db = db
        #: Messages up to this one are indexed, or too long to be.
        self._passed = 0
        with immediate(db):  # also finds out whether the file can be written
            schema.upgrade(db)
            if wrong := schema.fault(db):  # a file may say its version and be another
                raise _damaged(wrong)
            schema.remove_foreign(db)
            db.execute("UPDATE chats SET deleted = deleted WHERE id = 0")
            self._searchable = self._make_search(db)
            if self._searchable:
                self._index_waiting(AT_ONCE, unfinished=True)

    @staticmethod
    def _pages(db: sqlite3.Connection) -> int:
        """Bytes of the file."""
        pages, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        return int(pages * size)

    @staticmethod
    def _make_search(db: sqlite3.Connection) -> bool:
        """Whether this SQLite has the full-text index with trigrams (FTS5, from 3.34)."""
        try:
            db.execute(
                "CREATE VIRTUAL TABLE IF NOT EXISTS search "
                "USING fts5(text, content = 'messages', content_rowid = 'id', tokenize = 'trigram')"
            )
            db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS search_terms USING fts5vocab('search', 'row')")
            file_index.make(db)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
            log.info("No full-text index (%s): searching chats reads every message", error)
            return False
        return True

    # While the file cannot be written

    @property
    def unsaved(self) -> bool:
        """Whether something would be lost if the program ended now."""
        return isinstance(self._db, StandIn) and bool(self._db.pending)

    def save_now(self) -> bool:
        """Whether nothing would be lost now: what is unsaved is tried once more."""
        return not self.unsaved or self._write_pending()

    def _readable_copy(self) -> StandIn:
        """What can be read of a file that cannot be written."""
        if self.path.is_file():
            # What a killed program left beside the file is read as well, where that can be done.
            for how in ("mode=ro", "mode=ro&immutable=1"):
                memory = StandIn()
                try:
                    source = connect(f"{self.path.absolute().as_uri()}?{how}", uri=True)
                    source.backup(memory)
                    source.close()
                    memory.execute("SELECT COUNT(*) FROM sqlite_schema")
                except (OSError, sqlite3.Error):
                    log.warning("The chat file cannot be read either", exc_info=True)
                    memory.close()
                else:
                    return memory
        return StandIn()

    def _continue_in_memory(self, error: sqlite3.Error) -> None:
        if isinstance(self._db, StandIn):
            raise error
        log.error("The chat file cannot be written any more: %s", error)
        self._set_problem(error)
        memory = StandIn()
        try:
            self._db.backup(memory)
        except sqlite3.Error as second:
            raise self.problem from second
        self._db.close()
        self._db = memory
        schema.distrust(memory)
        memory.execute("PRAGMA foreign_keys = ON")
        memory.remember()
        self._next_try = time.monotonic() + RETRY_S
        self._tell(0)

    def _write_pending(self) -> bool:
        """Go back to the file, with what is in memory only. False while that cannot be done."""
        memory, searchable = self._db, self._searchable
        if not isinstance(memory, StandIn) or not self._retries:
            return False
        try:
            self._open_file(RETRY_PATIENCE_S)
            with immediate(self._db):
                memory.write_to(self._db)
            self._version = self._db.execute("PRAGMA data_version").fetchone()[0]
        except (GreenroomError, OSError, sqlite3.Error, ValueError) as error:
            log.info("The chat file cannot be written yet: %s", error)
            if self._db is not memory:
                self._db.close()
            self._db, self._searchable = memory, searchable
            self._next_try = time.monotonic() + RETRY_S
            return False
        memory.close()
        self.problem = None
        log.info("The chats are saved again")
        self._tell(0)
        return True

    def _set_problem(self, error: Exception) -> None:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT if isinstance(error, ValueError) else None)
        primary = code & 0xFF if code is not None else None
        folder = self.path.parent
        if isinstance(error, GreenroomError):
            self.problem, self._retries = error, False
            return
        if primary in _DAMAGED:
            # Another file in its place would lack the chats that messages are for.
            self._retries = False
            self.problem = GreenroomError(
                tr("The saved chats cannot be read, so new ones are not saved"),
                tr("{path} is damaged", path=self.path),
                tr("Move that file elsewhere and restart Greenroom."),
            )
            return
        why = tr("Greenroom cannot write to {folder}", folder=folder)
        remedy = tr("Make that folder writable. Greenroom then saves everything.")
        if primary == sqlite3.SQLITE_FULL or (primary == sqlite3.SQLITE_IOERR and _is_full(folder)):
            why = tr("the disk with {folder} is full", folder=folder)
            remedy = tr("Free some disk space. Greenroom then saves everything.")
        elif primary == sqlite3.SQLITE_BUSY:
            why = tr("another program is using {path}", path=self.path)
            remedy = tr("Close that program. Greenroom then saves everything.")
        elif isinstance(error, OSError) and error.strerror:
            why = tr("{folder} cannot be used ({reason})", folder=folder, reason=error.strerror.lower())
        self.problem = GreenroomError(tr("Chats are not being saved"), why, remedy)


def _is_full(folder: Path) -> bool:
    """SQLite does not say so where the disk has no space for the files beside its own."""
    try:
        return shutil.disk_usage(folder).free < 1 << 16
    except OSError:
        return False


def is_index(error: sqlite3.Error) -> bool:
    """Whether a full-text index is damaged, not the chats."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_CORRUPT_VTAB


def _damaged(why: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(why)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error
