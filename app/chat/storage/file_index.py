"""The full-text index of attached files.

Files may be long, and the window must not wait for them: each is taken in by pieces, one at a time, whenever there is
nothing else to do. The pieces overlap, so that no word that is looked for is cut by an end. The index holds no text:
its rows are numbered by file and piece.

`attachments.indexed` is how many characters of a file are in the index, DONE when all of them are.
"""

from __future__ import annotations

import sqlite3

from app.chat.storage.search import WORD_LENGTH

#: Characters of a piece beside what it shares with the next one: some milliseconds.
PIECE = 24_000
#: Pieces that a file has room for; what it says behind them is not found. Far more than may be attached.
MOST_PIECES = 1 << 12
DONE = -1


def make(db: sqlite3.Connection) -> None:
    """Raises sqlite3.OperationalError where SQLite has no such index."""
    db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS file_search USING fts5(text, content = '', tokenize = 'trigram')")
    db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS file_search_terms USING fts5vocab('file_search', 'row')")


def take_next(db: sqlite3.Connection) -> bool:
    """Take in one piece of a file, within a transaction. False when there was none left."""
    row = db.execute("SELECT id, indexed FROM attachments WHERE indexed >= 0 LIMIT 1").fetchone()
    if row is None:
        return False
    file, start = row
    if not isinstance(start, int) or start > MOST_PIECES * PIECE:  # a damaged file
        db.execute("UPDATE attachments SET indexed = ? WHERE id = ?", (DONE, file))
        return True
    text, length = db.execute(
        "SELECT substr(text, ?, ?), length(text) FROM attachments WHERE id = ?", (start + 1, PIECE + WORD_LENGTH, file)
    ).fetchone()
    piece, end = start // PIECE, start + PIECE
    reached = DONE if end >= length or piece + 1 == MOST_PIECES else end
    # Another window may be at it, too.
    claimed = db.execute("UPDATE attachments SET indexed = ? WHERE id = ? AND indexed = ?", (reached, file, start))
    if claimed.rowcount:
        db.execute("INSERT INTO file_search(rowid, text) VALUES (?, ?)", (file * MOST_PIECES + piece, text))
    return True


def forget(db: sqlite3.Connection, which: str) -> None:
    """Take files out again, before they are deleted. which: a condition on `attachments`."""
    # The index must be told the words that it is to forget.
    db.execute(
        "WITH RECURSIVE pieces(id, piece, reached) AS ("
        "SELECT id, 0, CASE indexed WHEN :done THEN length(text) ELSE indexed END "
        f"FROM attachments WHERE indexed != 0 AND ({which}) "
        "UNION ALL SELECT id, piece + 1, reached FROM pieces "
        "WHERE (piece + 1) * :size < reached AND piece + 1 < :most) "
        "INSERT INTO file_search(file_search, rowid, text) "
        "SELECT 'delete', id * :most + piece, substr(text, piece * :size + 1, :whole) "
        "FROM pieces JOIN attachments USING (id)",
        {"done": DONE, "size": PIECE, "most": MOST_PIECES, "whole": PIECE + WORD_LENGTH},
    )
