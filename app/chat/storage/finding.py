"""Which chats have the words of a search, and where.

The full-text indexes know pieces of three characters. A longer word is looked up in them as it is. A shorter one, and
two syllables are a whole word in Korean, is looked up as every piece that begins with it; a text that ends with it has
no such piece, so that the last characters of every text have indexes of their own.
"""

from __future__ import annotations

import sqlite3
from itertools import product
from typing import Any

from app.chat.storage import columns
from app.chat.storage.file_index import MOST_PIECES
from app.chat.storage.records import Hit
from app.chat.storage.search import excerpt, like, words_of
from engine.clean_text import clean_text

#: Characters of the pieces that the indexes know.
PIECE = 3
#: A short word with more entries in an index stands in nearly every text, where reading finds it sooner.
COMMON = 100_000
#: After every other character.
_LAST = "\U0010ffff"

_CHAT = "id, title, created, updated, pinned, folder"
#: Messages with a word which the indexes may not know yet, and those with a file that has one.
_UNREAD = (
    "SELECT id FROM messages WHERE indexed = 0 AND text LIKE ? ESCAPE '\\' "
    "UNION ALL SELECT message_id FROM attachments WHERE indexed >= 0 AND text LIKE ? ESCAPE '\\'"
)


def chats(db: sqlite3.Connection, query: str, indexed: bool) -> list[tuple[Any, ...]]:
    """(id, title, created, updated, pinned, folder) of the chats in which each word of `query` occurs, newest first.

    indexed: whether the file has full-text indexes
    """
    where, values = "deleted IS NULL", []
    for word in words_of(query):
        condition, found = _occurs(db, word) if indexed else _reads(word)
        where += f" AND (title LIKE ? ESCAPE '\\' OR id IN (SELECT chat_id FROM messages WHERE {condition}))"
        values += [like(word), *found]
    return db.execute(f"SELECT {_CHAT} FROM chats WHERE {where} ORDER BY updated DESC, id DESC", values).fetchall()


def newest_hit(db: sqlite3.Connection, chat_id: int, query: str) -> Hit:
    """The newest message of a chat, or else file in it, in which words of `query` occur: all, or else the first."""
    every = words_of(query)
    for words in (every, every[:1]) if every else ():
        # A chat has few messages: reading them is quicker than asking the index, which knows all chats.
        where = " AND ".join(["{0} LIKE ? ESCAPE '\\'"] * len(words))
        said = f"SELECT id, text, '' FROM messages WHERE chat_id = ? AND deleted IS NULL AND {where.format('text')}"
        attached = (
            "SELECT m.id, a.text, name FROM messages m JOIN attachments a ON a.message_id = m.id "
            f"WHERE chat_id = ? AND deleted IS NULL AND {where.format('a.text')}"
        )
        for source, newest in ((said, "id"), (attached, "a.id")):
            row = db.execute(f"{source} ORDER BY {newest} DESC LIMIT 1", (chat_id, *map(like, words))).fetchone()
            if row is not None:
                file = columns.line(row[2])
                return Hit(row[0], clean_text(excerpt(columns.text(row[1]), words, markdown=not file)), file)
    return Hit(None, "")


def _occurs(db: sqlite3.Connection, word: str) -> tuple[str, list[str]]:
    """A condition on `messages`, true where one or a file of it has `word`, and the values it is bound to."""
    if len(word) >= PIECE:
        said = filed = _quoted(word)
        ends, endings = "0", []
    else:
        both = [_beginning_with(db, index, word) for index in ("search", "file_search")]
        if None in both:
            return _reads(word)
        said, filed = both
        ends, endings = _at_the_end(word)
    where = (
        "deleted IS NULL AND (id IN (SELECT rowid FROM search WHERE search MATCH ? "
        f"UNION ALL SELECT id FROM messages WHERE {ends} "
        "UNION ALL SELECT message_id FROM attachments WHERE id IN "
        f"(SELECT rowid / {MOST_PIECES} FROM file_search WHERE file_search MATCH ?) "
        f"UNION ALL SELECT message_id FROM attachments WHERE {ends} "
        f"UNION ALL {_UNREAD}))"
    )
    return where, [said, *endings, filed, *endings, like(word), like(word)]


def _reads(word: str) -> tuple[str, list[str]]:
    """The same by reading every text."""
    files = "id IN (SELECT message_id FROM attachments WHERE text LIKE ? ESCAPE '\\')"
    return f"deleted IS NULL AND (text LIKE ? ESCAPE '\\' OR {files})", [like(word)] * 2


def _beginning_with(db: sqlite3.Connection, index: str, word: str) -> str | None:
    """What to ask of an index for the texts in which more follows after `word`. None: they are too many for it."""
    start = "".join(_cases(letter)[0] for letter in word)
    rows = db.execute(f"SELECT term, doc FROM {index}_terms WHERE term >= ? AND term < ?", (start, start + _LAST))
    terms, entries = [], 0
    for term, texts in rows:
        terms.append(_quoted(term))
        entries += texts
        if entries > COMMON:
            return None
    return " OR ".join(terms) or '""'


def _at_the_end(word: str) -> tuple[str, list[str]]:
    """A condition on a text: `word`, of one or two characters, is in its last two."""
    spellings = ["".join(letters) for letters in product(*map(_cases, word))]
    among = f"IN ({', '.join('?' * len(spellings))})"
    if len(word) == 2:
        return f"substr(text, -2) {among}", spellings
    starts = " OR ".join(["substr(text, -2) >= ? AND substr(text, -2) < ?"] * len(spellings))
    ranges = [bound for letter in spellings for bound in (letter, letter + _LAST)]
    return f"(substr(text, -1) {among} OR {starts})", [*spellings, *ranges]


def _cases(letter: str) -> tuple[str, ...]:
    """A letter as the index has it, and its other case; what becomes several letters in another case has none."""
    lower, upper = letter.lower(), letter.upper()
    lower = lower if len(lower) == 1 else letter
    return (lower, upper) if len(upper) == 1 and upper != lower else (lower,)


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'
