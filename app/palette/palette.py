"""The palette over the window: a field, and what fits it below. Esc or a click elsewhere closes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import (
    QAbstractListModel,
    QEvent,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QRect,
    QSize,
    Qt,
    Slot,
)
from PySide6.QtGui import QFont, QFontMetrics, QKeyEvent, QMouseEvent, QPainter
from PySide6.QtWidgets import (
    QFrame,
    QLineEdit,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)
from shiboken6 import isValid

from app.language import tr
from app.palette import entries
from app.palette.entries import Entry, Found
from app.theme import theme
from app.theme.icons import make_pixmap
from app.widgets.labels import label

if TYPE_CHECKING:
    from app.main_window import MainWindow

WIDTH, ROW, SHOWN_ROWS = 620, 38, 9
#: Keys in the field that move in the list.
_MOVES = (Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown)
_Index = QModelIndex | QPersistentModelIndex


class _Results(QAbstractListModel):
    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.found: list[Found] = []

    def show_found(self, found: list[Found]) -> None:
        self.beginResetModel()
        self.found = found
        self.endResetModel()

    def rowCount(self, parent: _Index | None = None) -> int:
        return len(self.found)

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        entry = self.found[index.row()].entry
        if role == Qt.ItemDataRole.DisplayRole:
            return entry.title
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return ", ".join(filter(None, (entry.title, entry.kind, entry.detail)))
        return None


class _Delegate(QStyledItemDelegate):
    """Icon, title with the letters that were found in bold, detail and kind at the right."""

    def __init__(self, results: _Results) -> None:
        super().__init__(results)
        self._results = results

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        return QSize(0, theme().px(ROW))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        found, look = self._results.found[index.row()], theme()
        entry, area = found.entry, option.rect.adjusted(4, 1, -4, -1)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if option.state & QStyle.StateFlag.State_Selected:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(look.colour("hover"))
            painter.drawRoundedRect(area, 8, 8)
        size, gap = look.px(16), look.px(10)
        left = area.left() + gap
        if entry.icon:
            scale = painter.device().devicePixelRatioF()
            icon = make_pixmap(entry.icon, look.tokens.muted, size, scale)
            painter.drawPixmap(left, area.center().y() - size // 2 + 1, icon)
        left += size + gap
        small = QFont(option.font)
        small.setPixelSize(max(1, option.font.pixelSize() - look.px(2)))
        painter.setFont(small)
        metrics = QFontMetrics(small)
        right = area.right() - gap
        for text, token in ((entry.kind, "faint"), (entry.detail, "muted")):
            if text:
                room = (right - left) // 2
                shown = metrics.elidedText(text, Qt.TextElideMode.ElideMiddle, room)
                width = metrics.horizontalAdvance(shown)
                painter.setPen(look.colour(token))
                place = QRect(right - width, area.top(), width, area.height())
                painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, shown)
                right -= width + 2 * gap
        self._draw_title(painter, option.font, QRect(left, area.top(), right - left, area.height()), found)
        painter.restore()

    def _draw_title(self, painter: QPainter, font: QFont, area: QRect, found: Found) -> None:
        bold = QFont(font)
        bold.setWeight(QFont.Weight.Bold)
        painter.setPen(theme().colour("text"))
        title = QFontMetrics(bold).elidedText(found.entry.title, Qt.TextElideMode.ElideRight, area.width())
        marked, left, at = set(found.places), area.left(), 0
        while at < len(title):
            strong, end = at in marked, at
            while end < len(title) and (end in marked) == strong:
                end += 1
            part = title[at:end]
            painter.setFont(bold if strong else font)
            width = QFontMetrics(painter.font()).horizontalAdvance(part)
            place = QRect(left, area.top(), width + 2, area.height())
            painter.drawText(place, Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine, part)
            left, at = left + width, end


class CommandPalette(QWidget):
    """Lies over the whole window, so that a click beside it closes it."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._before = window.focusWidget()
        self._entries: list[Entry] = []
        self._chats: list[Entry] | None = None
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setAccessibleName(tr("Find anything"))

        self.field = QLineEdit()
        self.field.setPlaceholderText(tr("Find a command, chat, model or setting"))
        self.field.setAccessibleName(tr("Find a command, chat, model or setting"))
        self.field.textChanged.connect(self._search)
        self.field.installEventFilter(self)
        self._results = _Results(self)
        self.list = QListView()
        self.list.setModel(self._results)
        self.list.setItemDelegate(_Delegate(self._results))
        self.list.setAccessibleName(tr("Results"))
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.list.setMouseTracking(True)
        self.list.setProperty("frameless", True)
        self.list.setUniformItemSizes(True)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.clicked.connect(self._choose)
        self._nothing = label(tr("No results."), "muted")
        self._nothing.setContentsMargins(14, 6, 14, 8)
        self._card = QFrame(self)
        self._card.setProperty("surface", "palette")
        box = QVBoxLayout(self._card)
        box.setContentsMargins(10, 10, 10, 10)
        box.setSpacing(6)
        box.addWidget(self.field)
        box.addWidget(self.list)
        box.addWidget(self._nothing)

        window.installEventFilter(self)
        for source in (entries.commands, entries.models, entries.settings):
            self._entries += source(window)
        self._search("")
        self._place()
        self.show()
        self.raise_()
        self.field.setFocus(Qt.FocusReason.PopupFocusReason)

    @property
    def titles(self) -> list[str]:
        """What is listed."""
        return [found.entry.title for found in self._results.found]

    @Slot(str)
    def _search(self, query: str) -> None:
        if query.strip() and self._chats is None:
            self._chats = entries.chats(self._window)
        self._results.show_found(entries.search([*self._entries, *(self._chats or [])], query))
        count = len(self._results.found)
        self.list.setVisible(count > 0)
        self._nothing.setVisible(count == 0)
        if count:
            self.list.setCurrentIndex(self._results.index(0))
            self.list.scrollToTop()
        self._place()

    def _place(self) -> None:
        """At the top of the window, in its middle, as tall as what was found."""
        room = self._window.rect()
        self.setGeometry(room)
        width = min(theme().px(WIDTH), room.width() - 40)
        rows = min(len(self._results.found), SHOWN_ROWS)
        # Below a low window's field there is room for fewer.
        rows = max(1, min(rows, (room.height() - theme().px(140)) // theme().px(ROW)))
        self.list.setFixedHeight(rows * theme().px(ROW) + 4)
        top = min(theme().px(72), room.height() // 8)
        self._card.setFixedWidth(width)
        self._card.adjustSize()
        self._card.move((room.width() - width) // 2, top)

    @Slot(QModelIndex)
    def _choose(self, index: QModelIndex) -> None:
        if not index.isValid():
            return
        run = self._results.found[index.row()].entry.run
        self.close()
        run()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._window and event.type() == QEvent.Type.Resize:
            self._place()
        if watched is self.field and isinstance(event, QKeyEvent):
            # Before the window's shortcuts: here Esc closes the palette, and stops no answer.
            if event.type() == QEvent.Type.ShortcutOverride and event.key() == Qt.Key.Key_Escape:
                event.accept()
                return True
            if event.type() == QEvent.Type.KeyPress and self._press(event):
                return True
        return super().eventFilter(watched, event)

    def _press(self, event: QKeyEvent) -> bool:
        key = Qt.Key(event.key())
        if key == Qt.Key.Key_Escape:
            self.close()
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._choose(self.list.currentIndex())
        elif key in (Qt.Key.Key_Tab, Qt.Key.Key_Backtab):
            pass  # there is nowhere else to go
        elif key in _MOVES:
            self._move(key)
        else:
            return False
        return True

    def _move(self, key: Qt.Key) -> None:
        count = len(self._results.found)
        if not count:
            return
        now = self.list.currentIndex().row()
        if key in (Qt.Key.Key_PageUp, Qt.Key.Key_PageDown):
            row = min(max(now + (SHOWN_ROWS if key == Qt.Key.Key_PageDown else -SHOWN_ROWS), 0), count - 1)
        else:
            row = (now + (1 if key == Qt.Key.Key_Down else -1)) % count
        self.list.setCurrentIndex(self._results.index(row))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if not self._card.geometry().contains(event.position().toPoint()):
            self.close()

    def closeEvent(self, event: QEvent) -> None:
        self._window.removeEventFilter(self)
        if self._before is not None and isValid(self._before) and self._before.isVisible():
            self._before.setFocus(Qt.FocusReason.PopupFocusReason)
        super().closeEvent(event)
