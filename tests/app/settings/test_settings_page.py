"""The Settings page and the store say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication, QLabel, QMessageBox
from pytestqt.qtbot import QtBot

from app import tasks
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


@pytest.mark.parametrize(("answer", "moved"), [("Move them", True), ("Leave them there", False), ("Cancel", None)])
def test_a_new_models_folder_asks_what_becomes_of_the_models(
    settings: SettingsStore, qtbot: QtBot, tmp_path: Path, answer: str, moved: bool | None
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    (old / "m.gguf").write_bytes(b"x")
    settings.change(models_folder=str(old))
    page = SettingsPage(settings)
    qtbot.addWidget(page)
    page._take_folder(str(new))
    box = page.findChild(QMessageBox)
    next(b for b in box.buttons() if b.text().replace("&", "") == answer).click()
    tasks.finish()
    assert settings.values.models_folder == str(old if moved is None else new)
    assert (new / "m.gguf").exists() == bool(moved)


def type_into(control: Any, text: str) -> None:
    control.field.setText(text)
    control.field.editingFinished.emit()


def test_network_settings_are_checked_as_they_are_typed(settings: SettingsStore, qtbot: QtBot) -> None:
    page = SettingsPage(settings)
    qtbot.addWidget(page)
    controls = {title: control for title, _, control in page.network}
    proxy, hub = controls["Proxy"], controls["Hub"]
    for control, wrong, says in (
        (proxy, "nonsense", "is no address"),
        (hub, "ftp://mirror", "is no address"),
        (controls["Certificates"], "/nowhere/ca.pem", "There is no such file"),
    ):
        type_into(control, wrong)
        assert says in control.trouble.text()
        assert not control.trouble.isHidden()
    assert (settings.values.proxy, settings.values.hub, settings.values.ca_file) == ("", "", "")
    type_into(proxy, "socks5h://localhost:1080")
    assert proxy.trouble.isHidden()
    type_into(hub, "https://mirror.example")
    controls["Offline"].setChecked(True)
    controls["Speed limit"].chosen.emit(25)
    values = settings.values
    assert (values.proxy, values.hub, values.offline) == ("socks5h://localhost:1080", "https://mirror.example", True)
    assert values.download_rate == 25


def test_the_token_goes_to_the_keyring_and_is_not_shown_again(
    settings: SettingsStore, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[str, str] = {}
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("keyring.set_password", lambda service, name, value: kept.update({name: value}))
    monkeypatch.setattr("keyring.get_password", lambda service, name: kept.get(name))
    monkeypatch.setattr("keyring.delete_password", lambda service, name: kept.pop(name))
    page = SettingsPage(settings)
    qtbot.addWidget(page)
    page.show()
    token = next(control for title, _, control in page.network if title == "Access token")
    tasks.finish()
    assert token.state.text() == "None is stored."
    token.field.setText("hf_secret")
    token.save.click()
    tasks.finish()
    tasks.finish()
    assert list(kept.values()) == ["hf_secret"]
    assert token.field.text() == ""
    assert token.state.text() == "One is in the keyring."
    token.remove.click()
    tasks.finish()
    tasks.finish()
    assert kept == {}


def test_without_a_keyring_it_says_what_else_can_be_done(
    settings: SettingsStore, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: str) -> None:
        raise RuntimeError("no backend")

    monkeypatch.setattr("keyring.set_password", none)
    page = SettingsPage(settings)
    qtbot.addWidget(page)
    token = next(control for title, _, control in page.network if title == "Access token")
    token.field.setText("hf_secret")
    token.save.click()
    tasks.finish()
    assert "HF_TOKEN" in token.state.text()
