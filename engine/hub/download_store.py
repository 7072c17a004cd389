"""What is being downloaded, on disk: a SQLite file that survives kill -9 at any moment and two programs at once."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from engine.checkpoints.file_bytes import shown
from engine.errors import GreenroomError
from engine.folders import make_private, make_private_database
from engine.hub.download_rows import FINISHED, QUEUED, RUNNING, VERIFYING, StoredDownload, stored_download
from engine.hub.repository import RemoteModel
from engine.sqlite_file import PATIENCE_S, use_write_ahead_log
from engine.words import say

_log = logging.getLogger(__name__)

#: A list of thousands of downloads takes some MB.
_MOST_BYTES = 256_000_000
_MOST_ROWS, _MOST_FILES = 10_000, 1_000_000
_SCHEMA_VERSION = 1
#: Also what a list must be like to be read: anything else in it, a trigger say, was not made by Greenroom.
_SCHEMA = """
CREATE TABLE downloads (
    id INTEGER PRIMARY KEY,
    endpoint TEXT NOT NULL,
    repo TEXT NOT NULL,
    revision TEXT NOT NULL,
    label TEXT NOT NULL,
    name TEXT NOT NULL,
    form TEXT NOT NULL,
    folder TEXT NOT NULL,
    state TEXT NOT NULL,
    position INTEGER NOT NULL,
    error TEXT,
    notice TEXT NOT NULL DEFAULT '',
    owner TEXT
);
CREATE TABLE files (
    download INTEGER NOT NULL REFERENCES downloads(id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    path TEXT NOT NULL,
    nbytes INTEGER NOT NULL,
    sha256 TEXT,
    blob_id TEXT,
    etag TEXT NOT NULL DEFAULT '',
    verified INTEGER NOT NULL DEFAULT 0,
    safe_bytes INTEGER NOT NULL DEFAULT 0,
    boot TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (download, number)
);
"""


class DownloadStore:
    """One per program; several programs may have the same file open. Every call is one transaction.

    Rows that are damaged are left out, and stay as they are: `damaged` counts them.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._path = path
        self._set_aside: set[int] = set()
        try:
            make_private(path.parent)
            _check_file(path)
            make_private_database(path)
            self._db = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error) from error
        try:
            # What is no UTF-8 is looked at like any other text, and found wanting.
            self._db.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
            self._db.execute("PRAGMA trusted_schema = OFF")
            self._migrate()
            use_write_ahead_log(self._db)
            self._db.execute("PRAGMA foreign_keys = ON")
            self._read()
        except sqlite3.Error as error:
            self._db.close()
            raise self._unusable(error) from error
        process = psutil.Process()
        self._owner = f"{process.pid}:{process.create_time():.2f}"

    @property
    def damaged(self) -> int:
        """Downloads that were left out so far."""
        return len(self._set_aside)

    def close(self) -> None:
        """Gives up everything this program had claimed."""
        with self._lock:
            try:
                self._db.execute("UPDATE downloads SET owner = NULL WHERE owner = ?", (self._owner,))
            except sqlite3.Error as error:
                _log.warning("%s: %s", self._path, error)
            self._db.close()

    def add(self, endpoint: str, model: RemoteModel, folder: Path) -> int:
        """A new download at the end of the queue, or the unfinished one of the same model: its id.

        Raises GreenroomError for a model that cannot be what a listing says.
        """
        with self._transaction() as db:
            known = self._rows()
            for stored in known:
                same = (stored.model.repo, stored.model.name, stored.folder) == (model.repo, model.name, folder)
                if same and stored.state != FINISHED:
                    return stored.id
            last = max((stored.position for stored in known), default=0)
            facts = (endpoint, model.repo, model.commit, model.label, model.name, model.form, str(folder))
            cursor = db.execute(
                "INSERT INTO downloads (endpoint, repo, revision, label, name, form, folder, state, position) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*facts, QUEUED, last + 1),
            )
            # Damage can leave files of no download behind.
            db.execute("DELETE FROM files WHERE download = ?", (cursor.lastrowid,))
            db.executemany(
                "INSERT INTO files (download, number, path, nbytes, sha256, blob_id) VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (cursor.lastrowid, number, file.path, file.nbytes, file.sha256, file.blob_id)
                    for number, file in enumerate(model.files)
                ],
            )
            download = int(cursor.lastrowid or 0)
            if all(stored.id != download for stored in self._rows()):
                self._set_aside.discard(download)
                raise GreenroomError(
                    say("{name} is not downloaded", name=shown(model.name)),
                    say("what the hub says of it is no model's description"),
                    say("Choose another repository."),
                )
            return download

    def all(self) -> list[StoredDownload]:
        """In the order of the queue."""
        try:
            return self._read()
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def get(self, download: int) -> StoredDownload:
        """Raises KeyError when there is no such download."""
        for found in self.all():
            if found.id == download:
                return found
        raise KeyError(download)

    def claim(self, download: int) -> bool:
        """Make it ours. False while another running program has it."""
        with self._transaction() as db:
            row = db.execute("SELECT owner FROM downloads WHERE id = ?", (download,)).fetchone()
            if row is None or (isinstance(row[0], str) and row[0] != self._owner and _is_running(row[0])):
                return False
            db.execute("UPDATE downloads SET owner = ? WHERE id = ?", (self._owner, download))
            return True

    def release(self, download: int) -> None:
        self._update("downloads", "owner = NULL WHERE id = ? AND owner = ?", download, self._owner)

    def abandoned(self) -> list[int]:
        """Downloads that a program had in hand when it ended without a word."""
        return [
            stored.id
            for stored in self.all()
            if stored.state in (RUNNING, VERIFYING)
            and stored.owner != self._owner
            and not (stored.owner and _is_running(stored.owner))
        ]

    def set_state(self, download: int, state: str, error: GreenroomError | None = None) -> None:
        text = None if error is None else json.dumps([error.what, error.why, error.remedy])
        self._update("downloads", "state = ?, error = ? WHERE id = ?", state, text, download)

    def set_notice(self, download: int, notice: str) -> None:
        self._update("downloads", "notice = ? WHERE id = ?", notice, download)

    def set_etag(self, download: int, number: int, etag: str) -> None:
        self._update("files", "etag = ? WHERE download = ? AND number = ?", etag, download, number)

    def set_verified(self, download: int, number: int, verified: bool) -> None:
        self._update("files", "verified = ? WHERE download = ? AND number = ?", verified, download, number)

    def set_safe(self, download: int, number: int, nbytes: int, boot: str) -> None:
        self._update(
            "files", "safe_bytes = ?, boot = ? WHERE download = ? AND number = ?", nbytes, boot, download, number
        )

    def reorder(self, downloads: list[int]) -> None:
        """These first, in this order; the others behind them in theirs."""
        with self._transaction() as db:
            others = [stored.id for stored in self._rows()]
            order = [*downloads, *(other for other in others if other not in downloads)]
            db.executemany("UPDATE downloads SET position = ? WHERE id = ?", [(i, d) for i, d in enumerate(order)])

    def remove(self, download: int) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM downloads WHERE id = ?", (download,))

    def _update(self, table: str, change: str, *values: object) -> None:
        with self._transaction() as db:
            db.execute(f"UPDATE {table} SET {change}", values)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except BaseException as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error | UnicodeEncodeError):
                    raise GreenroomError(
                        say("The list of downloads cannot be written"),
                        str(error),
                        say("Free some space on the disk of Greenroom's data folder, then try again."),
                    ) from error
                raise

    def _read(self) -> list[StoredDownload]:
        with self._lock:
            # Both tables as they are at one moment.
            self._db.execute("BEGIN")
            try:
                return self._rows()
            finally:
                self._db.execute("COMMIT")

    def _rows(self) -> list[StoredDownload]:
        """Within a transaction: the downloads that are sound, in the order of the queue."""
        files: dict[object, list[tuple[object, ...]]] = {}
        for download, *file in self._db.execute(
            "SELECT download, number, path, nbytes, sha256, blob_id, etag, verified, safe_bytes, boot FROM files "
            "ORDER BY download, number LIMIT ?",
            (_MOST_FILES,),
        ):
            files.setdefault(download, []).append(tuple(file))
        found = []
        for row in self._db.execute(
            "SELECT id, endpoint, repo, revision, label, name, form, folder, state, position, error, notice, owner "
            "FROM downloads ORDER BY id LIMIT ?",
            (_MOST_ROWS,),
        ):
            try:
                found.append(stored_download(row, files.get(row[0], ())))
            except ValueError as error:
                if row[0] not in self._set_aside:
                    _log.warning("download %s in %s is left out: %s", row[0], self._path, error)
                self._set_aside.add(row[0])
        return sorted(found, key=lambda stored: (stored.position, stored.id))

    def _migrate(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > _SCHEMA_VERSION:
            raise sqlite3.DatabaseError("it was written by a newer Greenroom")
        wanted = sorted(_plain(sql) for sql in _SCHEMA.split(";") if sql.strip())
        if version == 0 and not self._tables():
            with self._transaction() as db:
                # Unless another program has made them meanwhile.
                if not self._tables():
                    for sql in wanted:
                        db.execute(sql)
                    db.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        if self._tables() != wanted:
            raise sqlite3.DatabaseError("its tables are not those of Greenroom")

    def _tables(self) -> list[str]:
        """How everything in the file was made."""
        rows = self._db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        # Names of this kind are SQLite's own.
        return sorted(_plain(sql) for name, sql in rows if not name.startswith("sqlite_"))

    def _unusable(self, error: Exception) -> GreenroomError:
        return GreenroomError(
            say("The list of downloads cannot be opened"),
            say("{path}: {error}", path=self._path, error=error),
            say("Check the folder's permissions and free space; a damaged list can be deleted, the files stay."),
        )


def _check_file(path: Path) -> None:
    """Raises OSError for what cannot be a list: opening a pipe would wait."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise OSError("it is not a regular file")
    if status.st_size > _MOST_BYTES:
        raise OSError("it is far too large")


def _plain(sql: str) -> str:
    return " ".join(sql.split())


def _is_running(owner: str) -> bool:
    """Whether the program that wrote this is still there: its process number alone may have gone to another."""
    pid, _, created = owner.partition(":")
    try:
        return f"{psutil.Process(int(pid)).create_time():.2f}" == created
    except (psutil.Error, ValueError, OSError, OverflowError):
        return False


def boot_id() -> str:
    """The same until the machine is started again: files written since then are what the program saw written."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        # Rounded, because the clock is adjusted now and then.
        return f"{os.name}-{round(psutil.boot_time() / 60)}"
