"""At the largest zoom, in a window of 1024 x 700, no control is cut, in English and in Korean."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes import make_report
from PySide6.QtCore import QPoint, QRect
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLineEdit,
    QScrollArea,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app import tasks
from app.host import EngineHost
from app.main_window import MainWindow
from app.settings.options import Page
from app.settings.pages import PAGES
from app.settings.store import SettingsStore
from app.wizard.wizard import SetupWizard
from engine.hardware.report import MemoryReport

LONG = 20_000
CONTROLS = (QAbstractButton, QAbstractSpinBox, QComboBox, QLineEdit)
MEASURED = make_report(memory=MemoryReport(64_000_000_000, 50_000_000_000, {"8": 52.0}))


@pytest.fixture(params=["en", "ko"])
def window(
    request: pytest.FixtureRequest,
    host: EngineHost,
    settings: SettingsStore,
    load: Callable[..., None],
    qtbot: QtBot,
) -> MainWindow:
    settings.change(zoom=2.0, language=request.param)
    made = MainWindow(host, settings, None, lambda: True, lambda progress: MEASURED)
    made.resize(1024, 700)
    qtbot.addWidget(made)
    made.show()
    qtbot.waitUntil(lambda: made.chat_page is not None, timeout=LONG)
    load(host)
    tasks.finish()
    yield made
    made.close()
    settings.change(zoom=1.0)


def cut(window: QWidget) -> list[str]:
    """Controls whose sides are out of sight, or that have no room for what they say."""
    for _ in range(3):  # a scroll bar that comes takes room, and so on
        QApplication.processEvents()
    found = []
    for kind in CONTROLS:
        for control in window.findChildren(kind):
            if not control.isVisible() or control.visibleRegion().isEmpty():
                continue
            # A list scrolls up and down, never sideways.
            around = control.parentWidget()
            while around is not None and not isinstance(around.parentWidget(), QScrollArea):
                around = around.parentWidget() if around is not window else None
            area = window if around is None else around
            place = QRect(control.mapTo(area, QPoint()), control.size())
            sides = place.left() < 0 or place.right() >= area.width()
            says = isinstance(control, QAbstractButton) and bool(control.text())
            narrow = says and control.width() < control.minimumSizeHint().width()
            if sides or narrow:
                name = control.accessibleName() or (control.text() if says else type(control).__name__)
                found.append(f"{name}: {place.getRect()} in {area.width()}")
    return found


@pytest.mark.parametrize("page", ["chat", "models", "hardware"])
def test_pages(window: MainWindow, page: str) -> None:
    window.show_page(page)
    tasks.finish()
    assert cut(window) == []


def test_settings(window: MainWindow) -> None:
    for page in PAGES:
        assert isinstance(page, Page)
        window.show_setting(page.key)
        assert cut(window) == [], page.key


def test_chat_with_its_panels(window: MainWindow, settings: SettingsStore) -> None:
    window.chat_page.show_performance(True)
    assert cut(window) == []
    window.chat_page.show_performance(False)
    settings.change(stage=True)
    assert cut(window) == []
    settings.change(stage=False)
    window.chat_page.open_options()
    assert cut(window.chat_page.options) == []
    window.chat_page.options.close()
    window.open_palette()
    assert cut(window.palette_box) == []
    window.open_palette()


def test_the_wizard(window: MainWindow) -> None:
    window.open_wizard()
    wizard = next(w for w in QApplication.topLevelWidgets() if isinstance(w, SetupWizard))
    wizard.resize(980, 640)
    for _ in range(4):
        tasks.finish()
        assert cut(wizard) == []
        wizard.next()
    wizard.reject()
