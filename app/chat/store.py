"""Where chats are kept: one SQLite file.

Messages form a tree: a regenerated answer or an edited question is a sibling of the old one, so nothing is overwritten.
A chat shows one path through its tree, from the root to `leaf_id`.

Calls take far less than 10 ms on everyday histories, so the UI thread makes them directly.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from app.chat import columns, file_index, finding
from app.chat.database import Database, saves
from app.chat.portable import PortableChat, PortableMessage
from app.chat.records import Attachment, ChatInfo, Draft, Hit, StoredMessage
from app.chat.writing import Writing
from app.language import tr
from engine.errors import GreenroomError
from engine.placement.plan import Range
from engine.runtime.events import GenerationStats

__all__ = ["ChatInfo", "ChatStore", "StoredMessage", "title_of"]

log = logging.getLogger(__name__)

TITLE_LENGTH = 60
FOLDER_LENGTH = 60
#: The note that holds what is written for a chat that has no message yet.
DRAFT = "draft"
#: stop_reason of an answer that a crash cut off, once the user has been told.
CLOSED = "closed"


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


class ChatStore(Database):
    """The chats. Use it from one thread."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._writing = Writing(self.path)
        self._held: WeakValueDictionary[int, StoredMessage] = WeakValueDictionary()

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
        if self._left is not None and not self._go_back():
            self._left.close()
        self._db.close()

    # Chats

    def chats(self, query: str = "") -> list[ChatInfo]:
        """Chats by last change, newest first. Each word of `query` must occur in the title or in a message."""
        rows = finding.chats(self._db, query, self._searchable)
        return [ChatInfo(*row[:4], bool(row[4]), row[5]) for row in rows]

    def find_in(self, chat_id: int, query: str) -> Hit:
        """The newest message of a chat, or else file in it, in which words of `query` occur: all, or else the first."""
        return finding.newest_hit(self._db, chat_id, query)

    def title(self, chat_id: int) -> str | None:
        """The title, or None when there is no such chat (any more)."""
        row = self._db.execute("SELECT title FROM chats WHERE id = ? AND deleted IS NULL", (chat_id,)).fetchone()
        return None if row is None else str(row[0])

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
        return sorted((str(row[0]) for row in rows), key=str.casefold)

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
        if chat_id is None:
            raw = self.note(DRAFT)
        else:
            row = self._db.execute("SELECT draft FROM chats WHERE id = ?", (chat_id,)).fetchone()
            raw = "" if row is None else row[0]
        return columns.draft(raw)

    def set_draft(self, chat_id: int | None, draft: Draft) -> None:
        files = [[a.name, a.text, a.length] for a in draft.attachments]
        value = "" if draft.empty else json.dumps([draft.text, files], ensure_ascii=False)
        if chat_id is None:
            self.set_note(DRAFT, value)
        else:
            self._set("UPDATE chats SET draft = ? WHERE id = ?", value, chat_id)

    def note(self, key: str) -> str:
        """What `set_note` was given under that name; "" for nothing."""
        row = self._db.execute("SELECT value FROM notes WHERE key = ?", (key,)).fetchone()
        return "" if row is None else str(row[0])

    def set_note(self, key: str, value: str) -> None:
        """Keep something that belongs to no chat."""
        self._set("INSERT OR REPLACE INTO notes(key, value) VALUES (?, ?)", key, value)

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
        return "" if row is None else str(row[0])

    def set_model_path(self, chat_id: int, path: str) -> None:
        self._set("UPDATE chats SET model_path = ? WHERE id = ?", path, chat_id)

    def questions(self, most: int) -> list[str]:
        """What the user asked last in any chat, newest first, each text once."""
        rows = self._db.execute(
            "SELECT text FROM messages WHERE role = 'user' AND deleted IS NULL AND text != '' ORDER BY id DESC LIMIT ?",
            (3 * most,),
        )
        return list(dict.fromkeys(str(row[0]) for row in rows))[:most]

    # Messages

    def messages(self, chat_id: int) -> list[StoredMessage]:
        """The visible messages of a chat, first to last."""
        rows = self._db.execute(
            """
            WITH RECURSIVE visible(id, depth) AS (
                SELECT leaf_id, 0 FROM chats WHERE id = ?1 AND leaf_id IS NOT NULL
                UNION ALL
                SELECT m.parent_id, depth + 1 FROM visible JOIN messages m ON m.id = visible.id
                WHERE m.parent_id IS NOT NULL
            )
            SELECT m.id, m.chat_id, m.parent_id, m.role, m.text, m.model, m.thought_s, m.stats, m.stop_reason, m.error,
                (SELECT COUNT(*) FROM messages s
                 WHERE s.chat_id = ?1 AND s.parent_id IS m.parent_id AND s.id <= m.id AND s.deleted IS NULL),
                (SELECT COUNT(*) FROM messages s
                 WHERE s.chat_id = ?1 AND s.parent_id IS m.parent_id AND s.deleted IS NULL)
            FROM visible JOIN messages m ON m.id = visible.id ORDER BY depth DESC
            """,
            (chat_id,),
        )
        files = self._attachments(chat_id)
        return [self._message(row, files.get(row[0], ())) for row in rows]

    def _message(self, row: tuple[Any, ...], files: tuple[Attachment, ...]) -> StoredMessage:
        """A row as a message. Whoever holds the same one already shares it: a long chat is in memory once."""
        elsewhere = row[3] == "assistant" and row[8] is None and self._writing.elsewhere(row[0])
        stats, error, predicted = columns.stats(row[7]), columns.error(row[9]), columns.predicted(row[7])
        steps = columns.stepped_down(row[7])
        read = StoredMessage(*row[:7], stats, row[8], error, *row[10:], files, predicted, elsewhere, steps)
        known = self._held.get(read.id)
        if known == read:
            return known
        self._held[read.id] = read
        return read

    def _attachments(self, chat_id: int) -> dict[int, tuple[Attachment, ...]]:
        """By message."""
        found: dict[int, tuple[Attachment, ...]] = {}
        rows = self._db.execute(
            "SELECT message_id, name, a.text, length FROM messages m JOIN attachments a ON a.message_id = m.id "
            "WHERE m.chat_id = ? ORDER BY a.id",
            (chat_id,),
        )
        for message_id, *values in rows:
            found[message_id] = (*found.get(message_id, ()), Attachment(*values))
        return found

    def add_message(
        self,
        chat_id: int,
        parent_id: int | None,
        role: str,
        text: str = "",
        model: str = "",
        attachments: Sequence[Attachment] = (),
    ) -> int:
        """Append a message below `parent_id` and make it the end of the visible path. Returns its id."""
        message_id = self._add(chat_id, parent_id, role, text, model, attachments)
        if role == "assistant":
            self._writing.begin(message_id)
        self._tell(chat_id)
        return message_id

    @saves
    def _add(
        self, chat_id: int, parent_id: int | None, role: str, text: str, model: str, files: Sequence[Attachment]
    ) -> int:
        now = time.time()
        message_id = self._insert(chat_id, parent_id, PortableMessage(role, text, None, now, model, attachments=files))
        self._db.execute("UPDATE chats SET leaf_id = ?, updated = ? WHERE id = ?", (message_id, now, chat_id))
        return message_id

    def _insert(self, chat_id: int, parent_id: int | None, message: PortableMessage) -> int:
        message_id = self._db.execute(
            "INSERT INTO messages(chat_id, parent_id, role, text, created, model, thought_s, stats, stop_reason) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                chat_id,
                parent_id,
                message.role,
                message.text,
                message.created,
                message.model,
                message.thought_s,
                json.dumps(asdict(message.stats)) if message.stats else None,
                message.stop_reason,
            ),
        ).lastrowid
        assert message_id is not None
        for a in message.attachments:
            self._db.execute(
                "INSERT INTO attachments(message_id, name, text, length) VALUES (?, ?, ?, ?)",
                (message_id, a.name, a.text, a.length),
            )
        if message.text:
            self._index(message_id)
        return message_id

    @saves
    def set_text(self, message_id: int, text: str) -> None:
        """Save an answer so far."""
        self._replace_text(message_id, text)

    def finish(
        self,
        message_id: int,
        text: str,
        stats: GenerationStats | None,
        stop_reason: str,
        error: GreenroomError | None = None,
        thought_s: float | None = None,
        predicted: Range | None = None,
        stepped_down: Sequence[str] = (),
    ) -> None:
        """Save a whole answer with how it went, how fast it was to be, and what it had to do without."""
        figures = columns.figures(stats, predicted, stepped_down)
        try:
            self._finish(message_id, text, figures, stop_reason, columns.packed_error(error), thought_s)
        finally:
            self._writing.end(message_id)

    @saves
    def _finish(
        self,
        message_id: int,
        text: str,
        figures: str | None,
        stop_reason: str,
        error: str | None,
        thought_s: float | None,
    ) -> None:
        self._replace_text(message_id, text)
        self._db.execute(
            "UPDATE messages SET stats = ?, stop_reason = ?, error = ?, thought_s = ? WHERE id = ?",
            (figures, stop_reason, error, thought_s, message_id),
        )
        self._index(message_id)

    def reopen(self, message_id: int) -> None:
        """An answer is written again: until `finish` it counts as cut off. GreenroomError while another does it."""
        if not self._writing.begin(message_id):
            raise GreenroomError(
                tr("The answer cannot be continued here"),
                tr("another window is writing it"),
                tr("Wait for its end."),
            )
        self._set("UPDATE messages SET stop_reason = NULL, error = NULL WHERE id = ?", message_id)

    def unfinished(self) -> tuple[int, int] | None:
        """(chat, message) of the newest answer that a crash cut off at the end of a visible path, if there is one."""
        rows = self._db.execute(
            "SELECT c.id, m.id FROM chats c JOIN messages m ON m.id = c.leaf_id WHERE m.role = 'assistant' "
            "AND m.stop_reason IS NULL AND c.deleted IS NULL ORDER BY m.id DESC"
        )
        return next(((chat, message) for chat, message in rows if not self._writing.elsewhere(message)), None)

    def settle_unfinished(self, newest: int) -> None:
        """The user knows of the answers that were cut off, up to that message."""
        rows = self._db.execute(
            "SELECT id FROM messages WHERE role = 'assistant' AND stop_reason IS NULL AND id <= ?", (newest,)
        ).fetchall()
        for (message_id,) in rows:
            if not self._writing.elsewhere(message_id):
                self._set("UPDATE messages SET stop_reason = ? WHERE id = ?", CLOSED, message_id)

    @saves
    def show_version(self, message_id: int, step: int) -> None:
        """Page to the sibling `step` places on; the visible path then runs to the newest message below it."""
        # Another window may have deleted it meanwhile, here and below.
        siblings = [
            row[0]
            for row in self._db.execute(
                "SELECT s.id FROM messages s JOIN messages m ON s.chat_id = m.chat_id AND s.parent_id IS m.parent_id "
                "WHERE m.id = ? AND s.deleted IS NULL ORDER BY s.id",
                (message_id,),
            )
        ]
        if message_id in siblings:
            place = siblings.index(message_id) + step
            self._show_below(siblings[max(0, min(place, len(siblings) - 1))])

    @saves
    def show_message(self, message_id: int) -> None:
        """Have the visible path go through a message."""
        visible = (
            "WITH RECURSIVE up(id) AS ("
            "SELECT leaf_id FROM chats WHERE id = (SELECT chat_id FROM messages WHERE id = ?1) "
            "UNION ALL SELECT parent_id FROM up JOIN messages USING (id) WHERE parent_id IS NOT NULL) "
            "SELECT 1 FROM up WHERE id = ?1"
        )
        if self._db.execute(visible, (message_id,)).fetchone() is None:
            self._show_below(message_id)

    def _show_below(self, leaf: int) -> None:
        newest_child = "SELECT MAX(id) FROM messages WHERE parent_id = ? AND deleted IS NULL"
        while (child := self._db.execute(newest_child, (leaf,)).fetchone()[0]) is not None:
            leaf = child
        self._db.execute(
            "UPDATE chats SET leaf_id = ? WHERE id = (SELECT chat_id FROM messages WHERE id = ?)", (leaf, leaf)
        )

    @saves
    def delete_message(self, message_id: int) -> None:
        """Hide a message and all that follows it. `restore_message` brings them back until `close`."""
        now = time.time()
        self._db.execute(
            "WITH RECURSIVE below(id) AS (SELECT ?1 UNION ALL SELECT m.id FROM messages m JOIN below ON m.parent_id = "
            "below.id) UPDATE messages SET deleted = ?2 WHERE deleted IS NULL AND id IN (SELECT id FROM below)",
            (message_id, now),
        )
        row = self._db.execute("SELECT chat_id, parent_id FROM messages WHERE id = ?", (message_id,)).fetchone()
        if row is None:
            return
        chat_id, parent_id = row
        sibling = self._db.execute(
            "SELECT MAX(id) FROM messages WHERE chat_id = ? AND parent_id IS ? AND deleted IS NULL",
            (chat_id, parent_id),
        ).fetchone()[0]
        if sibling is not None:
            self._show_below(sibling)
        else:
            self._db.execute("UPDATE chats SET leaf_id = ? WHERE id = ?", (parent_id, chat_id))

    @saves
    def restore_message(self, message_id: int) -> None:
        """Undo `delete_message`."""
        self._db.execute(
            "UPDATE messages SET deleted = NULL WHERE chat_id = (SELECT chat_id FROM messages WHERE id = ?1) "
            "AND deleted = (SELECT deleted FROM messages WHERE id = ?1)",
            (message_id,),
        )
        self._show_below(message_id)

    # Chats as they travel

    def portable(self, chat_id: int) -> PortableChat | None:
        """All of a chat, with every version; None when there is no such chat (any more)."""
        info = self._db.execute(
            "SELECT title, created, updated, pinned, folder, settings, leaf_id FROM chats WHERE id = ?", (chat_id,)
        ).fetchone()
        rows = self._db.execute(
            "SELECT id, parent_id, role, text, created, model, thought_s, stats, stop_reason FROM messages "
            "WHERE chat_id = ? AND deleted IS NULL ORDER BY id",
            (chat_id,),
        ).fetchall()
        if info is None:
            return None
        files = self._attachments(chat_id)
        places = {row[0]: place for place, row in enumerate(rows)}
        messages = tuple(
            PortableMessage(
                role,
                text,
                places.get(parent),
                created,
                model,
                thought_s,
                columns.stats(stats),
                reason,
                files.get(i, ()),
            )
            for i, parent, role, text, created, model, thought_s, stats, reason in rows
        )
        settings = columns.moved(columns.settings(info[5]), places)
        return PortableChat(info[0], info[1], info[2], messages, places.get(info[6]), bool(info[3]), info[4], settings)

    def add_portable(self, chats: Sequence[PortableChat]) -> list[int]:
        """Take chats in, each as a new one. All of them or, when one cannot be saved, none. Returns their ids."""
        added = self._add_portable(chats)
        self._tell(0)
        return added

    @saves
    def _add_portable(self, chats: Sequence[PortableChat]) -> list[int]:
        added = []
        for chat in chats:
            chat_id = self._db.execute(
                "INSERT INTO chats(title, created, updated, pinned, folder, settings) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    chat.title,
                    chat.created,
                    chat.updated,
                    int(chat.pinned),
                    chat.folder[:FOLDER_LENGTH],
                    json.dumps(chat.settings, ensure_ascii=False) if chat.settings else "",
                ),
            ).lastrowid
            assert chat_id is not None
            ids: list[int] = []
            for message in chat.messages:
                ids.append(self._insert(chat_id, None if message.parent is None else ids[message.parent], message))
            if "start" in chat.settings:
                settings = columns.moved(chat.settings, dict(enumerate(ids)))
                self._db.execute(
                    "UPDATE chats SET settings = ? WHERE id = ?", (json.dumps(settings, ensure_ascii=False), chat_id)
                )
            if ids:
                leaf = ids[-1] if chat.leaf is None else ids[chat.leaf]
                self._db.execute("UPDATE chats SET leaf_id = ? WHERE id = ?", (leaf, chat_id))
            added.append(chat_id)
        return added

    # Inside

    @saves
    def _set(self, sql: str, *values: object) -> None:
        self._db.execute(sql, values)
