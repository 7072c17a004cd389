"""When the window opens the wizard, and what follows from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import FakeApi
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget, QWizard
from pytestqt.qtbot import QtBot
from wizard_fakes import MEASURED

from app import tasks
from app.host import DEMO, EngineHost
from app.main_window import MainWindow
from app.settings.store import SettingsStore

LONG = 20_000
Open = Callable[..., MainWindow]


class Blank(QWidget):
    chatChanged = Signal(int)
    chatChosen = Signal(int)
    performanceShown = Signal(bool)

    def set_current(self, chat: int) -> None: ...

    def shutdown(self) -> None: ...


@pytest.fixture
def open_window(host: EngineHost, api: FakeApi, qtbot: QtBot) -> Open:
    api.report = MEASURED

    def make(settings: SettingsStore, welcome: bool = True, model: str | None = None) -> MainWindow:
        window = MainWindow(
            host, settings, lambda *_: (Blank(), Blank()), lambda: True, lambda progress: MEASURED, welcome=welcome
        )
        qtbot.addWidget(window)
        window.show()
        if model is not None:
            window.load_model(model)
        qtbot.waitUntil(lambda: window._chat_list is not None, timeout=LONG)
        tasks.finish()
        return window

    return make


def test_a_first_start_opens_it_and_the_demo_waits(open_window: Open, host: EngineHost, private_data: Path) -> None:
    window = open_window(SettingsStore())
    assert window.launcher.wizard is not None
    assert window.launcher.wizard.isVisible()
    assert host.state.kind == "empty"


def test_closing_it_goes_on_as_ever_and_is_remembered(open_window: Open, host: EngineHost, qtbot: QtBot) -> None:
    window = open_window(SettingsStore())
    window.launcher.wizard.reject()
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    assert host.state.path == DEMO
    assert window.launcher.wizard is None
    assert SettingsStore().values.welcomed


def test_a_second_start_does_not_open_it(open_window: Open, host: EngineHost, qtbot: QtBot) -> None:
    settings = SettingsStore()
    settings.change(welcomed=True)
    assert open_window(settings).launcher.wizard is None
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)


def test_who_used_the_program_before_does_not_see_it(open_window: Open, host: EngineHost, qtbot: QtBot) -> None:
    SettingsStore().change(theme="dark")
    path = next(Path(SettingsStore()._path).parent.glob("settings.json"))
    raw = json.loads(path.read_text())
    del raw["welcomed"]
    path.write_text(json.dumps(raw))
    assert open_window(SettingsStore()).launcher.wizard is None
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)


def test_a_model_on_the_command_line_opens_no_wizard(open_window: Open, host: EngineHost, qtbot: QtBot) -> None:
    window = open_window(SettingsStore(), model="/models/Qwen3-30B-A3B.gguf")
    assert window.launcher.wizard is None
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)


def test_without_the_switch_there_is_none(open_window: Open, host: EngineHost, qtbot: QtBot) -> None:
    assert open_window(SettingsStore(), welcome=False).launcher.wizard is None
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)


def test_chat_now_loads_the_demo_with_one_click(open_window: Open, host: EngineHost, qtbot: QtBot) -> None:
    window = open_window(SettingsStore())
    window.launcher.wizard.button(QWizard.WizardButton.CustomButton1).click()
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    assert host.state.path == DEMO
    assert window.page == "chat"
    assert SettingsStore().values.welcomed


def test_a_download_is_asked_of_the_hub_only_when_it_is_wanted(
    open_window: Open, monkeypatch: pytest.MonkeyPatch, host: EngineHost, qtbot: QtBot
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("app.models.survey.find_remote", lambda settings, choice: asked.append(choice.label))
    window = open_window(SettingsStore())
    monkeypatch.setattr(window._downloads, "add", asked.append)
    wizard = window.launcher.wizard
    qtbot.waitUntil(lambda: wizard.findings.fits is not None, timeout=LONG)
    assert asked == []
    row = wizard.findings.fits.best
    wizard.downloadWanted.emit(row)
    wizard.reject()
    tasks.finish()
    assert asked == [row.choice.label, None]
    assert window.page == "models"
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)


def test_closing_the_window_closes_it_without_a_trace(open_window: Open, host: EngineHost) -> None:
    window = open_window(SettingsStore())
    window.close()
    assert window.launcher.wizard is None
    assert host.state.kind == "empty"


def test_it_opens_again_from_the_page_of_this_pc(open_window: Open, host: EngineHost, qtbot: QtBot) -> None:
    settings = SettingsStore()
    settings.change(welcomed=True)
    window = open_window(settings)
    qtbot.waitUntil(lambda: host.state.kind == "ready", timeout=LONG)
    window.show_page("hardware")
    tasks.finish()
    window._pages["hardware"].guide.click()
    assert window.launcher.wizard is not None
    window.launcher.wizard.reject()
    tasks.finish()
    assert window.page == "hardware"
    assert host.state.kind == "ready"
