"""Settings survive a restart, bad files and full disks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot
from together import together

from app.settings.store import RECENT_LIMIT, Settings, SettingsStore


def test_what_is_changed_is_there_after_a_restart(tmp_path: Path, qtbot: QtBot) -> None:
    store = SettingsStore(tmp_path)
    with qtbot.waitSignal(store.changed) as signal:
        store.change(theme="dark", context=4096, models_folder="/모델")
    assert signal.args == [{"theme", "context", "models_folder"}]
    again = SettingsStore(tmp_path).values
    assert again == Settings(theme="dark", context=4096, models_folder="/모델")


def test_shortcuts_are_wished_for_only_when_they_are_chosen(tmp_path: Path) -> None:
    store = SettingsStore(tmp_path)
    assert not {"experts_share", "deferred_share"} & store.values.wishes.keys()
    store.change(experts_share=0.75, deferred_share=0.25)
    wishes = SettingsStore(tmp_path).values.wishes
    assert (wishes["experts_share"], wishes["deferred_share"]) == (0.75, 0.25)


def test_greenroom_data_moves_the_file(private_data: Path) -> None:
    SettingsStore().change(theme="dark")
    assert json.loads((private_data / "settings.json").read_text(encoding="utf-8"))["theme"] == "dark"


def test_no_change_is_no_signal(tmp_path: Path, qtbot: QtBot) -> None:
    store = SettingsStore(tmp_path)
    with qtbot.assertNotEmitted(store.changed):
        store.change(theme="system")
    assert not (tmp_path / "settings.json").exists()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=6,
)
keys = st.sampled_from(["theme", "context", "threads", "models_folder", "start", "last_model", "recent", "other"])


@given(raw=json_values | st.dictionaries(keys, json_values))
def test_any_json_gives_settings_that_make_sense(tmp_path_factory: pytest.TempPathFactory, raw: object) -> None:
    folder = tmp_path_factory.mktemp("settings")
    (folder / "settings.json").write_text(json.dumps(raw), encoding="utf-8")
    values = SettingsStore(folder).values
    assert values.theme in ("system", "light", "dark")
    assert values.start in ("last", "demo", "nothing")
    assert values.context is None or values.context >= 256
    assert values.threads is None or values.threads >= 1
    assert all(isinstance(path, str) and path for path in values.recent)


def test_a_broken_file_gives_the_defaults(tmp_path: Path) -> None:
    for broken in (b"\xff\xfe{", b"[" * 100_000, b"[1]", b'{"theme": "dark"'):
        (tmp_path / "settings.json").write_bytes(broken)
        store = SettingsStore(tmp_path)
        assert store.values == Settings()
        store.change(theme="dark")
        assert SettingsStore(tmp_path).values.theme == "dark"
        assert (tmp_path / "settings.json.unreadable").read_bytes() == broken, "somebody may still want it"


def test_a_file_of_another_program_or_version(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(b'\xef\xbb\xbf{"theme": "dark", "of_tomorrow": [1], "context": ' + b"9" * 400 + b"}")
    store = SettingsStore(tmp_path)
    assert (store.values.theme, store.values.context) == ("dark", None)
    store.change(zoom=1.1)
    assert json.loads(path.read_text())["of_tomorrow"] == [1], "it is there when that version comes back"


def test_texts_that_the_system_does_not_take_count_as_none(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(
        '{"theme": "dark", "models_folder": "a\\u0000b", "last_model": "\\ud800", "recent": ["\\u0000", "b\\udcff"],'
        '"system_prompt": "\\ud83d\\ude00", "of_tomorrow": "\\ud800", "shortcuts": {"x": "\\ud800"}}'
    )
    store = SettingsStore(tmp_path)
    store.change(zoom=1.1)
    values = SettingsStore(tmp_path).values
    assert (values.zoom, values.models_folder, values.last_model, values.system_prompt) == (1.1, None, None, "😀")
    assert values.recent == ("b\udcff",), "a path need not be UTF-8"


def test_recent_models_are_newest_first_without_repeats_and_without_the_demo(tmp_path: Path) -> None:
    store = SettingsStore(tmp_path)
    for number in range(RECENT_LIMIT + 3):
        store.remember_model(f"/m/{number}.gguf")
    store.remember_model("/m/5.gguf")
    store.remember_model("demo")
    assert store.values.recent[0] == "/m/5.gguf"
    assert len(set(store.values.recent)) == len(store.values.recent) == RECENT_LIMIT
    assert store.values.last_model == "demo"
    store.forget_recent("/m/5.gguf")
    assert "/m/5.gguf" not in store.values.recent


def test_an_unwritable_folder_is_said_once_and_the_change_still_holds(tmp_path: Path, qtbot: QtBot) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    store = SettingsStore(blocked / "below")
    with qtbot.waitSignal(store.problemFound) as signal:
        store.change(theme="dark")
    assert "file" in str(signal.args[0])
    assert store.values.theme == "dark"
    with qtbot.assertNotEmitted(store.problemFound):
        store.change(theme="light")


CHANGE = """
from pathlib import Path
from app.settings.store import SettingsStore

def work(place):
    store = SettingsStore(Path(place))
    for number in range(20):
        store.change(context=1000 + number)
    return store.problem or SettingsStore(Path(place)).values.context
"""


def test_two_windows_that_save_at_the_same_moment_leave_a_whole_file(tmp_path: Path) -> None:
    with together(3, CHANGE) as processes:
        for number in range(20):
            folder = tmp_path / str(number)
            assert all(1000 <= int(said) < 1020 for said in processes.run(folder))
            assert json.loads((folder / "settings.json").read_text(encoding="utf-8"))["context"] == 1019
            assert [path.name for path in folder.iterdir()] == ["settings.json"]
