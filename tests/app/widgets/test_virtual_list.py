"""A list of any length: few widgets, the right ones, the keyboard reaches all of them."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPushButton, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from app.widgets.virtual_list import VirtualList

HEIGHT = 40


class Row(QWidget):
    made = 0

    def __init__(self) -> None:
        super().__init__()
        Row.made += 1
        self.button = QPushButton()
        box = QVBoxLayout(self)
        box.addWidget(self.button)


def show(widget: Row, item: int) -> None:
    widget.button.setText(str(item))


@pytest.fixture
def made(qtbot: QtBot) -> VirtualList[int]:
    Row.made = 0
    listed: VirtualList[int] = VirtualList(lambda kind: Row(), show, lambda i: i, lambda i: "row", lambda i: HEIGHT)
    qtbot.addWidget(listed)
    listed.resize(300, 400)
    listed.show()
    listed.set_items(range(10_000))
    return listed


def shown(listed: VirtualList[int]) -> list[int]:
    return [item for item, _ in listed.widgets]


def test_only_what_is_in_view_has_widgets(made: VirtualList[int]) -> None:
    assert shown(made) == list(range(17))
    assert made.widget().height() == 10_000 * HEIGHT


def test_scrolling_uses_the_same_widgets_again(made: VirtualList[int]) -> None:
    for value in range(0, 300_000, 5_000):
        made.verticalScrollBar().setValue(value)
        items = shown(made)
        top = value // HEIGHT
        assert set(range(top, top + 10)) <= set(items)
        for item, widget in made.widgets:
            assert widget.button.text() == str(item)
            assert widget.y() == item * HEIGHT
    assert Row.made < 50


def test_an_item_that_stays_keeps_its_widget_and_focus(made: VirtualList[int]) -> None:
    widget = made.widget_of(5)
    widget.button.setFocus()
    made.set_items([n for n in range(10_000) if n != 3])
    assert made.widget_of(5) is widget
    assert widget.y() == 4 * HEIGHT
    assert QApplication.focusWidget() in (widget.button, None)  # no window manager, no focus


def test_items_can_become_few_and_none(made: VirtualList[int]) -> None:
    made.verticalScrollBar().setValue(200_000)
    made.set_items([1, 2])
    assert shown(made) == [1, 2]
    made.set_items([])
    assert shown(made) == []
    assert all(not row.isVisible() for row in made.widget().findChildren(Row))


def test_reveal_scrolls_to_an_item(made: VirtualList[int]) -> None:
    widget = made.reveal(7_000)
    assert widget is not None
    assert widget.button.text() == "7000"
    assert made.reveal(99_999) is None


def test_tab_reaches_items_beyond_the_view(made: VirtualList[int], qtbot: QtBot) -> None:
    with qtbot.waitActive(made):
        made.activateWindow()
    for start, key, then in ((16, Qt.Key.Key_Tab, 17), (500, Qt.Key.Key_Backtab, 499)):
        widget = made.reveal(start)
        widget.button.setFocus()
        QTest.keyClick(widget.button, key)
        assert QApplication.focusWidget() is made.widget_of(then).button
