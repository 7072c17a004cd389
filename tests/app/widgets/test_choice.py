"""The list of a box: used with the keyboard alone, as long as the screen allows, as wide as what is in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.theme import theme
from app.widgets.choice import Choice

COUNT = 60


@pytest.fixture(params=["light", "dark"])
def box(request: pytest.FixtureRequest, qtbot: QtBot) -> Iterator[Choice]:
    theme().set_look(request.param, 2.0, "comfortable", False)
    made = Choice("Model")
    made.addItems([f"{number}: a model of a rather long name, plan only" for number in range(COUNT)])
    made.setFixedWidth(200)
    qtbot.addWidget(made)
    made.show()
    made.setFocus()
    yield made
    theme().set_look("system", 1.0, "comfortable", False)


def press(box: Choice, key: Qt.Key, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
    QTest.keyClick(box.view() if box.view().isVisible() else box, key, modifier)


def test_by_keyboard(box: Choice) -> None:
    press(box, Qt.Key.Key_Down, Qt.KeyboardModifier.AltModifier)
    assert box.view().isVisible()
    press(box, Qt.Key.Key_Down)
    press(box, Qt.Key.Key_Down)
    press(box, Qt.Key.Key_Return)
    assert (box.view().isVisible(), box.currentIndex()) == (False, 2)
    press(box, Qt.Key.Key_Space)
    QTest.keyClicks(box.view(), "41")
    press(box, Qt.Key.Key_Return)
    assert box.currentIndex() == 41
    press(box, Qt.Key.Key_F4)
    press(box, Qt.Key.Key_Home)
    press(box, Qt.Key.Key_Escape)
    assert (box.view().isVisible(), box.currentIndex()) == (False, 41)


def test_a_long_list_scrolls_on_the_screen(box: Choice) -> None:
    box.setCurrentIndex(30)
    box.showPopup()
    view = box.view()
    assert box.screen().availableGeometry().contains(view.window().geometry())
    assert view.verticalScrollBar().isVisible()
    inside = view.viewport().rect()
    assert inside.contains(view.visualRect(view.currentIndex()))
    QTest.keyClick(view, Qt.Key.Key_End)
    last = view.visualRect(view.currentIndex())
    assert view.currentIndex().row() == COUNT - 1
    assert inside.contains(last)
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=last.center())
    assert box.currentIndex() == COUNT - 1
