"""The chat list as it is drawn and as keys and pointer move in it."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QModelIndex, QPoint, QPointF, QRect, QRectF, QSize, Qt, Signal, Slot
from PySide6.QtGui import (
    QFocusEvent,
    QFont,
    QFontMetrics,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPen,
    QTextCharFormat,
    QTextLayout,
    QTextOption,
)
from PySide6.QtWidgets import (
    QAbstractItemView,
    QLineEdit,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.chat.list_model import FOLDER, HIT, ID, ChatListModel, Index
from app.chat.storage.records import Hit
from app.chat.storage.search import places
from app.language import tr
from app.theme import theme
from app.theme.icons import make_pixmap

CHAT_ROW, HIT_ROW, GROUP_ROW = 36, 56, 32
FILE_SIGN = 12
#: The mark of a chat that is being answered.
DOT = 6
#: The part of a hovered row that opens its menu.
MENU_WIDTH = 30
ARROW = 12


class _Delegate(QStyledItemDelegate):
    """Draws headings and chats in the theme's colours."""

    def __init__(self, view: ChatView) -> None:
        super().__init__(view)
        self._view = view

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        if not index.data(ID):
            return QSize(0, theme().px(GROUP_ROW))
        hit = index.data(HIT)
        return QSize(0, theme().px(HIT_ROW if hit is not None and hit.excerpt else CHAT_ROW))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if index.data(ID):
            self._paint_chat(painter, option, index)
        else:
            self._paint_heading(painter, option, index)
        painter.restore()

    def _paint_heading(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        font = QFont(option.font)
        font.setPixelSize(max(1, font.pixelSize() - 3))
        font.setWeight(QFont.Weight.DemiBold)
        painter.setFont(font)
        painter.setPen(theme().colour("faint"))
        box: QRect = option.rect.adjusted(8, 0, -8, -5)
        if index.data(FOLDER) is not None:
            model = index.model()
            assert isinstance(model, ChatListModel)
            name = "chevron-right" if model.is_folded(index) else "chevron-down"
            picture = make_pixmap(name, theme().tokens.faint, ARROW, self._view.devicePixelRatioF())
            painter.drawPixmap(box.right() - ARROW, box.bottom() - ARROW - 1, picture)
            box = box.adjusted(0, 0, -ARROW - 6, 0)
        text = QFontMetrics(font).elidedText(index.data(), Qt.TextElideMode.ElideRight, box.width())
        painter.drawText(box, Qt.AlignmentFlag.AlignBottom, text)

    def _paint_chat(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        colours, chat = theme(), index.data(ID)
        current = chat == self._view.current
        row = option.rect.adjusted(1, 1, -1, -1)
        hovered = bool(option.state & QStyle.StateFlag.State_MouseOver)
        if current or hovered:
            painter.setBrush(colours.colour("panel" if current else "hover"))
            painter.setPen(colours.colour("line") if current else Qt.PenStyle.NoPen)
            painter.drawRoundedRect(row, 8, 8)
        if self._view.by_keyboard and option.state & QStyle.StateFlag.State_Selected:
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(colours.colour("accent"), 2))
            painter.drawRoundedRect(row, 8, 8)
        font = QFont(option.font)
        if current:
            font.setWeight(QFont.Weight.Medium)
        inside = row.adjusted(8, 0, -8, 0)
        if hovered:
            inside.setRight(row.right() - MENU_WIDTH)
            self._paint_dots(painter, option.rect)
        elif chat == self._view.answering:
            inside.adjust(0, 0, -DOT - 8, 0)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colours.colour("accent"))
            painter.drawEllipse(QRectF(inside.right() + 8, row.center().y() - DOT / 2, DOT, DOT))
        words = self._view.words
        ink = "text" if current or hovered else "muted"
        hit: Hit | None = index.data(HIT)
        if hit is None or not hit.excerpt:
            _write(painter, inside, font, index.data(), words, ink)
            return
        half = inside.height() // 2
        _write(painter, inside.adjusted(0, 5, 0, -half + 3), font, index.data(), words, "text")
        small = QFont(option.font)
        small.setPixelSize(max(1, small.pixelSize() - 2))
        below = inside.adjusted(0, half - 1, 0, -5)
        if hit.file:
            # The sign instead of the name: the words that were looked for need the room.
            side = theme().px(FILE_SIGN)
            sign = make_pixmap("file", theme().tokens.muted, side, self._view.devicePixelRatioF())
            painter.drawPixmap(below.left(), below.center().y() - side // 2, sign)
            below.setLeft(below.left() + side + 4)
        _write(painter, below, small, hit.excerpt, words, "muted")

    def _paint_dots(self, painter: QPainter, box: QRect) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme().colour("muted"))
        middle = self._view.menu_area(box).center()
        for step in (-5, 0, 5):
            painter.drawEllipse(QPointF(middle.x() + step, middle.y() + 0.5), 1.5, 1.5)

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: Index) -> QWidget:
        editor = QLineEdit(parent)
        editor.setAccessibleName(tr("Chat name"))
        return editor

    def setModelData(self, editor: QWidget, model: Any, index: Index) -> None:
        assert isinstance(editor, QLineEdit)
        self._view.renamed.emit(index.data(ID), editor.text())


