"""The proxy's password is in the keyring, or kept for this run: never in the settings file, never shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_keyring import FakeKeyring
from pytestqt.qtbot import QtBot
from window_fakes import Open, banner_texts

from app import tasks
from app.settings.page import SettingsPage
from app.settings.proxy import Proxy, move_old_password
from app.settings.store import SettingsStore
from engine.errors import GreenroomError
from engine.hub.proxy_password import join_password

ADDRESS, SECRET = "http://me@proxy.example:3128", "s3cret"
WHOLE = f"http://me:{SECRET}@proxy.example:3128"


@pytest.fixture
def proxy(settings: SettingsStore, keyring: FakeKeyring, qtbot: QtBot) -> Proxy:
    page = SettingsPage(settings)
    qtbot.addWidget(page)
    page.show()
    page.show_section("network")
    row = page.row("proxy")
    assert row is not None
    assert isinstance(row.control, Proxy)
    return row.control


def enter(proxy: Proxy, text: str) -> None:
    proxy.field.setText(text)
    proxy.field.editingFinished.emit()
    for _ in range(3):  # keeping, then looking where it is
        tasks.finish()


def on_disk(folder: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


def test_an_address_with_a_password_is_split_as_it_is_entered(
    proxy: Proxy, settings: SettingsStore, keyring: FakeKeyring, private_data: Path
) -> None:
    enter(proxy, WHOLE)
    assert (proxy.field.text(), settings.values.proxy) == (ADDRESS, ADDRESS)
    assert join_password(ADDRESS) == WHOLE
    assert SECRET not in on_disk(private_data)
    assert [SECRET in value for value in keyring.kept.values()] == [True]
    assert proxy.state.text() == "The password is saved in the system keyring."
    assert not proxy.field.isUndoAvailable(), "Ctrl+Z would bring it back"


def test_it_is_changed_by_entering_another_and_removed_by_the_button(
    proxy: Proxy, settings: SettingsStore, keyring: FakeKeyring
) -> None:
    enter(proxy, WHOLE)
    enter(proxy, WHOLE.replace(SECRET, "another"))
    assert (proxy.field.text(), settings.values.proxy) == (ADDRESS, ADDRESS)
    assert join_password(ADDRESS) == WHOLE.replace(SECRET, "another")
    proxy.remove.click()
    for _ in range(3):
        tasks.finish()
    assert (keyring.kept, join_password(ADDRESS)) == ({}, ADDRESS)
    assert proxy.state.isHidden()
    assert proxy.remove.isHidden()


def test_another_proxy_has_no_password(proxy: Proxy) -> None:
    enter(proxy, WHOLE)
    enter(proxy, "http://me@other.example:3128")
    assert proxy.state.isHidden()
    enter(proxy, ADDRESS)
    assert proxy.state.text() == "The password is saved in the system keyring."


def test_without_a_safe_keyring_it_says_how_long_it_is_kept(
    proxy: Proxy, settings: SettingsStore, keyring: FakeKeyring, private_data: Path
) -> None:
    keyring.locked = True
    enter(proxy, WHOLE)
    assert "until Greenroom closes" in proxy.state.text()
    assert (settings.values.proxy, join_password(ADDRESS)) == (ADDRESS, WHOLE)
    assert SECRET not in on_disk(private_data)


def test_what_cannot_be_used_is_not_kept_and_its_password_is_not_said(
    proxy: Proxy, settings: SettingsStore, keyring: FakeKeyring
) -> None:
    enter(proxy, f"gopher://me:{SECRET}@proxy.example")
    assert "is no address" in proxy.trouble.text()
    assert SECRET not in proxy.trouble.text() + proxy.field.accessibleDescription()
    assert (settings.values.proxy, keyring.kept) == ("", {})


def test_a_change_by_anybody_keeps_the_password_out_of_the_file(
    settings: SettingsStore, keyring: FakeKeyring, private_data: Path
) -> None:
    settings.change(proxy=WHOLE, hub=f"https://me:{SECRET}@mirror.example/path@2")
    assert (settings.values.proxy, settings.values.hub) == (ADDRESS, "https://mirror.example/path@2")
    assert SECRET not in on_disk(private_data)


@pytest.fixture
def old_file(private_data: Path, keyring: FakeKeyring) -> Path:
    private_data.mkdir()
    path = private_data / "settings.json"
    path.write_text(json.dumps({"proxy": WHOLE, "theme": "dark"}))
    return path


def test_the_password_of_an_old_file_moves_into_the_keyring(old_file: Path, keyring: FakeKeyring) -> None:
    store, said = SettingsStore(), list[GreenroomError]()
    assert (store.values.proxy, join_password(ADDRESS)) == (ADDRESS, WHOLE), "it serves from the start"
    move_old_password(store, said.append)
    tasks.finish()
    assert [SECRET in value for value in keyring.kept.values()] == [True]
    assert said == []
    assert SECRET not in on_disk(old_file.parent)
    again = SettingsStore()
    assert (again.values.proxy, again.values.theme, again.old_password) == (ADDRESS, "dark", None)


def test_without_a_keyring_it_leaves_the_old_file_and_that_is_said(old_file: Path, keyring: FakeKeyring) -> None:
    keyring.locked = True
    store, said = SettingsStore(), list[GreenroomError]()
    move_old_password(store, said.append)
    tasks.finish()
    assert SECRET not in on_disk(old_file.parent)
    assert join_password(ADDRESS) == WHOLE
    assert ["until Greenroom closes" in str(note) for note in said] == [True]
    assert SECRET not in str(said[0])


def test_an_old_password_stays_in_the_file_until_it_is_kept_elsewhere(old_file: Path) -> None:
    SettingsStore()
    assert SECRET in old_file.read_text()


def test_the_window_moves_it_and_says_so(old_file: Path, keyring: FakeKeyring, open_window: Open) -> None:
    keyring.locked = True
    window = open_window()
    tasks.finish()
    (said,) = banner_texts(window)
    assert "no longer in the settings file" in said
    assert SECRET not in said
    assert SECRET not in on_disk(old_file.parent)
