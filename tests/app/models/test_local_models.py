"""What pickers offer of the models on this PC."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from pytestqt.qtbot import QtBot

from app import tasks
from app.host import EngineHost
from app.main_window import MainWindow
from app.models.local import LocalModel, LocalModels, find_local
from app.palette import entries
from app.settings.store import SettingsStore
from engine.hub import other_programs

LONG = 20_000


def write_gguf(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    # Files of one size are compared by what is in them.
    writer.add_tensor(path.stem, np.zeros((2, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def folder(private_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A models folder, beside another program's."""
    foreign = write_gguf(tmp_path / "blobs" / "sha256-1")
    other = other_programs.ForeignModel("Ollama", "llama3:8b", foreign, 100)
    monkeypatch.setattr(other_programs, "find", lambda home=None: [other])
    folder = private_data / "models"
    write_gguf(folder / "never.gguf")
    write_gguf(folder / "owner" / "Lately-Q4_0.gguf")
    (folder / "broken.gguf").write_bytes(b"not a model")
    return folder


def test_all_that_can_be_loaded_is_found_but_the_demo_and_the_recent_ones(folder: Path, tmp_path: Path) -> None:
    assert find_local(None, [str(folder / "owner" / "Lately-Q4_0.gguf")]) == [
        LocalModel("llama3:8b", "llama3:8b", str(tmp_path / "blobs" / "sha256-1")),
        LocalModel("never", "never.gguf", str(folder / "never.gguf")),
    ]


def test_it_looks_again_when_something_changes(
    settings: SettingsStore, folder: Path, tmp_path: Path, qtbot: QtBot
) -> None:
    here = LocalModels(settings)
    assert here.others == [], "nothing is looked at before it is asked to"
    with qtbot.waitSignal(here.changed, timeout=LONG):
        here.look()
    assert [model.title for model in here.others] == ["Lately-Q4_0", "llama3:8b", "never"]
    settings.change(recent=[str(folder / "never.gguf")])
    assert [model.title for model in here.others] == ["Lately-Q4_0", "llama3:8b"], "at once"
    tasks.finish()
    write_gguf(tmp_path / "elsewhere" / "third.gguf")
    settings.change(models_folder=str(tmp_path / "elsewhere"))
    tasks.finish()
    assert [model.title for model in here.others] == ["llama3:8b", "third"]


def test_the_window_offers_models_that_were_never_loaded(
    host: EngineHost, settings: SettingsStore, folder: Path, qtbot: QtBot
) -> None:
    settings.change(recent=[str(folder / "owner" / "Lately-Q4_0.gguf")])
    window = MainWindow(host, settings, demo_is_here=lambda: True)
    qtbot.addWidget(window)
    window.show()
    qtbot.waitUntil(lambda: window.chat_page is not None, timeout=LONG)
    tasks.finish()
    names = ["Lately-Q4_0.gguf", "llama3:8b", "never.gguf"]
    assert [action.text() for action in window.topbar.build_menu().actions() if action.isCheckable()][1:] == names
    assert [entry.title for entry in entries.models(window)][1:] == ["Lately-Q4_0", "llama3:8b", "never"]
    write_gguf(folder / "another.gguf")
    window.topbar.model.click()
    tasks.finish()
    assert "another.gguf" in [action.text() for action in window.topbar.build_menu().actions()]
    window.close()
