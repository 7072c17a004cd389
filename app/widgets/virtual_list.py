"""A list of any length made of real widgets, of which only those in view exist."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QApplication, QFrame, QScrollArea, QWidget

from app.widgets.tab_order import tab_in_order_made

Item = TypeVar("Item")

#: Beyond the view, in pixels, where widgets are kept ready.
_MARGIN = 240


class VirtualList(QScrollArea, Generic[Item]):
    """make: a new widget for items of a kind; show: puts an item into such a widget.

    key:    tells items apart: a widget keeps its item (and with it the focus) as long as that is in view
    kind:   items of different kinds have different widgets
    height: of an item's widget at the list's present width
    """

    def __init__(
        self,
        make: Callable[[str], QWidget],
        show: Callable[[QWidget, Item], None],
        key: Callable[[Item], Hashable],
        kind: Callable[[Item], str],
        height: Callable[[Item], int],
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._make, self._show, self._key, self._kind, self._height = make, show, key, kind, height
        self._items: Sequence[Item] = ()
        self._tops: list[int] = [0]
        self._shown: dict[Hashable, tuple[Item, QWidget]] = {}
        self._spare: dict[str, list[QWidget]] = {}
        self._page = QWidget()
        self._page.setProperty("surface", "page")
        self.setWidget(self._page)
        self.setWidgetResizable(False)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.verticalScrollBar().setSingleStep(24)
        self.verticalScrollBar().valueChanged.connect(self._fill)

    @property
    def items(self) -> Sequence[Item]:
        return self._items

    @property
    def widgets(self) -> list[tuple[Item, QWidget]]:
        """What is in view or close to it, from top to bottom."""
        return sorted(self._shown.values(), key=lambda pair: pair[1].y())

    def set_items(self, items: Sequence[Item]) -> None:
        """Show these. Widgets of items that stay keep their place, their focus and what is typed in them."""
        self._items = items
        self._lay_out()

    def widget_of(self, key: Hashable) -> QWidget | None:
        """The widget that shows this item now."""
        found = self._shown.get(key)
        return None if found is None else found[1]

    def reveal(self, key: Hashable) -> QWidget | None:
        """Scroll to an item; its widget, None when there is no such item."""
        for number, item in enumerate(self._items):
            if self._key(item) == key:
                self._reveal_number(number)
                return self.widget_of(key)
        return None

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Tab at the last widget that exists goes on to the next item, which only then gets one."""
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent) and isinstance(watched, QWidget):
            steps = {Qt.Key.Key_Tab: 1, Qt.Key.Key_Backtab: -1}
            if event.key() in steps:
                self._make_next_to(watched, steps[Qt.Key(event.key())])
        return super().eventFilter(watched, event)

    def _lay_out(self) -> None:
        top, tops = 0, [0]
        for item in self._items:
            top += self._height(item)
            tops.append(top)
        self._tops = tops
        self._page.resize(self.viewport().width(), max(top, self.viewport().height()))
        self._fill(again=True)

    def _fill(self, _: int = 0, again: bool = False) -> None:
        top = self.verticalScrollBar().value()
        first = max(0, bisect_right(self._tops, top - _MARGIN) - 1)
        last = min(len(self._items), bisect_right(self._tops, top + self.viewport().height() + _MARGIN))
        wanted = {self._key(self._items[n]): n for n in range(first, last)}
        focus = QApplication.focusWidget()
        for key in [key for key in self._shown if key not in wanted]:
            item, widget = self._shown[key]
            if not again and focus is not None and widget.isAncestorOf(focus):
                continue  # scrolled out of view, but the keyboard is still there
            del self._shown[key]
            widget.hide()
            self._spare.setdefault(self._kind(item), []).append(widget)
        width = self._page.width()
        for key, number in wanted.items():
            item = self._items[number]
            before = self._shown.get(key)
            if before is not None and self._kind(before[0]) != self._kind(item):
                before[1].hide()
                self._spare.setdefault(self._kind(before[0]), []).append(before[1])
                before = None
            widget = self._take(self._kind(item)) if before is None else before[1]
            if before is None or again:
                self._show(widget, item)
            self._shown[key] = (item, widget)
            widget.setGeometry(0, self._tops[number], width, self._tops[number + 1] - self._tops[number])
            if before is None:
                widget.show()
        if again:
            self._order_focus()

    def _take(self, kind: str) -> QWidget:
        spare = self._spare.get(kind)
        if spare:
            return spare.pop()
        widget = self._make(kind)
        widget.setParent(self._page)
        for child in widget.findChildren(QWidget):
            child.installEventFilter(self)
        return widget

    def _order_focus(self) -> None:
        """Tab goes from top to bottom, whatever order the widgets were made in."""
        before: QWidget | None = None
        for _, widget in self.widgets:
            before = tab_in_order_made(widget, before)

    def _make_next_to(self, widget: QWidget, step: int) -> None:
        for key, (_, shown) in self._shown.items():
            if shown.isAncestorOf(widget):
                number = next((n for n, item in enumerate(self._items) if self._key(item) == key), None)
                if number is not None and 0 <= number + step < len(self._items):
                    self._reveal_number(number + step)
                return

    def _reveal_number(self, number: int) -> None:
        bar, top, bottom = self.verticalScrollBar(), self._tops[number], self._tops[number + 1]
        if top < bar.value():
            bar.setValue(top)
        elif bottom > bar.value() + self.viewport().height():
            bar.setValue(bottom - self.viewport().height())
        self._order_focus()
