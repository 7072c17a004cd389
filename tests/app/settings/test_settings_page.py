"""The Settings page and the store say the same."""

from __future__ import annotations

from PySide6.QtWidgets import QLabel
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
