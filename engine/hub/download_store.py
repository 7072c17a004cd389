"""What is being downloaded, on disk: a SQLite file that survives kill -9 at any moment and two programs at once."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from engine.errors import GreenroomError
from engine.hub.repository import RemoteFile, RemoteModel
from engine.words import say

_SCHEMA_VERSION = 1
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

QUEUED, RUNNING, VERIFYING, PAUSED, FAILED, FINISHED = (
    "queued",
    "downloading",
    "verifying",
    "paused",
    "failed",
    "finished",
)


@dataclass(frozen=True)
class StoredFile:
    """safe_bytes: forced to the disk during the boot named; after another boot only they can be trusted."""

    file: RemoteFile
    etag: str
    verified: bool
    safe_bytes: int
    boot: str


@dataclass(frozen=True)
class StoredDownload:
    """folder: where the repository's files go. error: what, why and remedy of the last failure."""

    id: int
    endpoint: str
    model: RemoteModel
    folder: Path
    state: str
    position: int
    error: tuple[str, str, str] | None
    notice: str
    files: tuple[StoredFile, ...]


class DownloadStore:
    """One per program; several programs may have the same file open. Every call is one transaction."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA foreign_keys = ON")
            self._migrate()
        except (OSError, sqlite3.Error) as error:
            raise GreenroomError(
                say("The list of downloads cannot be opened"),
                say("{path}: {error}", path=path, error=error),
                say("Check the folder's permissions and free space; a damaged list can be deleted, the files stay."),
            ) from error
        process = psutil.Process()
        self._owner = f"{process.pid}:{process.create_time():.2f}"

    def close(self) -> None:
        """Gives up everything this program had claimed."""
        with self._lock:
            self._db.execute("UPDATE downloads SET owner = NULL WHERE owner = ?", (self._owner,))
            self._db.close()

    def add(self, endpoint: str, model: RemoteModel, folder: Path) -> int:
        """A new download at the end of the queue, or the unfinished one of the same model: its id."""
        with self._transaction() as db:
            row = db.execute(
                "SELECT id FROM downloads WHERE repo = ? AND name = ? AND folder = ? AND state != ?",
                (model.repo, model.name, str(folder), FINISHED),
            ).fetchone()
            if row is not None:
                return int(row[0])
            cursor = db.execute(
                "INSERT INTO downloads (endpoint, repo, revision, label, name, form, folder, state, position) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, (SELECT COALESCE(MAX(position), 0) + 1 FROM downloads))",
                (endpoint, model.repo, model.commit, model.label, model.name, model.form, str(folder), QUEUED),
            )
            db.executemany(
                "INSERT INTO files (download, number, path, nbytes, sha256, blob_id) VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (cursor.lastrowid, number, file.path, file.nbytes, file.sha256, file.blob_id)
                    for number, file in enumerate(model.files)
                ],
            )
            return int(cursor.lastrowid or 0)

    def all(self) -> list[StoredDownload]:
        """In the order of the queue."""
        with self._lock:
            rows = self._db.execute("SELECT * FROM downloads ORDER BY position, id").fetchall()
            files: dict[int, list[StoredFile]] = {}
            for download, _, path, nbytes, sha256, blob_id, etag, verified, safe, boot in self._db.execute(
                "SELECT * FROM files ORDER BY download, number"
            ):
                file = StoredFile(RemoteFile(path, nbytes, sha256, blob_id), etag, bool(verified), safe, boot)
                files.setdefault(download, []).append(file)
        return [_download(row, tuple(files.get(row[0], ()))) for row in rows]

    def get(self, download: int) -> StoredDownload:
        """Raises KeyError when there is no such download."""
        return (
            next(found for found in self.all() if found.id == download) if self._has(download) else _missing(download)
        )

    def claim(self, download: int) -> bool:
        """Make it ours. False while another running program has it."""
        with self._transaction() as db:
            row = db.execute("SELECT owner FROM downloads WHERE id = ?", (download,)).fetchone()
            if row is None or (row[0] not in (None, self._owner) and _is_running(row[0])):
                return False
            db.execute("UPDATE downloads SET owner = ? WHERE id = ?", (self._owner, download))
            return True

    def release(self, download: int) -> None:
        self._update("downloads", "owner = NULL WHERE id = ? AND owner = ?", download, self._owner)

    def abandoned(self) -> list[int]:
        """Downloads that a program had in hand when it ended without a word."""
        with self._lock:
            rows = self._db.execute(
                "SELECT id, owner FROM downloads WHERE state IN (?, ?)", (RUNNING, VERIFYING)
            ).fetchall()
        return [row[0] for row in rows if row[1] is None or (row[1] != self._owner and not _is_running(row[1]))]

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
            others = [row[0] for row in db.execute("SELECT id FROM downloads ORDER BY position, id")]
            order = [*downloads, *(other for other in others if other not in downloads)]
            db.executemany("UPDATE downloads SET position = ? WHERE id = ?", [(i, d) for i, d in enumerate(order)])

    def remove(self, download: int) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM downloads WHERE id = ?", (download,))

    def _has(self, download: int) -> bool:
        with self._lock:
            return self._db.execute("SELECT 1 FROM downloads WHERE id = ?", (download,)).fetchone() is not None

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
                if isinstance(error, sqlite3.OperationalError):
                    raise GreenroomError(
                        say("The list of downloads cannot be written"),
                        str(error),
                        say("Free some space on the disk of Greenroom's data folder, then try again."),
                    ) from error
                raise

    def _migrate(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > _SCHEMA_VERSION:
            raise sqlite3.DatabaseError("it was written by a newer Greenroom")
        if version == 0:
            self._db.executescript(f"BEGIN;{_SCHEMA}PRAGMA user_version = {_SCHEMA_VERSION};COMMIT;")


def _download(row: tuple[object, ...], files: tuple[StoredFile, ...]) -> StoredDownload:
    number, endpoint, repo, commit, label, name, form, folder, state, position, error, notice, _ = row
    model = RemoteModel(str(repo), str(commit), str(label), str(name), str(form), tuple(f.file for f in files))
    parts = json.loads(str(error)) if error else None
    return StoredDownload(
        int(str(number)),
        str(endpoint),
        model,
        Path(str(folder)),
        str(state),
        int(str(position)),
        None if parts is None else (parts[0], parts[1], parts[2]),
        str(notice),
        files,
    )


def _missing(download: int) -> StoredDownload:
    raise KeyError(download)


def _is_running(owner: str) -> bool:
    """Whether the program that wrote this is still there: its process number alone may have gone to another."""
    pid, _, created = owner.partition(":")
    try:
        return f"{psutil.Process(int(pid)).create_time():.2f}" == created
    except (psutil.Error, ValueError, OSError):
        return False


def boot_id() -> str:
    """The same until the machine is started again: files written since then are what the program saw written."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        # Rounded, because the clock is adjusted now and then.
        return f"{os.name}-{round(psutil.boot_time() / 60)}"
