"""The Models page: what is here, where it would live, and one button whose text is the state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes import FakeApi
from PySide6.QtWidgets import QApplication, QLabel, QPushButton
from pytestqt.qtbot import QtBot

from app import tasks
from app.host import DEMO, EngineHost
from app.models import survey
from app.models.download_host import DownloadHost
from app.models.page import ModelsPage
from app.models.row import RowWidget
from app.settings.store import SettingsStore
from app.widgets.plan_popover import PlanPopover

LONG = 20_000


@pytest.fixture(autouse=True)
def no_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo model would lie; it is not there."""
    path = tmp_path / "demo.gguf"
    monkeypatch.setattr(survey, "find_offers", lambda: [])
    monkeypatch.setattr("engine.hub.demo.demo_path", lambda: path)
    monkeypatch.setattr("engine.hub.demo.dense_path", lambda: tmp_path / "dense.gguf")
    return path


@pytest.fixture
def model(tmp_path: Path, settings: SettingsStore) -> str:
    """A file opened from elsewhere; the fake engine does not look into it."""
    path = tmp_path / "Qwen3-30B-A3B.gguf"
    path.write_bytes(b"GGUF")
    settings.change(recent=[str(path), str(tmp_path / "gone.gguf")])
    return str(path)


@pytest.fixture
def page(host: EngineHost, settings: SettingsStore, model: str, qtbot: QtBot) -> Iterator[ModelsPage]:
    downloads = DownloadHost(settings)
    made = ModelsPage(host, settings, downloads)
    qtbot.addWidget(made)
    made.resize(1190, 800)
    yield made
    downloads.shutdown()


def show(page: ModelsPage) -> dict[str, RowWidget]:
    page.show()
    tasks.finish()
    return {row.row.path: row for row in page.rows}


def texts(widget: object) -> str:
    return " | ".join(label.text() for label in widget.findChildren(QLabel))


def test_the_demo_comes_first_and_says_what_it_is(page: ModelsPage) -> None:
    show(page)
    row = page.rows[0]
    assert row.row.path == DEMO
    assert "Small demo model" in texts(row)
    assert "Downloads 93 MB" in texts(row)


def test_no_download_is_announced_when_the_demos_source_is_here(page: ModelsPage, no_demo: Path) -> None:
    assert not survey.demo_is_here()
    no_demo.with_name("dense.gguf").write_bytes(b"GGUF")
    assert survey.demo_is_here()
    show(page)
    assert "download" not in texts(page.rows[0])


def test_a_prepared_demo_has_its_plan(page: ModelsPage, no_demo: Path) -> None:
    no_demo.write_bytes(b"GGUF")
    row = show(page)[DEMO]
    assert "download" not in texts(row)
    assert row.chip.text() == "Experts in RAM, the rest on the GPU"
    assert row.row.name == "Demo model"


def test_an_opened_model_shows_name_form_plan_speed_and_size(page: ModelsPage, model: str) -> None:
    row = show(page)[model]
    assert row.chip.text() == "Experts in RAM, the rest on the GPU"
    said = texts(row)
    for expected in ("Qwen3-30B-A3B", "Qwen · Apache-2.0", "49–66", "18.6 GB"):
        assert expected in said
    assert row.load.text() == "Load"
    assert row.action == "load"


def test_looking_again_repeats_nothing(page: ModelsPage, model: str) -> None:
    before = texts(show(page)[model])
    page.refresh()
    tasks.finish()
    assert texts(show(page)[model]) == before


def test_missing_recent_files_are_left_out(page: ModelsPage, model: str) -> None:
    assert set(show(page)) == {DEMO, model}


def test_a_broken_file_in_the_models_folder_is_listed_with_its_reason(
    page: ModelsPage, private_data: Path, model: str
) -> None:
    folder = private_data / "models"
    folder.mkdir(parents=True)
    (folder / "broken.gguf").write_bytes(b"not a model")
    row = show(page)[str(folder / "broken.gguf")]
    assert row.row.problem
    assert row.row.problem in texts(row)
    assert not row.load.isEnabled()