def _write(painter: QPainter, box: QRect, font: QFont, text: str, words: list[str], ink: str) -> None:
    """One line of text, in the middle of the box's height, with the words that were looked for marked."""
    bold = QFont(font)
    bold.setWeight(QFont.Weight.DemiBold)
    # Marked words take more room.
    metrics = QFontMetrics(bold if places(text, words) else font)
    shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, box.width())
    layout = QTextLayout(shown, font)
    option = QTextOption()
    option.setWrapMode(QTextOption.WrapMode.NoWrap)
    layout.setTextOption(option)
    formats = []
    for start, end in places(shown, words):
        piece = QTextLayout.FormatRange()
        piece.start, piece.length = start, end - start
        piece.format = QTextCharFormat()
        piece.format.setForeground(theme().colour("accent"))
        piece.format.setFontWeight(QFont.Weight.DemiBold)
        formats.append(piece)
    layout.setFormats(formats)
    layout.beginLayout()
    line = layout.createLine()
    line.setLineWidth(box.width())
    layout.endLayout()
    painter.setPen(theme().colour(ink))
    top = box.top() + (box.height() - metrics.height()) / 2
    painter.save()
    painter.setClipRect(box)
    layout.draw(painter, QPointF(box.left(), top))
    painter.restore()


class ChatView(QListView):
    """The rows. Enter opens a chat, F2 renames it, Delete deletes it, Ctrl+Z brings it back; Enter on a folder opens or
    closes it.
    """

    chosen = Signal(int)
    renamed = Signal(int, str)
    deleted = Signal(int)
    #: What was deleted last is wanted back.
    undoWanted = Signal()
    #: str: a folder whose chats are to be shown or hidden
    folderToggled = Signal(str)
    #: QModelIndex, QPoint: the menu of a row, or of none, asked for at that place of the screen
    menuWanted = Signal(QModelIndex, QPoint)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.current = self.answering = 0
        #: What is looked for.
        self.words: list[str] = []
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
        self.setAccessibleName(tr("Chats"))
        self.setItemDelegate(_Delegate(self))
        self.customContextMenuRequested.connect(self._ask_for_menu)
        self.clicked.connect(self._choose)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        index = self.currentIndex()
        if self.state() == QAbstractItemView.State.EditingState:
            return  # a key that the field with the name had no use for: Enter there does not open the chat
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and index.isValid():
            self._choose(index)
        elif event.key() == Qt.Key.Key_Delete and index.data(ID):
            self.deleted.emit(index.data(ID))
        elif event.matches(QKeySequence.StandardKey.Undo):
            self.undoWanted.emit()
        elif event.key() == Qt.Key.Key_Menu and index.isValid():
            self.menuWanted.emit(index, self.viewport().mapToGlobal(self.visualRect(index).bottomLeft()))
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
            self._ask_for_menu(place)
        else:
            super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        super().mouseMoveEvent(event)
        over = self.indexAt(event.position().toPoint())
        opens = over.isValid() and (over.data(ID) or over.data(FOLDER) is not None)
        self.viewport().setCursor(Qt.CursorShape.PointingHandCursor if opens else Qt.CursorShape.ArrowCursor)

    def focusInEvent(self, event: QFocusEvent) -> None:
        reasons = (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason, Qt.FocusReason.ShortcutFocusReason)
        self.by_keyboard = event.reason() in reasons
        super().focusInEvent(event)
        if self.by_keyboard and not self.selectedIndexes():
            # Qt goes to the first row, which is a heading and shows no focus.
            rows = (self.model().index(row, 0) for row in range(self.model().rowCount()))
            first = next((index for index in rows if index.flags() & Qt.ItemFlag.ItemIsSelectable), None)
            if first is not None:
                self.setCurrentIndex(first)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self.by_keyboard = False
        super().focusOutEvent(event)

    @Slot(QPoint)
    def _ask_for_menu(self, position: QPoint) -> None:
        self.menuWanted.emit(self.indexAt(position), self.viewport().mapToGlobal(position))

    @Slot(QModelIndex)
    def _choose(self, index: QModelIndex) -> None:
        if index.data(ID):
            self.chosen.emit(index.data(ID))
        elif index.data(FOLDER) is not None:
            self.folderToggled.emit(index.data(FOLDER))
