"""The file that chats are kept in: its schema, how it is opened, and what happens when it cannot be written."""

from __future__ import annotations

import functools
import logging
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from app.chat.storage import file_index, schema, unsaved
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
#: Bytes that must be free besides what the chats take, before a file whose disk was full is written again.
SPARE = 1_000_000

P = ParamSpec("P")
R = TypeVar("R")
Opened = TypeVar("Opened", bound="Database")


def saves(method: Callable[Concatenate[Opened, P], R]) -> Callable[Concatenate[Opened, P], R]:
    """Run a method as one transaction; when the file can no longer be written, move to memory and run it again."""

    @functools.wraps(method)
    def run(self: Opened, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with self._db:
                return method(self, *args, **kwargs)
        except sqlite3.IntegrityError as error:
            raise GreenroomError(
                tr("The chat could not be saved"), tr("another window has deleted it"), tr("Choose another chat.")
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


class _Connection(sqlite3.Connection):
    """What has no UTF-8, such as the name of a file that is none, is kept and read as "?"."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.text_factory = functools.partial(str, encoding="utf-8", errors="replace")

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        try:
            return super().execute(sql, values)
        except UnicodeEncodeError:
            return super().execute(
                sql, [v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for v in values]
            )


def _connect(path: Path | str, **options: Any) -> _Connection:
    return sqlite3.connect(path, factory=_Connection, **options)


class Database:
    """An open file, or memory that stands in for it: `problem` then says why. Never fails to open. For one thread."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        #: Why chats are kept in memory only; None when all is well.
        self.problem: GreenroomError | None = None
        #: The file, while its disk is full: what is in memory goes there as soon as there is room.
        self._left: sqlite3.Connection | None = None
        self._listeners: list[Callable[[int], None]] = []
        self._closed = False
        try:
            make_private(self.path.parent)
            with suppress(OSError):  # SQLite says what is wrong
                make_private_database(self.path)
            self._db = self._prepare(_connect(self.path, timeout=PATIENCE_S))
            self._db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        except GreenroomError as error:
            self.problem = error
            self._db = self._prepare(_connect(":memory:"))
        except (OSError, sqlite3.Error, ValueError) as error:
            log.error("The chat file cannot be used: %s", error)
            self.problem = self._explain(error, tr("Free some space and start Greenroom again."))
            try:
                self._db = self._prepare(self._readable_copy())
            except (GreenroomError, sqlite3.Error, ValueError):
                log.warning("What could be read of the chat file cannot be used", exc_info=True)
                self._db = self._prepare(_connect(":memory:"))
        if self.problem is not None:
            unsaved.watch(self._db)
        #: SQLite's, of the file as it was when it was looked at last: now, before anybody reads a chat.
        self._version: int = self._db.execute("PRAGMA data_version").fetchone()[0]

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
        if self._left is not None:
            self._go_back()
            return
        try:
            version = self._db.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            return
        before, self._version = self._version, version
        if before != version:
            self._tell(0)

    def _prepare(self, db: sqlite3.Connection) -> sqlite3.Connection:
        """Bring a connection to the present schema. Raises GreenroomError for a file of a newer program."""
        schema.distrust(db)
        db.execute("PRAGMA foreign_keys = ON")
        use_write_ahead_log(db)
        db.execute("PRAGMA synchronous = NORMAL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > len(schema.MIGRATIONS):
            db.close()
            raise GreenroomError(
                tr("The saved chats were left alone"),
                tr("{path} was written by a newer Greenroom", path=self.path),
                tr("Update Greenroom to see them. Chats of this session are not saved."),
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
        return db

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

    def _readable_copy(self) -> sqlite3.Connection:
        """What can be read of a file that cannot be written, in memory."""
        if self.path.is_file():
            # What a killed program left beside the file is read as well, where that can be done.
            for how in ("mode=ro", "mode=ro&immutable=1"):
                memory = _connect(":memory:")
                try:
                    source = _connect(f"{self.path.absolute().as_uri()}?{how}", uri=True)
                    source.backup(memory)
                    source.close()
                    memory.execute("SELECT COUNT(*) FROM sqlite_schema")
                except (OSError, sqlite3.Error):
                    log.warning("The chat file cannot be read either", exc_info=True)
                    memory.close()
                else:
                    return memory
        return _connect(":memory:")

    def _continue_in_memory(self, error: sqlite3.Error) -> None:
        log.error("The chat file cannot be written any more: %s", error)
        memory = _connect(":memory:")
        try:
            # What others have written until here is copied; whatever they write later shows.
            version = self._db.execute("PRAGMA data_version").fetchone()[0]
            self._db.backup(memory)
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL:
                self._left, self._version = self._db, version
            else:
                self._db.close()
        except sqlite3.Error as second:
            raise self._explain(error, tr("Free some space and start Greenroom again.")) from second
        self._db = memory
        self._db.execute("PRAGMA foreign_keys = ON")
        unsaved.watch(self._db)
        waits = tr("Free some space, and leave Greenroom open: all is saved as soon as there is room.")
        self.problem = self._explain(error, waits)
        self._tell(0)

    def _go_back(self) -> bool:
        """Bring what is in memory into the file, where there is room again. False while it cannot be done.

        A file that another program has changed meanwhile is left alone: what is here would take the place of that.
        """
        left, memory = self._left, self._db
        if left is None or memory.in_transaction:
            return False
        try:
            if shutil.disk_usage(self.path.parent).free < self._pages(memory) + SPARE:
                return False
            if left.execute("PRAGMA data_version").fetchone()[0] != self._version:
                return False
            memory.backup(left)
        except (OSError, sqlite3.Error) as error:
            log.info("The chat file cannot be written yet: %s", error)
            return False
        self._left, self._db, self.problem = None, left, None
        memory.close()
        log.info("The chats are saved again")
        self._tell(0)
        return True

    def _explain(self, error: Exception, when_full: str) -> GreenroomError:
        """when_full: what helps where the disk is full."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT if isinstance(error, ValueError) else None)
        primary = code & 0xFF if code is not None else None
        folder = self.path.parent
        if primary in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR):
            return GreenroomError(
                tr("The saved chats cannot be read, so new ones are not saved"),
                tr("{path} is damaged", path=self.path),
                tr("Move that file elsewhere and start Greenroom again."),
            )
        why = tr("{folder} cannot be written", folder=folder)
        remedy = tr("Make that folder writable and start Greenroom again.")
        if primary == sqlite3.SQLITE_FULL:
            why = tr("the disk of {folder} is full", folder=folder)
            remedy = when_full
        elif primary == sqlite3.SQLITE_BUSY:
            why = tr("another program is using {path}", path=self.path)
            remedy = tr("Close that program and start Greenroom again.")
        elif isinstance(error, OSError) and error.strerror:
            why = tr("{folder} cannot be used ({reason})", folder=folder, reason=error.strerror.lower())
        return GreenroomError(tr("Chats are not saved"), why, remedy)


def is_index(error: sqlite3.Error) -> bool:
    """Whether a full-text index is damaged, not the chats."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_CORRUPT_VTAB


def _damaged(why: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(why)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error