def test_another_models_folder_is_searched_at_once(
    page: ModelsPage, settings: SettingsStore, tmp_path: Path, model: str
) -> None:
    show(page)
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "x.gguf").write_bytes(b"x")
    settings.change(models_folder=str(folder))
    tasks.finish()
    assert str(folder / "x.gguf") in {row.row.path for row in page.rows}


def test_load_asks_for_the_model(page: ModelsPage, model: str, qtbot: QtBot) -> None:
    row = show(page)[model]
    with qtbot.waitSignal(page.loadWanted) as asked:
        row.load.click()
    assert asked.args == [model, False]


def test_a_plan_that_does_not_fit_offers_load_anyway(page: ModelsPage, api: FakeApi, model: str, qtbot: QtBot) -> None:
    api.mode, api.label = "tight", "Tight: needs 13.6 GB more free RAM"
    row = show(page)[model]
    assert row.chip.text() == "Tight: needs 13.6 GB more free RAM"
    assert row.chip.property("chip") == "warn"
    assert row.load.text() == "Load anyway"
    with qtbot.waitSignal(page.loadWanted) as asked:
        row.load.click()
    assert asked.args == [model, True]


def test_the_button_follows_loading_loaded_and_eject(
    page: ModelsPage, host: EngineHost, api: FakeApi, model: str, qtbot: QtBot
) -> None:
    api.hold_load = threading.Event()
    show(page)
    host.load(model)
    rows = lambda: {row.row.path: row for row in page.rows}  # noqa: E731
    qtbot.waitUntil(lambda: rows()[model].action == "loading" and "layer 31" in texts(rows()[model]), timeout=LONG)
    api.hold_load.set()
    qtbot.waitUntil(lambda: rows()[model].action == "loaded", timeout=LONG)
    tasks.finish()
    assert rows()[DEMO].action == "load"
    rows()[model].eject.click()
    qtbot.waitUntil(lambda: rows()[model].action == "load", timeout=LONG)
    assert api.engines[0].closed


def test_other_models_are_planned_with_the_loaded_ones_memory(
    page: ModelsPage, host: EngineHost, api: FakeApi, load: Callable[..., None], model: str
) -> None:
    load(host, "/elsewhere.gguf")
    show(page)
    assert api.plans[-1][1] == {"unload_bytes": 17_500_000_000}


def test_the_label_opens_to_its_arithmetic(page: ModelsPage, model: str, qtbot: QtBot) -> None:
    row = show(page)[model]
    row.chip.click()
    popover = next(w for w in QApplication.topLevelWidgets() if isinstance(w, PlanPopover) and w.isVisible())
    said = texts(popover)
    for expected in (
        "Experts take 17.2 GB in RAM",
        "KV cache",
        "about 57 tok/s (49 to 66)",
        "Limited by RAM bandwidth",
    ):
        assert expected in said
    assert not [b for b in popover.findChildren(QPushButton) if b.text() == "Load anyway"]
    popover.close()


def test_a_failed_search_says_why(page: ModelsPage, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("no such device")

    monkeypatch.setattr(survey, "_demo_row", broken)
    show(page)
    assert "no such device" in page._note.text()


def test_it_stays_readable_when_narrow(page: ModelsPage, model: str) -> None:
    page.resize(690, 600)
    row = show(page)[model]
    page.grab()
    assert row._size_cell.isHidden()
    for part in (row.chip, row.load):
        assert part.mapTo(page, part.rect().topRight()).x() <= page.width()
    page.resize(1190, 800)
    page.grab()
    assert row._size_cell.isVisible()


def test_the_list_ends_with_where_models_lie(page: ModelsPage, tmp_path: Path, settings: SettingsStore) -> None:
    settings.change(models_folder=str(tmp_path / "elsewhere"))
    show(page)
    item, widget = page.list.widgets[-1]
    assert str(tmp_path / "elsewhere") in item.text
    assert widget.text() == item.text
    assert page._note.isHidden()
