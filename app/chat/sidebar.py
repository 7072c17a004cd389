"""The list of chats, by age, with rename, delete and undo."""

from __future__ import annotations

import time
from datetime import date, datetime
from typing import Any

from PySide6.QtCore import (
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    QPointF,
    QRect,
    QRectF,
    QSize,
    Qt,
    QTimer,
    Signal,
    Slot,
)
from PySide6.QtGui import QFocusEvent, QFont, QKeyEvent, QMouseEvent, QPainter, QPen, QStandardItem, QStandardItemModel
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QLineEdit,
    QListView,
    QMenu,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from app.chat.copy_button import link_button
from app.chat.store import ChatInfo, ChatStore
from app.theme import theme
from app.widgets.labels import ElideLabel, label

CHAT_ROW, GROUP_ROW = 36, 32
#: The mark of a chat that is being answered.
DOT = 6
#: The part of a hovered row that opens its menu.
MENU_WIDTH = 30
FILTER_MS, UNDO_MS = 120, 8000
ID = Qt.ItemDataRole.UserRole + 1

_Index = QModelIndex | QPersistentModelIndex


def group_of(changed: float, now: float) -> str:
    """The heading a chat stands under, from two times in seconds since the epoch, by the local calendar."""
    days = (date.fromtimestamp(now) - date.fromtimestamp(changed)).days
    if days <= 0:
        return "Today"
    if days == 1:
        return "Yesterday"
    return "Last week" if days <= 7 else "Older"


class _Delegate(QStyledItemDelegate):
    """Draws headings and chats in the theme's colours."""

    def __init__(self, view: ChatView) -> None:
        super().__init__(view)
        self._view = view

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        return QSize(0, CHAT_ROW if index.data(ID) else GROUP_ROW)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        colours = theme()
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        box: QRect = option.rect
        font = QFont(option.font)
        chat = index.data(ID)
        if not chat:
            font.setPixelSize(font.pixelSize() - 3)
            font.setWeight(QFont.Weight.DemiBold)
            painter.setFont(font)
            painter.setPen(colours.colour("faint"))
            painter.drawText(box.adjusted(8, 0, -8, -5), Qt.AlignmentFlag.AlignBottom, index.data())
            painter.restore()
            return
        current = chat == self._view.current
        row = box.adjusted(1, 1, -1, -1)
        hovered = bool(option.state & QStyle.StateFlag.State_MouseOver)
        if current:
            painter.setBrush(colours.colour("panel"))
            painter.setPen(colours.colour("line"))
            painter.drawRoundedRect(row, 8, 8)
        elif hovered:
            painter.setBrush(colours.colour("hover"))
            painter.setPen(Qt.PenStyle.NoPen)
            painter.drawRoundedRect(row, 8, 8)
        if self._view.by_keyboard and option.state & QStyle.StateFlag.State_Selected:
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(colours.colour("accent"), 2))
            painter.drawRoundedRect(row, 8, 8)
        if current:
            font.setWeight(QFont.Weight.Medium)
        painter.setFont(font)
        painter.setPen(colours.colour("text" if current or hovered else "muted"))
        inside = row.adjusted(8, 0, -8, 0)
        if hovered:
            inside.setRight(row.right() - MENU_WIDTH)
            painter.save()
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colours.colour("muted"))
            middle = self._view.menu_area(box).center()
            for step in (-5, 0, 5):
                painter.drawEllipse(QPointF(middle.x() + step, middle.y() + 0.5), 1.5, 1.5)
            painter.restore()
        elif chat == self._view.answering:
            inside.adjust(0, 0, -DOT - 8, 0)
            dot = QRectF(inside.right() + 8, row.center().y() - DOT / 2, DOT, DOT)
            painter.save()
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colours.colour("accent"))
            painter.drawEllipse(dot)
            painter.restore()
        text = painter.fontMetrics().elidedText(index.data(), Qt.TextElideMode.ElideRight, inside.width())
        painter.drawText(inside, Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine, text)
        painter.restore()

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: _Index) -> QWidget:
        editor = QLineEdit(parent)
        editor.setAccessibleName(self.tr("Chat name"))
        return editor

    def setModelData(self, editor: QWidget, model: Any, index: _Index) -> None:
        assert isinstance(editor, QLineEdit)
        self._view.renamed.emit(index.data(ID), editor.text())


