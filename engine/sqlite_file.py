"""SQLite files that several programs open at once, also for the first time."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: Seconds that one start waits for another that is making the same file.
PATIENCE_S = 10.0


def use_write_ahead_log(db: sqlite3.Connection, patience_s: float = PATIENCE_S) -> None:
    """A killed process then loses nothing that was committed. Raises sqlite3.Error.

    SQLite does not wait here while another process does the same, whatever the connection's timeout is.
    """
    until = time.monotonic() + patience_s
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


@contextmanager
def immediate(db: sqlite3.Connection) -> Iterator[None]:
    """A transaction that holds the write lock from its start: what it reads stays true. Raises sqlite3.Error."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if db.in_transaction:
            db.rollback()
        raise
    db.commit()
