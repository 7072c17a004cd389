"""What is said in chats, as the file keeps it.

Messages form a tree: a regenerated answer or an edited question is a sibling of the old one, so nothing is overwritten.
A chat shows one path through its tree, from the root to `leaf_id`.

A message has a higher number than the one it follows. A damaged file may have circles: they end where that is not so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from app.chat.storage import columns
from app.chat.storage.database import Database, saves
from app.chat.storage.portable import PortableMessage
from app.chat.storage.records import MOST_FILES, Attachment, StoredMessage
from app.chat.storage.writing import Writing
from app.language import tr
from engine.errors import GreenroomError
from engine.placement.plan import Range
from engine.runtime.events import GenerationStats

#: stop_reason of an answer that a crash cut off, once the user has been told.
CLOSED = "closed"


class Messages(Database):
    """The messages of all chats, in the file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._writing = Writing(self.path)
        self._held: WeakValueDictionary[int, StoredMessage] = WeakValueDictionary()

    def messages(self, chat_id: int) -> list[StoredMessage]:
        """The visible messages of a chat, first to last."""
        rows = self._db.execute(
            """
            WITH RECURSIVE visible(id, depth) AS (
                SELECT COALESCE(
                    (SELECT m.id FROM chats c JOIN messages m ON m.id = c.leaf_id WHERE c.id = ?1 AND m.chat_id = ?1),
                    (SELECT MAX(id) FROM messages WHERE chat_id = ?1 AND deleted IS NULL)
                ), 0
                UNION ALL
                SELECT p.id, depth + 1 FROM visible JOIN messages m ON m.id = visible.id
                JOIN messages p ON p.id = m.parent_id
                WHERE p.id < m.id AND p.chat_id = ?1
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
        message_id, chat_id, parent_id, role, text, model, thought_s, figures, reason, error, *versions = row
        role = columns.role(role)
        read = StoredMessage(
            message_id,
            chat_id,
            parent_id if isinstance(parent_id, int) else None,
            role,
            columns.text(text),
            columns.line(model),
            columns.seconds(thought_s),
            columns.stats(figures),
            None if reason is None else columns.line(reason),
            columns.error(error),
            *versions,
            files,
            columns.predicted(figures),
            role == "assistant" and reason is None and self._writing.elsewhere(message_id),
            columns.stepped_down(figures),
        )
        known = self._held.get(read.id)
        if known == read:
            return known
        self._held[read.id] = read
        return read

    def _attachments(self, chat_id: int) -> dict[int, tuple[Attachment, ...]]:
        """By message."""
        found: dict[int, list[Attachment]] = {}
        rows = self._db.execute(
            "SELECT message_id, name, a.text, length FROM messages m JOIN attachments a ON a.message_id = m.id "
            "WHERE m.chat_id = ? ORDER BY a.id",
            (chat_id,),
        )
        for message_id, *values in rows:
            files = found.setdefault(message_id, [])
            if len(files) < MOST_FILES:
                files.append(columns.attachment(*values))
        return {message_id: tuple(files) for message_id, files in found.items()}

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

    def add_path(self, chat_id: int, parent_id: int | None, messages: Sequence[PortableMessage]) -> list[int]:
        """Append messages that are whole, each below the one before it, and make the last one the end of the visible
        path. All of them or, when one cannot be saved, none. Returns their ids.
        """
        added = self._add_path(chat_id, parent_id, messages)
        self._tell(chat_id)
        return added

    @saves
    def _add_path(self, chat_id: int, parent_id: int | None, messages: Sequence[PortableMessage]) -> list[int]:
        added: list[int] = []
        for message in messages:
            parent_id = self._insert(chat_id, parent_id, message)
            added.append(parent_id)
        self._db.execute("UPDATE chats SET leaf_id = ?, updated = ? WHERE id = ?", (parent_id, time.time(), chat_id))
        return added

    def _insert(self, chat_id: int, parent_id: int | None, message: PortableMessage, index: bool = True) -> int:
        message_id = self._db.execute(
            "INSERT INTO messages(chat_id, parent_id, role, text, created, model, thought_s, stats, stop_reason, error)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                chat_id,
                parent_id,
                message.role,
                message.text,
                message.created,
                message.model,
                message.thought_s,
                columns.figures(message.stats, message.predicted, message.stepped_down),
                message.stop_reason,
                columns.packed_error(GreenroomError(*message.error) if message.error else None),
            ),
        ).lastrowid
        assert message_id is not None
        for a in message.attachments:
            self._db.execute(
                "INSERT INTO attachments(message_id, name, text, length) VALUES (?, ?, ?, ?)",
                (message_id, a.name, a.text, a.length),
            )
        if message.text and index:
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
                tr("it is being written in another window"),
                tr("Wait until it is finished."),
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
            "UNION ALL SELECT parent_id FROM up JOIN messages USING (id) WHERE parent_id < id) "
            "SELECT 1 FROM up WHERE id = ?1"
        )
        if self._db.execute(visible, (message_id,)).fetchone() is None:
            self._show_below(message_id)

    def _show_below(self, leaf: int) -> None:
        newest_child = "SELECT MAX(id) FROM messages WHERE parent_id = ?1 AND id > ?1 AND deleted IS NULL"
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
            "below.id WHERE m.id > below.id) "
            "UPDATE messages SET deleted = ?2 WHERE deleted IS NULL AND id IN (SELECT id FROM below)",
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

    @saves
    def _set(self, sql: str, *values: object) -> None:
        self._db.execute(sql, values)
