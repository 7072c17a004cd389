"""What is in memory only while the chats cannot be written: kept by SQLite itself, beside the chats that stand in for
the file, and gone with them.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from app.chat.storage import columns

#: Marks are never in the file: what is TEMP is no part of a copy.
_MARKS = """
    CREATE TEMP TABLE IF NOT EXISTS unsaved_messages(id INTEGER PRIMARY KEY);
    CREATE TEMP TABLE IF NOT EXISTS unsaved_chats(id INTEGER PRIMARY KEY);
    CREATE TEMP TABLE IF NOT EXISTS unsaved_notes(key TEXT PRIMARY KEY);
    CREATE TEMP TRIGGER IF NOT EXISTS message_added AFTER INSERT ON main.messages
        BEGIN INSERT OR IGNORE INTO unsaved_messages VALUES (new.id); END;
    CREATE TEMP TRIGGER IF NOT EXISTS message_written AFTER UPDATE OF text, stats ON main.messages
        WHEN new.text IS NOT old.text OR new.stats IS NOT old.stats
        BEGIN INSERT OR IGNORE INTO unsaved_messages VALUES (new.id); END;
    CREATE TEMP TRIGGER IF NOT EXISTS chat_added AFTER INSERT ON main.chats
        BEGIN INSERT OR IGNORE INTO unsaved_chats VALUES (new.id); END;
    CREATE TEMP TRIGGER IF NOT EXISTS chat_changed AFTER UPDATE OF title, pinned, folder, draft, settings ON main.chats
        WHEN (new.title, new.pinned, new.folder, new.draft, new.settings)
            IS NOT (old.title, old.pinned, old.folder, old.draft, old.settings)
        BEGIN INSERT OR IGNORE INTO unsaved_chats VALUES (new.id); END;
    CREATE TEMP TRIGGER IF NOT EXISTS note_written AFTER INSERT ON main.notes
        BEGIN INSERT OR IGNORE INTO unsaved_notes VALUES (new.key); END;
"""


@dataclass(frozen=True)
class UnsavedChat:
    """messages: how many of them are not in the file; 0 where only its name, folder, options or draft are another."""

    id: int
    title: str
    messages: int


@dataclass(frozen=True)
class Unsaved:
    """chats: those with most to lose first; draft: something is written for a chat that has no message yet.

    characters: of all that messages say
    """

    chats: tuple[UnsavedChat, ...] = ()
    draft: bool = False
    characters: int = 0

    def __bool__(self) -> bool:
        return bool(self.chats) or self.draft

    @property
    def messages(self) -> int:
        return sum(chat.messages for chat in self.chats)

    @property
    def changed(self) -> int:
        """Chats without a message to lose."""
        return sum(not chat.messages for chat in self.chats)


def watch(memory: sqlite3.Connection) -> None:
    """From now on mark what changes. memory: stands in for the file, with all that the file has."""
    memory.execute("PRAGMA temp_store = MEMORY")  # the disk may be full
    memory.executescript(_MARKS)


def forget(memory: sqlite3.Connection) -> None:
    """All of it is saved."""
    with memory:
        for table in ("unsaved_messages", "unsaved_chats", "unsaved_notes"):
            memory.execute(f"DELETE FROM {table}")


def found(memory: sqlite3.Connection, draft_note: str) -> Unsaved:
    """What was marked and is still there. draft_note: the key of the note that holds a new chat's draft."""
    rows = memory.execute(
        "WITH lost(chat_id, n) AS (SELECT chat_id, COUNT(*) FROM messages JOIN unsaved_messages USING (id) "
        "WHERE deleted IS NULL AND text != '' GROUP BY chat_id) "
        "SELECT id, title, COALESCE(n, 0) FROM chats LEFT JOIN lost ON chat_id = id "
        "WHERE deleted IS NULL AND (n IS NOT NULL OR id IN (SELECT id FROM unsaved_chats)) "
        "ORDER BY n DESC, updated DESC"
    )
    chats = tuple(UnsavedChat(chat, columns.line(title), messages) for chat, title, messages in rows)
    draft = memory.execute(
        "SELECT 1 FROM notes JOIN unsaved_notes USING (key) WHERE key = ? AND value != ''", (draft_note,)
    ).fetchone()
    said = memory.execute("SELECT COALESCE(SUM(LENGTH(text)), 0) FROM messages JOIN unsaved_messages USING (id)")
    return Unsaved(chats, draft is not None, said.fetchone()[0])
