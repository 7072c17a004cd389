"""Everything can be reached with Tab, has a name, and shows that it has the focus."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractSpinBox, QApplication, QComboBox, QWidget
from pytestqt.qtbot import QtBot

from app import tasks
from app.host import EngineHost
from app.main_window import MainWindow
from app.settings.store import SettingsStore

LONG = 20_000


@pytest.fixture
def window(host: EngineHost, settings: SettingsStore, qtbot: QtBot) -> Iterator[MainWindow]:
    settings.change(stage=True, recent=["/models/a.gguf"])
    made = MainWindow(host, settings, demo_is_here=lambda: True)
    made.resize(1400, 900)
    qtbot.addWidget(made)
    made.show()
    qtbot.waitUntil(lambda: made.chat_page is not None, timeout=LONG)
    made.store.create_chat("A question")
    tasks.finish()
    made.raise_()
    made.activateWindow()
    qtbot.waitUntil(made.isActiveWindow, timeout=LONG)
    yield made
    made.close()


def stops(window: MainWindow) -> Iterator[QWidget]:
    """What Tab goes through, once around; each has the focus while it is given."""
    seen: list[QWidget] = []
    while len(seen) < 300:
        # A key, not `focusNextChild`: what lies out of sight is scrolled to.
        QTest.keyClick(window.focusWidget() or window, Qt.Key.Key_Tab)
        focus = window.focusWidget()
        if focus is None or focus in seen:
            return
        seen.append(focus)
        yield focus
        focus.setFocus(Qt.FocusReason.TabFocusReason)


def name_of(widget: QWidget) -> str:
    owner = widget.parentWidget()
    if isinstance(owner, (QComboBox, QAbstractSpinBox)) or type(owner).__name__ == "QKeySequenceEdit":
        widget = owner
    return widget.accessibleName() or getattr(widget, "text", lambda: "")()


def picture(window: MainWindow, widget: QWidget) -> QImage:
    """The widget with a little around it: some frames are drawn by whom it lies in."""
    area = widget.rect().adjusted(-24, -24, 24, 24)
    area.moveTo(widget.mapTo(window, area.topLeft()))
    return window.grab(area).toImage()


#: Pages with every kind of control there is.
PLACES = ["chat", "models", "hardware", "settings:answers", "settings:network", "settings:shortcuts"]


@pytest.mark.parametrize("place", PLACES)
def test_what_tab_reaches_has_a_name_and_shows_the_focus(window: MainWindow, qtbot: QtBot, place: str) -> None:
    page, _, section = place.partition(":")
    window.show_setting(section) if section else window.show_page(page)
    tasks.finish()
    QApplication.processEvents()
    unseen, count = [], 0
    for widget in stops(window):
        count += 1
        assert name_of(widget), widget
        assert widget.isVisible(), widget
        focused = picture(window, widget)
        widget.clearFocus()
        if picture(window, widget) == focused:
            unseen.append((type(widget).__name__, name_of(widget)))
    assert count > 5
    assert unseen == []


def test_tab_goes_down_the_sidebar(window: MainWindow) -> None:
    window.sidebar.menu_button.setFocus()
    column = [widget for widget in stops(window) if window.sidebar.isAncestorOf(widget)]
    tops = [widget.mapTo(window, widget.rect().center()).y() for widget in column if widget.isVisible()]
    first = tops.index(min(tops))
    assert len(tops) >= 4
    assert tops[first:] + tops[:first] == sorted(tops)
