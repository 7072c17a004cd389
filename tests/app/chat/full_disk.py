"""A disk without room, for the chats alone: SQLite is given no more pages, whoever opens the file."""

from __future__ import annotations

from typing import Any

from app.chat.storage import database

#: More than what free pages of a small file take.
LONG = "A sentence that takes room. " * 4000


class FullDisk:
    """From `fill` until `free`. Restored with the monkeypatch."""

    def __init__(self, monkeypatch: Any) -> None:
        self._connect = database._connect
        self._full = False
        monkeypatch.setattr(database, "_connect", self._opened)
        monkeypatch.setattr(database.shutil, "disk_usage", self._usage)
        self._real = type("Usage", (), {"total": 10**12, "used": 0, "free": 10**12})
        self._none = type("Usage", (), {"total": 10**12, "used": 10**12, "free": 0})

    def fill(self, store: database.Database) -> None:
        self._full = True
        self._limit(store._db)

    def free(self, store: database.Database) -> None:
        self._full = False
        if store._left is not None and not store.closed:
            store._left.execute("PRAGMA max_page_count = 1000000")

    def _usage(self, path: object) -> Any:
        return self._none if self._full else self._real

    def _opened(self, path: Any, **options: Any) -> Any:
        made = self._connect(path, **options)
        if self._full and path != ":memory:":
            self._limit(made)
        return made

    @staticmethod
    def _limit(db: Any) -> None:
        # It cannot be fewer than there are.
        db.execute("PRAGMA max_page_count = 1")