class ChatView(QListView):
    """The rows. Enter opens a chat, F2 renames it, Delete deletes it."""

    chosen = Signal(int)
    renamed = Signal(int, str)
    deleted = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.current = self.answering = 0
        #: Whether the keyboard works here, so that its place must be seen.
        self.by_keyboard = False
        # A click opens a chat and leaves the keyboard where it is: in the message being written.
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setProperty("frameless", "true")
        self.setMouseTracking(True)
        self.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.setAccessibleName(self.tr("Chats"))
        self.setItemDelegate(_Delegate(self))
        self.customContextMenuRequested.connect(self._open_menu)
        self.clicked.connect(self._choose)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        index = self.currentIndex()
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and index.isValid():
            self._choose(index)
        elif event.key() == Qt.Key.Key_Delete and index.isValid():
            self.deleted.emit(index.data(ID))
        else:
            super().keyPressEvent(event)

    @staticmethod
    def menu_area(row: QRect) -> QRect:
        """Where a hovered row shows three dots that open its menu."""
        return QRect(row.right() - MENU_WIDTH, row.top(), MENU_WIDTH, row.height())

    def mousePressEvent(self, event: QMouseEvent) -> None:
        place = event.position().toPoint()
        index = self.indexAt(place)
        dots = index.isValid() and index.data(ID) and self.menu_area(self.visualRect(index)).contains(place)
        if dots and event.button() == Qt.MouseButton.LeftButton:
            self._open_menu(place)
        else:
            super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        super().mouseMoveEvent(event)
        over = self.indexAt(event.position().toPoint())
        self.viewport().setCursor(
            Qt.CursorShape.PointingHandCursor if over.isValid() and over.data(ID) else Qt.CursorShape.ArrowCursor
        )

    def focusInEvent(self, event: QFocusEvent) -> None:
        reasons = (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason, Qt.FocusReason.ShortcutFocusReason)
        self.by_keyboard = event.reason() in reasons
        super().focusInEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self.by_keyboard = False
        super().focusOutEvent(event)

    def menu_for(self, index: QModelIndex) -> QMenu:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        chat = index.data(ID)
        stays = QPersistentModelIndex(index)
        menu.addAction(self.tr("Rename"), lambda: self.edit(QModelIndex(stays)))
        menu.addAction(self.tr("Delete"), lambda: self.deleted.emit(chat))
        return menu

    @Slot(QPoint)
    def _open_menu(self, position: QPoint) -> None:
        index = self.indexAt(position)
        if index.isValid() and index.data(ID):
            self.menu_for(index).popup(self.viewport().mapToGlobal(position))

    @Slot(QModelIndex)
    def _choose(self, index: QModelIndex) -> None:
        if index.data(ID):
            self.chosen.emit(index.data(ID))


