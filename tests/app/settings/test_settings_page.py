"""The Settings page and the store say the same."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from app.actions import ACTIONS
from app.settings.page import SettingsPage
from app.settings.store import SettingsStore


def test_choices_reach_the_store(settings: SettingsStore, qtbot: QtBot) -> None:
    page = SettingsPage(settings)
    qtbot.addWidget(page)
    page.theme.setCurrentIndex(page.theme.findData("dark"))
    page.theme.activated.emit(page.theme.currentIndex())
    page.context.setCurrentIndex(page.context.findData(16384))
    page.context.activated.emit(page.context.currentIndex())
    page.threads.setValue(6)
    assert (settings.values.theme, settings.values.context, settings.values.threads) == ("dark", 16384, 6)
    page.threads.setValue(0)
    assert settings.values.threads is None


def test_the_page_shows_what_the_store_holds(settings: SettingsStore, qtbot: QtBot) -> None:
    settings.change(theme="dark", context=5000, threads=3, models_folder="/big/models", start="demo")
    page = SettingsPage(settings)
    qtbot.addWidget(page)
    shown = (page.theme.currentData(), page.context.currentData(), page.threads.value(), page.start.currentData())
    assert shown == ("dark", 5000, 3, "demo")
    assert page.folder.text() == "/big/models"
    settings.change(models_folder=None)
    assert page.default_folder.isHidden()


def test_every_shortcut_is_listed(settings: SettingsStore, qtbot: QtBot) -> None:
    page = SettingsPage(settings)
    qtbot.addWidget(page)
    said = {label.text() for label in page.findChildren(QLabel)}
    assert {spec.text.rstrip("…") for spec in ACTIONS} <= said


def test_sampling_and_the_system_prompt_reach_the_store(settings: SettingsStore, qtbot: QtBot) -> None:
    page = SettingsPage(settings)
    qtbot.addWidget(page)
    page.show()
    assert page.temperature.text() == "Chosen by Greenroom"
    assert page.reset.isHidden()
    page.temperature.stepBy(1)
    assert settings.values.temperature == 0.7, "the arrows start from the usual value"
    page.temperature.setValue(0.0)
    page.top_p.setValue(0.8)
    page.penalty.setValue(1.0)
    page.longest.setCurrentIndex(page.longest.findData(512))
    page.longest.activated.emit(page.longest.currentIndex())
    values = settings.values
    assert (values.temperature, values.top_p, values.repetition_penalty, values.max_tokens) == (0.0, 0.8, 1.0, 512)
    qtbot.keyClicks(page.prompt, "Be brief.")
    page.hide()  # leaving the page before the moment is over
    assert settings.values.system_prompt == "Be brief."
    page.reset.click()
    values = settings.values
    assert (values.temperature, values.top_p, values.repetition_penalty, values.max_tokens) == (None,) * 4
    assert values.system_prompt == "Be brief."
    assert page.temperature.text() == "Chosen by Greenroom"


def test_scrolling_over_a_field_changes_nothing(settings: SettingsStore, qtbot: QtBot) -> None:
    page = SettingsPage(settings)
    qtbot.addWidget(page)
    page.show()
    before = settings.values
    for field in (page.theme, page.temperature, page.threads, page.longest):
        middle = QPointF(field.rect().center())
        turn = QWheelEvent(
            middle,
            field.mapToGlobal(middle),
            QPoint(),
            QPoint(0, -120),
            Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier,
            Qt.ScrollPhase.NoScrollPhase,
            False,
        )
        QApplication.sendEvent(field, turn)
        assert not turn.isAccepted(), "the page scrolls instead"
    assert settings.values == before
