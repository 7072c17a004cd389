"""The rows of the chat list: headings, chats, and what a search has found in them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from app.chat.storage.records import ChatInfo, Hit
from app.chat.storage.store import ChatStore
from app.language import mark, tr
from app.widgets.labels import plain_tip

ID = Qt.ItemDataRole.UserRole + 1
#: Hit: while there is a search
HIT = Qt.ItemDataRole.UserRole + 2
#: str, of a heading: the folder it stands for, None for other headings
FOLDER = Qt.ItemDataRole.UserRole + 3
PINNED = Qt.ItemDataRole.UserRole + 4
#: Rows handed out at once: laying out ten thousand of them would take longer than looking at the first.
BATCH = 300
#: And of what a search has found: each is read for the place.
FOUND_BATCH = 100
_AGES = (mark("Today"), mark("Yesterday"), mark("Previous 7 days"), mark("Older"))

Index = QModelIndex | QPersistentModelIndex


def ages(now: float) -> list[tuple[float, str]]:
    """(start, heading): a chat stands under the first heading whose start is not after its last change.

    Seconds since the epoch, by the local calendar.
    """
    today = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    starts = [(today - timedelta(days=days)).timestamp() for days in (0, 1, 7)]
    return list(zip([*starts, float("-inf")], _AGES, strict=True))


def group_of(changed: float, now: float) -> str:
    """The heading a chat stands under."""
    return next(heading for start, heading in ages(now) if changed >= start)


class Row(NamedTuple):
    """A heading, or a chat. folder: of a heading that stands for one; folded: its chats are hidden."""

    text: str
    chat: ChatInfo | None = None
    folder: str | None = None
    folded: bool = False


class ChatListModel(QAbstractListModel):
    """Read anew with `load`; hands its rows out in batches."""

    def __init__(self, store: ChatStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._rows: list[Row] = []
        self._handed = 0
        self.query = ""
        #: Folders whose chats are hidden.
        self.folded: set[str] = set()
        self._hits: dict[int, Hit] = {}

    def load(self, query: str, now: float) -> int:
        """Read the chats that have the words of `query`. Returns their number."""
        chats = self._store.chats(query)
        self.beginResetModel()
        # The same list anew stays as long as it was.
        kept = self._handed if query == self.query else 0
        self.query = query
        self._hits = {}
        self._rows = list(self._arranged(chats, now))
        self._handed = min(len(self._rows), max(self._batch, kept))
        self.endResetModel()
        return len(chats)

    def _arranged(self, chats: list[ChatInfo], now: float) -> Iterator[Row]:
        """Pinned chats first, then folders by name, then the others by age."""
        pinned = [chat for chat in chats if chat.pinned]
        if pinned:
            yield Row(tr("Pinned"))
            yield from (Row(chat.title, chat) for chat in pinned)
        for folder in sorted({chat.folder for chat in chats if chat.folder and not chat.pinned}, key=str.casefold):
            # What a search has found is shown wherever it is.
            folded = folder in self.folded and not self.query
            yield Row(folder, None, folder, folded)
            if not folded:
                inside = (chat for chat in chats if chat.folder == folder and not chat.pinned)
                yield from (Row(chat.title, chat) for chat in inside)
        starts = iter(ages(now))
        start = float("inf")
        for chat in chats:
            if not chat.pinned and not chat.folder:
                if chat.updated < start:
                    start, age = next((start, age) for start, age in starts if chat.updated >= start)
                    yield Row(tr(age))
                yield Row(chat.title, chat)

    @property
    def _batch(self) -> int:
        return FOUND_BATCH if self.query else BATCH

    @property
    def rows(self) -> list[Row]:
        return self._rows

    def first(self) -> int | None:
        """The chat in the first row that has one."""
        return next((row.chat.id for row in self._rows if row.chat is not None), None)

    def place_of(self, chat_id: int) -> int | None:
        """The row of a chat that was handed out."""
        for place, row in enumerate(self._rows[: self._handed]):
            if row.chat is not None and row.chat.id == chat_id:
                return place
        return None

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else self._handed

    def canFetchMore(self, parent: Index) -> bool:
        return not parent.isValid() and self._handed < len(self._rows)

    def fetchMore(self, parent: Index) -> None:
        last = min(len(self._rows), self._handed + self._batch)
        self.beginInsertRows(QModelIndex(), self._handed, last - 1)
        self._handed = last
        self.endInsertRows()

    def flags(self, index: Index) -> Qt.ItemFlag:
        if not index.isValid():
            return Qt.ItemFlag.NoItemFlags
        row = self._rows[index.row()]
        if row.chat is None:
            return Qt.ItemFlag.NoItemFlags if row.folder is None else Qt.ItemFlag.ItemIsEnabled
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsEditable

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        row = self._rows[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole):
            return row.text
        if role == FOLDER:
            return row.folder
        if role == Qt.ItemDataRole.AccessibleDescriptionRole and row.folder is not None:
            return tr("Folder, collapsed") if row.folded else tr("Folder")
        if row.chat is None:
            return None
        if role == ID:
            return row.chat.id
        if role == PINNED:
            return row.chat.pinned
        if role == Qt.ItemDataRole.ToolTipRole:
            hit = self._hit(row.chat.id) if self.query else None
            return plain_tip(f"{row.text}\n{hit.line}" if hit is not None and hit.excerpt else row.text)
        if role in (HIT, Qt.ItemDataRole.AccessibleDescriptionRole) and self.query:
            hit = self._hit(row.chat.id)
            return hit if role == HIT else hit.line
        return None

    def is_folded(self, index: Index) -> bool:
        return self._rows[index.row()].folded

    def _hit(self, chat_id: int) -> Hit:
        if chat_id not in self._hits:
            self._hits[chat_id] = self._store.find_in(chat_id, self.query)
        return self._hits[chat_id]