class ChatList(QWidget):
    """The chats of the store, always up to date."""

    chatChosen = Signal(int)

    def __init__(self, store: ChatStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._query = ""
        self._deleted: tuple[int, bool] | None = None
        self._model = QStandardItemModel(self)
        self.view = ChatView(self)
        self.view.setModel(self._model)
        self.view.chosen.connect(self.chatChosen)
        self.view.renamed.connect(self._rename)
        self.view.deleted.connect(self.delete)
        self._nothing = label("", "small", wrap=True)
        self._nothing.setContentsMargins(8, 8, 8, 0)
        self._undo_bar = QWidget(self)
        self._undo_text = ElideLabel("", "small")
        undo = link_button(self.tr("Undo"), self.tr("Undo deleting the chat"))
        undo.clicked.connect(self.undo)
        row = QHBoxLayout(self._undo_bar)
        row.setContentsMargins(8, 4, 4, 4)
        row.addWidget(self._undo_text, 1)
        row.addWidget(undo)
        self._undo_bar.hide()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self._nothing)
        column.addWidget(self.view, 1)
        column.addWidget(self._undo_bar)
        self._refresh_soon = QTimer(self, singleShot=True, interval=0)
        self._refresh_soon.timeout.connect(self.refresh)
        self._filter_soon = QTimer(self, singleShot=True, interval=FILTER_MS)
        self._filter_soon.timeout.connect(self.refresh)
        self._undo_time = QTimer(self, singleShot=True, interval=UNDO_MS)
        self._undo_time.timeout.connect(self._undo_bar.hide)
        self._midnight = QTimer(self, singleShot=True)
        self._midnight.timeout.connect(self.refresh)
        store.subscribe(self._chat_changed)
        theme().changed.connect(self.view.viewport().update)
        self.refresh()

    @property
    def rows(self) -> list[str]:
        """Headings and titles as shown, for a reader who cannot see them."""
        return [self._model.item(row).text() for row in range(self._model.rowCount())]

    @property
    def undo_shown(self) -> bool:
        return not self._undo_bar.isHidden()

    def _chat_changed(self, chat_id: int) -> None:
        self._refresh_soon.start()

    @Slot(str)
    def filter(self, text: str) -> None:
        """Show only chats in which every word of `text` occurs."""
        self._query = text.strip()
        self._filter_soon.start()

    @Slot(int)
    def set_current(self, chat_id: int) -> None:
        """Mark the chat that is open; 0 marks none."""
        if chat_id != self.view.current:
            self.view.current = chat_id
            self.view.viewport().update()

    @Slot(int)
    def set_answering(self, chat_id: int) -> None:
        """Mark the chat in which an answer is being written; 0 marks none."""
        if chat_id != self.view.answering:
            self.view.answering = chat_id
            self.view.viewport().update()

    @Slot()
    def refresh(self) -> None:
        """Read the chats anew, keeping the place."""
        self._refresh_soon.stop()
        self._filter_soon.stop()
        if self._store.closed:
            return  # the window is going
        if self.view.state() == QAbstractItemView.State.EditingState:
            self._refresh_soon.start(300)  # not under the hands of someone who is renaming
            return
        place = self.view.verticalScrollBar().value()
        selected = self.view.currentIndex().data(ID)
        self._model.clear()
        chats = self._store.chats(self._query)
        group = ""
        now = time.time()
        for chat in chats:
            if group_of(chat.updated, now) != group:
                group = group_of(chat.updated, now)
                self._model.appendRow(self._heading(group))
            self._model.appendRow(self._row(chat))
            if chat.id == selected:
                self.view.setCurrentIndex(self._model.index(self._model.rowCount() - 1, 0))
        self.view.doItemsLayout()
        self.view.verticalScrollBar().setValue(place)
        self._nothing.setText(self.tr("No chat has these words") if self._query else self.tr("No chats yet"))
        self._nothing.setVisible(not chats)
        tomorrow = datetime.now().replace(hour=23, minute=59, second=59).timestamp() + 2
        self._midnight.start(int((tomorrow - now) * 1000))

    @Slot(int)
    def delete(self, chat_id: int) -> None:
        """Hide a chat and offer to bring it back."""
        title = self._store.title(chat_id)
        if title is None:
            return
        self._deleted = (chat_id, chat_id == self.view.current)
        self._store.delete(chat_id)
        self._undo_text.setText(self.tr("Deleted “{0}”").format(title))
        self._undo_bar.show()
        self._undo_time.start()

    @Slot()
    def undo(self) -> None:
        if self._deleted is None:
            return
        (chat_id, was_open), self._deleted = self._deleted, None
        self._undo_bar.hide()
        self._store.restore(chat_id)
        if was_open:
            self.chatChosen.emit(chat_id)

    @Slot(int, str)
    def _rename(self, chat_id: int, title: str) -> None:
        self._store.rename(chat_id, title)

    def _heading(self, group: str) -> QStandardItem:
        names = {
            "Today": self.tr("Today"),
            "Yesterday": self.tr("Yesterday"),
            "Last week": self.tr("Last week"),
            "Older": self.tr("Older"),
        }
        item = QStandardItem(names[group])
        item.setFlags(Qt.ItemFlag.NoItemFlags)
        return item

    @staticmethod
    def _row(chat: ChatInfo) -> QStandardItem:
        item = QStandardItem(chat.title)
        item.setData(chat.id, ID)
        item.setToolTip(chat.title)
        item.setFlags(Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsEditable)
        return item
