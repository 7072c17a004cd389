"""Connections to the chat file, and to memory in place of it while it cannot be written."""

from __future__ import annotations

import functools
import random
import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

#: Tables whose rows SQLite numbers.
_NUMBERED = ("chats", "messages", "attachments")
#: How many numbers are left to other windows: a random count, since they may be in memory as well.
_LEFT_TO_OTHERS = (100, 1000)


class Connection(sqlite3.Connection):
    """Characters that UTF-8 cannot encode, as in some file names, are stored and read as "?"."""

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


def connect(path: Path | str, **options: Any) -> Connection:
    return sqlite3.connect(path, factory=Connection, **options)


class Statement(NamedTuple):
    """row: the number of the row that it inserted"""

    sql: str
    values: Any
    row: int | None

    def replaces(self, before: Statement) -> bool:
        """Whether both set one value of the same row."""
        setter = self.sql.startswith(("UPDATE ", "INSERT OR REPLACE "))
        return setter and self.sql == before.sql and len(self.values) == 2 and self.values[1] == before.values[1]


class StandIn(Connection):
    """A copy of the chats in memory. It remembers what is written to it, for the file."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        #: What the file lacks, in order.
        self.pending: list[Statement] = []
        #: The same of the transaction that has not ended.
        self._open: list[Statement] = []
        self._remembers = False

    def remember(self) -> None:
        """From now on. New rows get numbers that no row of the file has, so they can keep them."""
        left = random.randint(*_LEFT_TO_OTHERS)
        with self:
            for table in _NUMBERED:
                raised = self.execute("UPDATE sqlite_sequence SET seq = seq + ? WHERE name = ?", (left, table))
                if not raised.rowcount:
                    self.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table, left))
        self._remembers = True

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        cursor = super().execute(sql, values)
        if self._remembers and self.in_transaction and cursor.description is None:
            self._open.append(Statement(sql, values, cursor.lastrowid))
        return cursor

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Any:
        ended, self._open = self._open, []
        if kind is None:
            if len(ended) == 1 and self.pending and ended[0].replaces(self.pending[-1]):
                self.pending.pop()  # a draft is saved again and again
            self.pending += ended
        return super().__exit__(kind, error, trace)

    def write_to(self, file: sqlite3.Connection) -> None:
        """Repeat what is remembered, in a transaction of the file. Raises sqlite3.Error."""
        for sql, values, row in self.pending:
            new = file.execute(sql, values).lastrowid
            table = sql.removeprefix("INSERT INTO ").partition("(")[0]
            if table in _NUMBERED and new != row:
                file.execute(f"UPDATE {table} SET id = ? WHERE id = ?", (row, new))
