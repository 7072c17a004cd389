"""Chats as they travel: out of the file with every version, and into it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from app.chat.storage import columns
from app.chat.storage.database import AT_ONCE, saves
from app.chat.storage.messages import Messages
from app.chat.storage.portable import PortableChat, PortableMessage
from engine.errors import GreenroomError

FOLDER_LENGTH = 60


class Travelling(Messages):
    """Chats that go and come whole."""

    def portable(self, chat_id: int) -> PortableChat | None:
        """All of a chat, with every version; None when there is no such chat (any more)."""
        info = self._db.execute(
            "SELECT title, created, updated, pinned, folder, settings, leaf_id FROM chats WHERE id = ?", (chat_id,)
        ).fetchone()
        rows = self._db.execute(
            "SELECT id, parent_id, role, text, created, model, thought_s, stats, stop_reason, error FROM messages "
            "WHERE chat_id = ? AND deleted IS NULL ORDER BY id",
            (chat_id,),
        ).fetchall()
        if info is None:
            return None
        files = self._attachments(chat_id)
        places: dict[Any, int] = {}
        messages = []
        for i, parent, role, text, created, model, thought_s, figures, reason, error in rows:
            messages.append(
                PortableMessage(
                    columns.role(role),
                    columns.text(text),
                    places.get(parent),  # an earlier one, whatever the file says
                    columns.moment(created),
                    columns.line(model),
                    columns.seconds(thought_s),
                    columns.stats(figures),
                    None if reason is None else columns.line(reason),
                    files.get(i, ()),
                    columns.predicted(figures),
                    columns.stepped_down(figures),
                    _parts(columns.error(error)),
                )
            )
            places[i] = len(places)
        title, began, updated, pinned, folder, settings, leaf = info
        return PortableChat(
            columns.line(title),
            columns.moment(began),
            columns.moment(updated),
            tuple(messages),
            places.get(leaf),
            bool(pinned),
            columns.line(folder),
            columns.moved(columns.settings(settings), places),
        )

    def add_portable(self, chats: Sequence[PortableChat]) -> list[int]:
        """Take chats in, each as a new one. All of them or, when one cannot be saved, none. Returns their ids."""
        added = self._add_portable(chats)
        self._tell(0)
        return added

    @saves
    def _add_portable(self, chats: Sequence[PortableChat]) -> list[int]:
        added = [self._add_chat(chat) for chat in chats]
        if self._searchable:
            self._index_waiting(AT_ONCE)
        return added

    def _add_chat(self, chat: PortableChat) -> int:
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
            parent = None if message.parent is None else ids[message.parent]
            ids.append(self._insert(chat_id, parent, message, index=False))
        if "start" in chat.settings:
            self._set_settings(chat_id, columns.moved(chat.settings, dict(enumerate(ids))))
        if ids:
            leaf = ids[-1] if chat.leaf is None else ids[chat.leaf]
            self._db.execute("UPDATE chats SET leaf_id = ? WHERE id = ?", (leaf, chat_id))
        return chat_id

    def _set_settings(self, chat_id: int, settings: dict[str, Any]) -> None:
        packed = json.dumps(settings, ensure_ascii=False) if settings else ""
        self._db.execute("UPDATE chats SET settings = ? WHERE id = ?", (packed, chat_id))


def _parts(error: GreenroomError | None) -> tuple[str, ...] | None:
    return None if error is None else (error.what, error.why, error.remedy)
