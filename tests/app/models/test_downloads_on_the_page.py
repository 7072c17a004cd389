"""Downloads, catalogue, hub search and deletion, through the page, against a hub of our own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes import FakeApi
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app import tasks
from app.host import EngineHost
from app.models.details import DetailsDialog
from app.models.download_host import DownloadHost
from app.models.page import ModelsPage
from app.models.row import RowWidget
from app.settings.store import SettingsStore
from engine.hub import other_programs
from tests.fake_hub import FakeHub, Fault, Pattern

LONG = 20_000
REPO = "maker/Tiny-GGUF"
ENTRY = {
    "id": "tiny",
    "name": "Tiny MoE",
    "author": "Maker",
    "family": "qwen3_moe",
    "params_total": 30_500_000_000,
    "params_active": 3_300_000_000,
    "licence": "apache-2.0",
    "context": 32768,
    "good_at": "tests",
    "tier": "home",
    "sources": ["a test"],
    "downloads": [
        {"repo": REPO, "label": "Q4_0", "bytes": 1_500_000},
        {"repo": REPO, "label": "Q8_0", "bytes": 2_500_000},
    ],
    "config": {"model_type": "qwen3_moe"},
    "tensors": [["w", [64, 64]]],
}


@pytest.fixture(autouse=True)
def nothing_else_here(monkeypatch: pytest.MonkeyPatch, private_data: Path) -> None:
    monkeypatch.setattr(other_programs, "find", lambda home=None: [])
    monkeypatch.setattr("engine.hub.demo.demo_path", lambda: private_data / "demo.gguf")
    monkeypatch.setattr("engine.hub.demo.dense_path", lambda: private_data / "dense.gguf")
    private_data.mkdir(parents=True, exist_ok=True)
    update = {"version": 1, "date": "9999-01-01", "models": [ENTRY]}
    (private_data / "catalogue.json").write_text(json.dumps(update))


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        files = {"tiny-Q4_0.gguf": Pattern(1_500_000, seed=1), "tiny-Q8_0.gguf": Pattern(2_500_000, seed=2)}
        hub.add(REPO, files)  # type: ignore[arg-type]
        yield hub


@pytest.fixture
def downloads(settings: SettingsStore, hub: FakeHub) -> Iterator[DownloadHost]:
    settings.change(hub=hub.url)
    made = DownloadHost(settings)
    yield made
    made.shutdown()


@pytest.fixture
def page(host: EngineHost, settings: SettingsStore, downloads: DownloadHost, qtbot: QtBot) -> ModelsPage:
    made = ModelsPage(host, settings, downloads)
    qtbot.addWidget(made)
    made.resize(1190, 800)
    made.show()
    tasks.finish()
    return made


def texts(widget: object) -> str:
    shown = (label.text() for label in widget.findChildren(QLabel) if not label.isHidden())
    return " | ".join(shown).replace("\u00a0", " ")


def row(page: ModelsPage, action: str) -> RowWidget:
    return next(r for r in page.rows if r.action == action)


Until = Callable[[Callable[[], bool]], None]


@pytest.fixture
def until(qtbot: QtBot) -> Until:
    return lambda condition: qtbot.waitUntil(condition, timeout=LONG)


def has(page: ModelsPage, action: str) -> bool:
    return any(r.action == action for r in page.rows)


def test_the_catalogue_is_planned_before_anything_is_fetched(page: ModelsPage, hub: FakeHub) -> None:
    offer = row(page, "download")
    said = texts(offer)
    for expected in ("Tiny MoE", "Q4_0 · Maker · 30.5B, 3.3B active · Apache-2.0", "1.5 MB", "49–66"):
        assert expected in said
    assert offer.chip.text() == "Experts in RAM, the rest on the GPU"
    assert hub.requests == []


def test_from_download_to_load(
    page: ModelsPage, hub: FakeHub, downloads: DownloadHost, until: Until, qtbot: QtBot, private_data: Path
) -> None:
    with qtbot.waitSignal(downloads.finished, timeout=LONG) as finished:
        row(page, "download").get.click()
    path = private_data / "models/maker/Tiny-GGUF/tiny-Q4_0.gguf"
    assert finished.args[0].path == path
    assert path.stat().st_size == 1_500_000
    until(lambda: any(r.row.path == str(path) for r in page.rows))
    # What is here is no offer any more, but leads to the model's other quantisations.
    assert not has(page, "download")
    next(r for r in page.rows if r.row.path == str(path)).others.click()
    assert page.findChild(DetailsDialog).windowTitle() == "Tiny MoE"


def test_pause_resume_and_cancel(
    page: ModelsPage, settings: SettingsStore, downloads: DownloadHost, hub: FakeHub, until: Until, private_data: Path
) -> None:
    hub.repositories[REPO].files["tiny-Q4_0.gguf"].faults = [Fault("stall", at=500_000)] * 9
    row(page, "download").get.click()
    until(lambda: any(s.done >= 500_000 for s in downloads.statuses))
    coming = row(page, "downloading")
    assert "500 kB / 1.5 MB (33%)" in texts(coming)
    assert coming.pause.text() == "Pause"
    coming.pause.click()
    until(lambda: "Paused at 33%" in texts(row(page, "downloading")))
    assert row(page, "downloading").pause.text() == "Resume"
    row(page, "downloading").pause.click()
    until(lambda: bool(downloads.active))
    row(page, "downloading").drop.click()
    until(lambda: not has(page, "downloading"))
    assert has(page, "download")
    assert not list((private_data / "models").rglob("*.part"))


def test_a_failure_says_why_and_offers_to_go_on(
    page: ModelsPage, hub: FakeHub, downloads: DownloadHost, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories[REPO].gated = True
    row(page, "download").get.click()
    until(lambda: any(s.state == "failed" for s in downloads.statuses))
    until(lambda: "Stopped at 0%" in texts(row(page, "downloading")))
    stopped = row(page, "downloading")
    assert f"Open {hub.url}/{REPO}, accept its terms" in texts(stopped)
    opened: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toString()))
    stopped.visit.click()
    assert opened == [f"{hub.url}/{REPO}"]
    hub.repositories[REPO].gated = False
    row(page, "downloading").pause.click()
    until(lambda: any(s.state == "finished" for s in downloads.statuses))


def test_offline_is_said_in_place(page: ModelsPage, settings: SettingsStore, hub: FakeHub, qtbot: QtBot) -> None:
    settings.change(offline=True)
    with qtbot.waitSignal(page.noteWanted, timeout=LONG) as note:
        row(page, "download").get.click()
    assert "work offline" in str(note.args[0])
    assert hub.requests == []


def test_a_search_that_fails_says_why(page: ModelsPage, settings: SettingsStore, hub: FakeHub, qtbot: QtBot) -> None:
    settings.change(offline=True)
    page.search.setText("tiny")
    with qtbot.waitSignal(page.noteWanted, timeout=LONG) as note:
        page.search.returnPressed.emit()
    assert "work offline" in str(note.args[0])
    assert hub.requests == []


def test_enter_searches_the_hub_and_details_list_its_models(page: ModelsPage, hub: FakeHub, until: Until) -> None:
    page.search.setText("tiny")
    assert hub.requests == []
    page.search.returnPressed.emit()
    until(lambda: any(r.row.repo == REPO for r in page.rows))
    hit = next(r for r in page.rows if r.row.repo == REPO)
    assert "maker · Apache-2.0 · 1 download" in texts(hit)
    assert hit.get.text() == "Choose…"
    hit.get.click()
    dialog = page.findChild(DetailsDialog)
    until(lambda: len(dialog.choices) == 2)
    assert "Q4_0" in texts(dialog.choices[0])
    dialog.choices[1].get.click()
    until(lambda: any(s.label == "Q8_0" for s in page._downloads.statuses))


def test_details_of_the_catalogue_compare_quantisations(page: ModelsPage, hub: FakeHub, api: FakeApi) -> None:
    row(page, "download").details.click()
    tasks.finish()
    dialog = page.findChild(DetailsDialog)
    said = texts(dialog)
    facts = ("30.5B weights, 3.3B active per token", "up to 32\u202f768 tokens")
    for expected in (*facts, "Q4_0", "Q8_0", "49–66 tok/s"):
        assert expected in said
    assert all(choice.chip.text() for choice in dialog.choices)
    dialog.reject()
    assert hub.requests == []


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ({"text": "tiny"}, True),
        ({"text": "moe tests"}, True),
        ({"text": "nothing like it"}, False),
        ({"largest": 8 * 10**9}, True),
        ({"free": True}, True),
        ({"fits": True}, True),
    ],
)
def test_filters(page: ModelsPage, filters: dict[str, object], left: bool) -> None:
    page._refilter(**filters)
    assert has(page, "download") == left


def test_what_does_not_fit_can_be_hidden(page: ModelsPage, api: FakeApi) -> None:
    api.mode, api.label = "too_large", "Too large for this PC"
    page.refresh()
    tasks.finish()
    assert has(page, "download")
    page.filters.fits.click()
    assert not has(page, "download")


def test_deleting_can_be_undone_until_the_program_closes(
    page: ModelsPage, private_data: Path, qtbot: QtBot, until: Until
) -> None:
    path = private_data / "models/mine.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    page.refresh()
    tasks.finish()
    mine = next(r for r in page.rows if r.row.path == str(path))
    assert mine.row.own
    with qtbot.waitSignal(page.noteWanted, timeout=LONG) as note:
        mine.delete.click()
    assert not path.exists()
    ((caption, undo),) = note.args[1]
    assert caption == "Undo"
    undo()
    until(path.exists)
    tasks.finish()
    with qtbot.waitSignal(page.noteWanted, timeout=LONG):
        next(r for r in page.rows if r.row.path == str(path)).delete.click()
    page.shutdown()
    tasks.finish()
    assert not (private_data / "models/.trash").exists()


def test_five_hundred_models_need_few_widgets(page: ModelsPage, private_data: Path) -> None:
    folder = private_data / "models"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(500):
        (folder / f"m{number}.gguf").write_bytes(b"x")
    page.refresh()
    tasks.finish()
    assert len(page.list.items) > 500
    assert len(page.rows) < 30


def test_the_same_file_twice_is_said(page: ModelsPage, private_data: Path) -> None:
    folder = private_data / "models"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("a", b"x" * 900), ("b", b"x" * 900), ("c", b"y" * 900)):
        (folder / f"{name}.gguf").write_bytes(content)
    from app.models.survey import ModelRow, _name_duplicates

    rows = [ModelRow(n, n, "gguf", 900, checkpoint=folder / f"{n}.gguf") for n in "abc"]
    assert [row.detail for row in _name_duplicates(rows)] == ["gguf", "gguf · same file as a", "gguf"]


def test_what_waits_can_be_loaded_next(
    page: ModelsPage, hub: FakeHub, downloads: DownloadHost, settings: SettingsStore, until: Until
) -> None:
    settings.change(downloads_at_once=1)
    hub.add("maker/other", {f"{n}-Q4_0.gguf": Pattern(1_000_000, seed=n) for n in (3, 4)})  # type: ignore[arg-type]
    stall = [Fault("stall", at=100_000)] * 99
    for repository in hub.repositories.values():
        for file in repository.files.values():
            file.faults = list(stall)
    from engine.hub.network import NetworkSettings
    from engine.hub.repository import Hub

    models = Hub(NetworkSettings(endpoint=hub.url)).repository("maker/other").models
    row(page, "download").get.click()
    until(lambda: bool(downloads.active))
    for model in models:
        downloads.add(model)
    until(lambda: [s.state for s in downloads.statuses] == ["downloading", "queued", "queued"])
    last = next(r for r in page.rows if r.row.download and r.row.download.id == downloads.statuses[2].id)
    assert last.hurry.isVisible()
    last.hurry.click()
    until(lambda: downloads.statuses[0].id == last.row.download.id)
