"""A disk without room, for the chats alone: SQLite is given no more pages, whoever opens the file."""

from __future__ import annotations

from typing import Any

from app.chat.storage import database

#: More than what free pages of a small file take.
LONG = "A sentence that takes room. " * 4000


class FullDisk:
    """From `fill` until `free`. Restored with the monkeypatch."""

    def __init__(self, monkeypatch: Any) -> None:
        self._connect = database.connect
        self._full = False
        monkeypatch.setattr(database, "connect", self._opened)

    def fill(self, store: database.Database) -> None:
        self._full = True
        self._limit(store._db)

    def free(self, store: database.Database) -> None:
        """The next look at the file may try to write it."""
        self._full = False
        store._next_try = 0.0

    def _opened(self, path: Any, **options: Any) -> Any:
        made = self._connect(path, **options)
        if self._full:
            self._limit(made)
        return made

    @staticmethod
    def _limit(db: Any) -> None:
        # It cannot be fewer than there are.
        db.execute("PRAGMA max_page_count = 1")
