"""Where chats are kept: one SQLite file.

`database` opens it, `messages` has what is said, `travelling` whole chats; here is the list of chats and what belongs
to each.

Calls take far less than 10 ms on everyday histories, so the UI thread makes them directly.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from typing import Any

from app.chat.storage import columns, database, file_index, finding
from app.chat.storage.database import saves
from app.chat.storage.records import ChatInfo, Draft, Hit, StoredMessage
from app.chat.storage.travelling import FOLDER_LENGTH, Travelling
from app.language import tr
from engine.errors import GreenroomError

__all__ = ["ChatInfo", "ChatStore", "StoredMessage", "title_of"]

log = logging.getLogger(__name__)

TITLE_LENGTH = 60
#: The note that holds what is written for a chat that has no message yet.
DRAFT = "draft"


def title_of(text: str) -> str:
    """A chat's title from its first question: the first line that says something, cut at a word."""
    lines = (" ".join(line.strip(" \t#>*-`").split()) for line in text.splitlines())
    line = next((line for line in lines if line), "")
    if not line:
        return tr("New chat")
    if len(line) <= TITLE_LENGTH:
        return line
    head = line[:TITLE_LENGTH]
    # Languages without spaces have no word to cut at.
    return (head.rsplit(" ", 1)[0] if " " in head[TITLE_LENGTH // 2 :] else head).rstrip(" ,.;:") + "…"


class ChatStore(Travelling):
    """The chats. Use it from one thread."""

    def close(self) -> None:
        """Drop what was deleted for good and close the file. Unusable afterwards; closing again is fine."""
        if self._closed:
            return
        self._closed = True
        try:
            self.purge()
        except (GreenroomError, sqlite3.Error):
            log.warning("Deleted chats stay until the next start", exc_info=True)
        self._writing.end_all()
        self.save_now()
        self._db.close()

    # Chats

    def chats(self, query: str = "") -> list[ChatInfo]:
        """Chats by last change, newest first. Each word of `query` must occur in the title or in a message."""
        try:
            rows = finding.chats(self._db, query, self._searchable)
        except sqlite3.DatabaseError as error:
            if not database.is_index(error):
                raise
            self._give_up_index(error)
            rows = finding.chats(self._db, query, False)
        return [
            ChatInfo(
                chat_id,
                columns.line(title),
                columns.moment(created),
                columns.moment(updated),
                bool(pinned),
                columns.line(folder),
            )
            for chat_id, title, created, updated, pinned, folder in rows
        ]

    def find_in(self, chat_id: int, query: str) -> Hit:
        """The newest message of a chat, or else file in it, in which words of `query` occur: all, or else the first."""
        return finding.newest_hit(self._db, chat_id, query)

    def title(self, chat_id: int) -> str | None:
        """The title, or None when there is no such chat (any more)."""
        row = self._db.execute("SELECT title FROM chats WHERE id = ? AND deleted IS NULL", (chat_id,)).fetchone()
        return None if row is None else columns.line(row[0])

    @saves
    def _create_chat(self, title: str) -> int:
        now = time.time()
        cursor = self._db.execute("INSERT INTO chats(title, created, updated) VALUES (?, ?, ?)", (title, now, now))
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def create_chat(self, first_question: str) -> int:
        """A new chat titled after its first question. Returns its id."""
        chat_id = self._create_chat(title_of(first_question))
        self._tell(chat_id)
        return chat_id

    def rename(self, chat_id: int, title: str) -> None:
        """An empty title changes nothing."""
        title = " ".join(title.split())
        if title:
            self._set("UPDATE chats SET title = ? WHERE id = ?", title, chat_id)
            self._tell(chat_id)

    def pin(self, chat_id: int, on: bool) -> None:
        self._set("UPDATE chats SET pinned = ? WHERE id = ?", int(on), chat_id)
        self._tell(chat_id)

    def move(self, chat_id: int, folder: str) -> None:
        """Put a chat into a folder, which is there as long as a chat is in it; "" takes it out."""
        self._set("UPDATE chats SET folder = ? WHERE id = ?", " ".join(folder.split())[:FOLDER_LENGTH], chat_id)
        self._tell(chat_id)

    def folders(self) -> list[str]:
        rows = self._db.execute("SELECT DISTINCT folder FROM chats WHERE folder != '' AND deleted IS NULL")
        return sorted({columns.line(row[0]) for row in rows} - {""}, key=str.casefold)

    def delete(self, chat_id: int) -> None:
        """Hide a chat. `restore` brings it back until `purge` or `close`."""
        self._set("UPDATE chats SET deleted = ? WHERE id = ?", time.time(), chat_id)
        self._tell(chat_id)

    def restore(self, chat_id: int) -> None:
        self._set("UPDATE chats SET deleted = NULL WHERE id = ?", chat_id)
        self._tell(chat_id)

    @saves
    def purge(self) -> None:
        """Remove what was deleted for good."""
        gone = "deleted IS NOT NULL OR chat_id IN (SELECT id FROM chats WHERE deleted IS NOT NULL)"
        if self._searchable:
            self._db.execute(
                "INSERT INTO search(search, rowid, text) "
                f"SELECT 'delete', id, text FROM messages WHERE indexed = 1 AND ({gone})"
            )
            file_index.forget(self._db, f"message_id IN (SELECT id FROM messages WHERE {gone})")
        self._db.execute(f"DELETE FROM messages WHERE {gone}")
        self._db.execute("DELETE FROM chats WHERE deleted IS NOT NULL")

    # What belongs to a chat beside its messages

    def draft(self, chat_id: int | None) -> Draft:
        """What was being written; None: for a chat that has no message yet."""
        return columns.draft(self._draft(chat_id))

    def _draft(self, chat_id: int | None) -> str:
        if chat_id is None:
            return self.note(DRAFT)
        row = self._db.execute("SELECT draft FROM chats WHERE id = ?", (chat_id,)).fetchone()
        return "" if row is None else columns.packed_text(row[0])

    def set_draft(self, chat_id: int | None, draft: Draft) -> None:
        value = columns.packed_draft(draft)
        if chat_id is None:
            self.set_note(DRAFT, value)
        else:
            self._set("UPDATE chats SET draft = ? WHERE id = ?", value, chat_id)

    def note(self, key: str) -> str:
        """What `set_note` was given under that name; "" for nothing."""
        row = self._db.execute("SELECT value FROM notes WHERE key = ?", (key,)).fetchone()
        return "" if row is None else columns.packed_text(row[0])

    def set_note(self, key: str, value: str) -> None:
        """Keep something that belongs to no chat."""
        self._set("INSERT OR REPLACE INTO notes(value, key) VALUES (?, ?)", value, key)

    def chat_settings(self, chat_id: int) -> dict[str, Any]:
        """What `set_chat_settings` was given; {} for a chat that has none."""
        row = self._db.execute("SELECT settings FROM chats WHERE id = ?", (chat_id,)).fetchone()
        return columns.settings(None if row is None else row[0])

    def set_chat_settings(self, chat_id: int, values: dict[str, Any]) -> None:
        """values: plain data; what it means is for others to know."""
        self._set(
            "UPDATE chats SET settings = ? WHERE id = ?",
            json.dumps(values, ensure_ascii=False) if values else "",
            chat_id,
        )

    def model_path(self, chat_id: int) -> str:
        """The model that answered last: a path or "demo"; "" when none did."""
        row = self._db.execute("SELECT model_path FROM chats WHERE id = ?", (chat_id,)).fetchone()
        return "" if row is None else columns.text(row[0])

    def set_model_path(self, chat_id: int, path: str) -> None:
        self._set("UPDATE chats SET model_path = ? WHERE id = ?", path, chat_id)

    def questions(self, most: int) -> list[str]:
        """What the user asked last in any chat, newest first, each text once."""
        rows = self._db.execute(
            "SELECT text FROM messages WHERE role = 'user' AND deleted IS NULL AND text != '' ORDER BY id DESC LIMIT ?",
            (3 * most,),
        )
        return list(dict.fromkeys(columns.text(row[0]) for row in rows))[:most]
