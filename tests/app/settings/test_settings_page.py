"""The pages of the settings and the store say the same."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from fake_keyring import FakeKeyring
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QKeySequence, QWheelEvent
from PySide6.QtWidgets import QApplication, QCheckBox, QComboBox, QLabel, QMessageBox, QWidget
from pytestqt.qtbot import QtBot

from app import tasks
from app.actions import ACTIONS, Actions
from app.settings.fields import Combo
from app.settings.licences import components
from app.settings.page import SettingsPage
from app.settings.pages import PAGES
from app.settings.store import Settings, SettingsStore


@pytest.fixture
def page(settings: SettingsStore, qtbot: QtBot) -> SettingsPage:
    made = SettingsPage(settings)
    qtbot.addWidget(made)
    made.resize(1000, 700)
    made.show()
    return made


def control(page: SettingsPage, section: str, name: str) -> Any:
    page.show_section(section)
    row = page.row(name)
    assert row is not None
    return row.control


def pick(box: QComboBox, value: object) -> None:
    """As the user does: the signal of a choice follows the choice."""
    box.setCurrentIndex(box.findData(value))
    box.activated.emit(box.currentIndex())


def test_every_field_of_the_settings_is_on_a_page_or_is_no_choice() -> None:
    kept = {"last_model", "recent", "window", "welcomed", "stage"}
    on_pages = {name for page in PAGES for name in page.fields}
    assert on_pages | kept == {field.name for field in fields(Settings)}
    names = [option.name for page in PAGES for option in page.options]
    assert len({(page.key, option.name) for page in PAGES for option in page.options}) == len(names)


OTHER = {
    "language": "ko",
    "start": "demo",
    "enter": "newline",
    "theme": "dark",
    "zoom": 1.25,
    "density": "compact",
    "reduced_motion": True,
    "system_prompt": "Be brief.",
    "temperature": 0.35,
    "top_p": 0.8,
    "repetition_penalty": 1.1,
    "max_tokens": 512,
    "models_folder": "/big/models",
    "context": 16384,
    "threads": 6,
    "keep_gpu": True,
    "prefer_gpu": True,
    "leave_ram": 4.5,
    "leave_vram": 1.0,
    "max_vram": 8.0,
    "kv_type": "q8",
    "exact": True,
    "experts_share": 0.75,
    "deferred_share": 0.25,
    "offline": True,
    "downloads_at_once": 3,
    "download_rate": 25,
    "hub": "https://mirror.example",
    "proxy": "socks5h://localhost:1080",
    "ca_file": "/etc/ca.pem",
    "shortcuts": {"new_chat": "Ctrl+T"},
}


def said_by(widget: QWidget) -> object:
    """What a control shows, as text."""
    for kind, read in ((QComboBox, lambda w: w.currentText()), (QCheckBox, lambda w: w.isChecked())):
        if isinstance(widget, kind):
            return read(widget)
    if hasattr(widget, "toPlainText"):
        return widget.toPlainText()
    if hasattr(widget, "keys"):
        return widget.keys.keySequence().toString()
    if hasattr(widget, "field"):
        return widget.field.text()
    return widget.folder.text() if hasattr(widget, "folder") else widget.text()


@pytest.mark.parametrize("record", [p for p in PAGES if p.fields], ids=lambda p: p.key)
def test_a_page_shows_what_the_store_holds_and_goes_back_to_the_defaults(
    record: Any, settings: SettingsStore, page: SettingsPage
) -> None:
    settings.reset(record.fields)
    page.show_section(record.key)
    section = page.section_view(record.key)
    rows = [row for row in section.rows if row.option.fields and not row.option.name.startswith("shortcut:show")]
    usual = [said_by(row.control) for row in rows]
    assert section.reset.isHidden()
    for name in record.fields:
        settings.change(**{name: OTHER[name]})
        assert getattr(settings.values, name) == OTHER[name], "showing a value must not change it"
    if record.key != "shortcuts":
        assert all(said_by(row.control) != before for row, before in zip(rows, usual, strict=True))
    assert not section.reset.isHidden()
    section.reset.click()
    assert [said_by(row.control) for row in rows] == usual
    assert section.reset.isHidden()
    assert all(getattr(settings.values, name) == getattr(Settings(), name) for name in record.fields)


def test_choices_reach_the_store(settings: SettingsStore, page: SettingsPage) -> None:
    pick(control(page, "appearance", "theme"), "dark")
    pick(control(page, "performance", "context"), 16384)
    threads = control(page, "performance", "threads")
    threads.setValue(6)
    assert (settings.values.theme, settings.values.context, settings.values.threads) == ("dark", 16384, 6)
    threads.setValue(0)
    assert settings.values.threads is None
    control(page, "performance", "keep_gpu").click()
    control(page, "performance", "leave_ram").stepBy(1)
    pick(control(page, "performance", "kv_type"), "q8")
    assert settings.values.wishes == {"keep_gpu": True, "leave_ram": 4_000_000_000, "kv_type": "q8"}


def test_a_value_that_is_no_entry_is_shown_all_the_same(settings: SettingsStore, page: SettingsPage) -> None:
    settings.change(context=5000)
    assert control(page, "performance", "context").currentText() == "5000"


def test_sampling_and_the_system_prompt_reach_the_store(
    settings: SettingsStore, page: SettingsPage, qtbot: QtBot
) -> None:
    temperature = control(page, "answers", "temperature")
    assert temperature.text() == "Chosen by Greenroom"
    temperature.stepBy(1)
    assert settings.values.temperature == 0.7, "the arrows start from the usual value"
    temperature.setValue(0.0)
    control(page, "answers", "top_p").setValue(0.8)
    control(page, "answers", "repetition_penalty").setValue(1.0)
    pick(control(page, "answers", "max_tokens"), 512)
    values = settings.values
    assert (values.temperature, values.top_p, values.repetition_penalty, values.max_tokens) == (0.0, 0.8, 1.0, 512)
    qtbot.keyClicks(control(page, "answers", "system_prompt"), "Be brief.")
    page.hide()  # leaving the page before the moment is over
    assert settings.values.system_prompt == "Be brief."


def test_search_goes_over_all_pages(page: SettingsPage) -> None:
    def found() -> set[str]:
        return {row.option.name for view in page._sections.values() for row in view.rows if row.isVisible()}

    page.search.setText("memory")
    assert {"context", "leave_ram", "kv_type", "exact"} <= found()
    assert "theme" not in found()
    page.search.setText("colors")  # found by a word that is not shown
    assert found() == {"theme"}
    page.search.setText("privacy")
    assert {"leaves", "stays", "folders"} <= found(), "a page by its title, whole"
    page.search.setText("no such thing")
    assert found() == set()
    assert page._nothing.isVisible()
    page.search.clear()
    assert found() == {"language", "start", "enter"}
    page.search.setText("memory")
    page.entries["about"].click()
    assert page.search.text() == ""
    assert page.section == "about"


def test_an_option_can_be_gone_to(page: SettingsPage, qtbot: QtBot) -> None:
    page.show_section("performance", "exact")
    box = page.row("exact").control
    qtbot.waitUntil(lambda: page.focusWidget() is box, timeout=20_000)
    assert box.visibleRegion().boundingRect().height() > 0


def test_a_narrow_page_has_its_pages_in_a_box(page: SettingsPage) -> None:
    assert not page.box.isVisible()
    page.resize(600, 500)
    assert page.box.isVisible()
    assert not page.entries["about"].isVisible()
    pick(page.box, "network")
    assert page.section_view("network").isVisible()


def test_scrolling_over_a_field_changes_nothing(settings: SettingsStore, page: SettingsPage) -> None:
    before = settings.values
    places = (
        ("appearance", "theme"),
        ("answers", "temperature"),
        ("performance", "threads"),
        ("answers", "max_tokens"),
    )
    for section, name in places:
        field = control(page, section, name)
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


# Shortcuts


def press(field: Any, keys: str) -> None:
    field.keys.setKeySequence(QKeySequence(keys))
    field.keys.editingFinished.emit()


def test_every_action_has_its_shortcut_on_the_page(page: SettingsPage) -> None:
    page.show_section("shortcuts")
    section = page.section_view("shortcuts")
    assert {row.option.name for row in section.rows} == {f"shortcut:{spec.key}" for spec in ACTIONS}
    said = {label.text() for label in section.findChildren(QLabel)}
    assert {spec.text.rstrip("…") for spec in ACTIONS} <= said


def test_a_shortcut_is_changed_taken_away_and_set_back(settings: SettingsStore, page: SettingsPage) -> None:
    field = control(page, "shortcuts", "shortcut:new_chat")
    assert field.reset.isHidden()
    press(field, "Ctrl+T")
    assert settings.values.shortcuts == {"new_chat": "Ctrl+T"}
    field.clear.click()
    assert settings.values.shortcuts == {"new_chat": ""}
    assert field.clear.isHidden()
    field.reset.click()
    assert settings.values.shortcuts == {}
    assert field.keys.keySequence().toString() == "Ctrl+N"


def test_a_conflict_is_named_and_nothing_taken_unasked(settings: SettingsStore, page: SettingsPage) -> None:
    field = control(page, "shortcuts", "shortcut:eject")
    press(field, "Ctrl+N")
    assert settings.values.shortcuts == {}
    assert field.trouble.text() == "Ctrl+N is already used by: New chat"
    field.take.click()
    assert settings.values.shortcuts == {"eject": "Ctrl+N", "new_chat": ""}
    assert control(page, "shortcuts", "shortcut:new_chat").keys.keySequence().isEmpty()
    back = control(page, "shortcuts", "shortcut:new_chat")
    back.reset.click()
    assert back.trouble.text() == "Ctrl+N is already used by: Unload the model"
    assert settings.values.shortcuts == {"eject": "Ctrl+N", "new_chat": ""}
    back.take.click()
    assert settings.values.shortcuts == {}
    zoom = control(page, "shortcuts", "shortcut:quit")
    press(zoom, "Ctrl+=")
    assert zoom.trouble.text() == "Ctrl+= is already used by: Larger text"
    zoom.take.click()
    assert settings.values.shortcuts == {"quit": "Ctrl+="}, "Ctrl++ still makes the text larger"


def test_keys_that_two_actions_have_work_for_one(qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    actions = Actions(window, {spec.key: lambda: None for spec in ACTIONS})
    for chosen in (
        {"eject": "Ctrl+N", "wizard": "ctrl+n"},
        {"quit": "Ctrl+="},
        {"quit": "nonsense", "eject": "\ud800"},
    ):
        actions.set_shortcuts(chosen)
        keys = [keys.toString() for action in actions.values() for keys in action.shortcuts()]
        assert len(keys) == len(set(keys))
    actions.set_shortcuts({"eject": "Ctrl+N", "zoom_out": "Ctrl+="})
    assert (actions.shortcut("eject"), actions.shortcut("new_chat")) == ("Ctrl+N", "")
    assert [keys.toString() for keys in actions["zoom_in"].shortcuts()] == ["Ctrl++"]


# The models folder


@pytest.mark.parametrize(("answer", "moved"), [("Move them", True), ("Leave them there", False), ("Cancel", None)])
def test_a_new_models_folder_asks_what_becomes_of_the_models(
    settings: SettingsStore, page: SettingsPage, tmp_path: Path, answer: str, moved: bool | None
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    (old / "m.gguf").write_bytes(b"x")
    settings.change(models_folder=str(old))
    folder = control(page, "models", "models_folder")
    assert folder.folder.text() == str(old)
    folder.take(str(new))
    box = page.findChild(QMessageBox)
    next(b for b in box.buttons() if b.text().replace("&", "") == answer).click()
    tasks.finish()
    assert settings.values.models_folder == str(old if moved is None else new)
    assert (new / "m.gguf").exists() == bool(moved)


# Network


def type_into(line: Any, text: str) -> None:
    line.field.setText(text)
    line.field.editingFinished.emit()


def test_network_settings_are_checked_as_they_are_typed(settings: SettingsStore, page: SettingsPage) -> None:
    proxy, hub, certificates = (control(page, "network", name) for name in ("proxy", "hub", "ca_file"))
    for line, wrong, says in (
        (proxy, "nonsense", "is no address"),
        (hub, "ftp://mirror", "is no address"),
        (hub, "https://me:secret@mirror.example", "access token"),
        (certificates, "/nowhere/ca.pem", "There is no such file"),
    ):
        type_into(line, wrong)
        assert says in line.trouble.text()
        assert not line.trouble.isHidden()
    assert (settings.values.proxy, settings.values.hub, settings.values.ca_file) == ("", "", "")
    type_into(proxy, "socks5h://localhost:1080")
    assert proxy.trouble.isHidden()
    type_into(hub, "https://mirror.example")
    control(page, "network", "offline").click()
    control(page, "network", "download_rate").chosen.emit(25)
    values = settings.values
    assert (values.proxy, values.hub, values.offline) == ("socks5h://localhost:1080", "https://mirror.example", True)
    assert values.download_rate == 25
    assert control(page, "privacy", "offline").isChecked(), "the same choice on another page"


def test_the_token_goes_to_the_keyring_and_is_not_shown_again(
    page: SettingsPage, keyring: FakeKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    token = control(page, "network", "token")
    tasks.finish()
    assert token.state.text() == "No token is saved."
    token.field.setText("hf_secret")
    token.save.click()
    tasks.finish()
    tasks.finish()
    assert list(keyring.kept.values()) == ["hf_secret"]
    assert token.field.text() == ""
    assert token.state.text() == "A token is saved in the keyring."
    token.remove.click()
    tasks.finish()
    tasks.finish()
    assert keyring.kept == {}


def test_without_a_keyring_it_says_what_else_can_be_done(page: SettingsPage, keyring: FakeKeyring) -> None:
    keyring.locked = True
    token = control(page, "network", "token")
    token.field.setText("hf_secret")
    token.save.click()
    tasks.finish()
    assert "HF_TOKEN" in token.state.text()


# Privacy and About


def test_models_opened_lately_can_be_forgotten(settings: SettingsStore, page: SettingsPage) -> None:
    settings.remember_model("/models/a.gguf")
    forget = control(page, "privacy", "recent")
    assert forget.isEnabled()
    forget.click()
    assert (settings.values.recent, settings.values.last_model) == ((), None)
    assert not forget.isEnabled()


def test_the_licences_of_everything_shipped_are_listed_with_their_terms(page: SettingsPage) -> None:
    found = {component.name.lower(): component for component in components()}
    assert {"python", "pybind11", "torch", "numpy", "pyside6_essentials", "shiboken6"} <= set(found)
    assert not {"pytest", "ruff", "transformers"} & set(found), "tools of development are not shipped"
    assert all(component.licence for component in found.values())
    assert "Permission is hereby granted" in found["markdown-it-py"].terms()
    licences = control(page, "about", "licences")
    tasks.finish()
    assert licences.list.count() == len(found)
    licences.list.setCurrentRow(0)
    assert licences.terms.isVisible()
    assert licences.terms.toPlainText()


def test_every_control_can_be_reached_and_has_a_name(page: SettingsPage) -> None:
    for record in PAGES:
        page.show_section(record.key)
        tasks.finish()
        for row in page.section_view(record.key).rows:
            for part in [row.control, *row.control.findChildren(QWidget)]:
                if part.focusPolicy() & Qt.FocusPolicy.TabFocus and part.isVisible() and not part.focusProxy():
                    named = part.accessibleName() or getattr(part, "text", lambda: "")()
                    inner = isinstance(part.parent(), Combo) or part.objectName().startswith("qt_")
                    assert named or inner, (record.key, row.option.name, part)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ("A", "alone is used for typing"),
        ("Shift+A", "alone is used for typing"),
        ("Esc", "alone is used for typing"),
        ("Return", "is reserved for editing text"),
        ("Ctrl+Return", "is reserved for editing text"),
        ("Alt+Left", "is reserved for editing text"),
        ("Tab", "is reserved for editing text"),
        ("Ctrl+V", "is reserved for editing text"),
        ("Ctrl+Shift+Z", "is reserved for editing text"),
    ],
)
def test_keys_for_writing_are_no_shortcuts(settings: SettingsStore, page: SettingsPage, keys: str, why: str) -> None:
    field = control(page, "shortcuts", "shortcut:new_chat")
    press(field, keys)
    assert settings.values.shortcuts == {}
    assert field.keys.keySequence().toString() == "Ctrl+N"
    assert why in field.trouble.text()
    assert not field.trouble.isHidden()
    assert field.take.isHidden()
    window = QWidget()
    actions = Actions(window, {spec.key: lambda: None for spec in ACTIONS})
    actions.set_shortcuts({"new_chat": keys})
    assert actions.shortcut("new_chat") == "Ctrl+N", "nor do they work from a file"


def test_function_keys_and_the_usual_ones_are_taken(settings: SettingsStore, page: SettingsPage) -> None:
    field = control(page, "shortcuts", "shortcut:new_chat")
    for keys in ("F5", "Shift+F5", "Alt+N", "Ctrl+Shift+N"):
        press(field, keys)
        assert settings.values.shortcuts == {"new_chat": keys}
    stop = control(page, "shortcuts", "shortcut:stop")
    press(stop, "F9")
    press(stop, "Esc")
    assert settings.values.shortcuts == {"new_chat": "Ctrl+Shift+N"}
