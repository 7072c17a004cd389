"""The bar over the chat."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from fakes import make_plan
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app import language
from app.actions import ACTIONS, Actions
from app.host import DEMO, AnswerResult, HostState
from app.models.local import LocalModel
from app.settings.store import SettingsStore
from app.theme import theme
from app.topbar import TopBar
from app.widgets.labels import ElideLabel
from app.widgets.plan_popover import PlanPopover
from engine.placement.plan import label_with_cache
from engine.progress import Progress
from engine.runtime.events import GenerationStats

READY = HostState("ready", "Qwen3-30B-A3B", "/m/q.gguf", make_plan(), kernel="int4")


@pytest.fixture
def bar(settings: SettingsStore, qtbot: QtBot) -> Iterator[TopBar]:
    window = QWidget()
    qtbot.addWidget(window)
    made = TopBar(settings, Actions(window, {spec.key: lambda: None for spec in ACTIONS}), window)
    made.resize(940, 46)
    window.show()
    yield made
    window.close()


DEMO_NAME = "Greenroom demo (SmolLM2-135M as a mixture of experts)"


def shown(bar: TopBar) -> tuple[str, str]:
    """The name as it is painted, and the speed."""
    bar.grab()
    name = bar.model.findChild(ElideLabel)
    fits = (text for text in (name.text(), *name.shorter) if name.fontMetrics().horizontalAdvance(text) <= name.width())
    return next(fits, "…"), "" if bar.speed.isHidden() else bar.speed.text()


def popover() -> PlanPopover:
    return next(w for w in QApplication.topLevelWidgets() if isinstance(w, PlanPopover) and w.isVisible())


def test_without_a_model_it_asks_for_one(bar: TopBar) -> None:
    assert bar.model.shown_name == "Choose a model"
    assert bar.chip.isHidden()
    assert bar.speed.isHidden()


def test_shows_name_plan_and_prediction(bar: TopBar) -> None:
    bar.show_state(READY)
    assert bar.model.shown_name == "Qwen3-30B-A3B"
    assert bar.chip.text() == "Experts in RAM, the rest on the GPU"
    assert bar.speed.text() == "about 57 tok/s predicted"
    assert not bar.cancel.isVisible()


def test_shows_what_was_measured_beside_what_was_predicted(bar: TopBar, qtbot: QtBot) -> None:
    bar.show_state(READY)
    bar.show_result(AnswerResult("Yes.", GenerationStats(decode_tps=53.4), "end"))
    assert "53.4 tok/s" in bar.speed.toolTip()
    bar.chip.click()
    said = [label.text() for label in popover().findChildren(QLabel)]
    assert said[said.index("Measured answer speed") + 1] == "53.4 tok/s"
    assert said[said.index("Predicted answer speed") + 1] == "about 57 tok/s (49 to 66)"
    popover().close()
    bar.show_state(HostState("loading", "Another", "/m/other.gguf", make_plan()))
    assert "53.4" not in bar.speed.toolTip()


def test_a_name_is_whole_where_there_is_room(bar: TopBar) -> None:
    name = "Greenroom demo (SmolLM2-135M as a mixture of experts)"
    bar.resize(1100, 46)
    bar.show_state(HostState("ready", name, DEMO, make_plan("cpu")))
    assert bar.model.width() >= bar.model.sizeHint().width()


def test_the_plan_is_whole_at_every_size_of_text_where_there_is_room(bar: TopBar) -> None:
    for size in range(80, 240):
        bar.chip.setStyleSheet(f"font-size: {size / 10}pt")
        bar.resize(1400, 46)
        bar.show_state(HostState("ready", "Qwen", "/m/q.gguf", make_plan("cpu")))
        assert bar.chip.text() == make_plan("cpu").short_label, size


def test_loading_shows_what_happens_and_can_be_cancelled(bar: TopBar, qtbot: QtBot) -> None:
    progress = Progress(24, 48, "Reading experts of layer 24 of 48")
    bar.show_state(HostState("loading", "Qwen", "/m/q.gguf", make_plan(), progress))
    assert bar.message.text() == progress.message
    assert bar.progress.value() == 500
    with qtbot.waitSignal(bar.loadCancelled):
        bar.cancel.click()


def test_unknown_totals_show_a_moving_bar(bar: TopBar) -> None:
    bar.show_state(HostState("planning", "Qwen", "/m/q.gguf", progress=Progress(0, 0, "Checking this PC")))
    assert (bar.progress.minimum(), bar.progress.maximum()) == (0, 0)


def test_a_long_name_leaves_room_for_the_rest(bar: TopBar) -> None:
    bar.show_state(HostState("ready", "Qwen3-235B-아주-긴-이름-" * 8, "/m/q.gguf", make_plan()))
    bar.grab()
    assert bar.model.geometry().right() < bar.chip.geometry().left()
    assert bar.speed.geometry().right() < bar.width()
    assert bar.speed.width() >= bar.speed.sizeHint().width()


def test_the_menu_offers_demo_recent_models_and_files(bar: TopBar, settings: SettingsStore, qtbot: QtBot) -> None:
    settings.change(recent=["/m/q.gguf", "/m/한국어 & more.gguf"])
    bar.show_state(READY)
    menu = bar.build_menu()
    texts = [action.text() for action in menu.actions() if not action.isSeparator()]
    assert texts[0].startswith("Demo model")
    assert texts[1:3] == ["q.gguf", "한국어 && more.gguf"]
    assert "Open a model file…" in texts
    assert "Open a model folder…" in texts
    assert [a.text() for a in menu.actions() if a.isChecked()] == ["q.gguf"]
    with qtbot.waitSignal(bar.modelChosen) as chosen:
        menu.actions()[0].trigger()
    assert chosen.args == [DEMO]
    with qtbot.waitSignal(bar.ejected):
        next(a for a in menu.actions() if a.text().startswith("Unload")).trigger()


def test_the_menu_offers_what_was_never_loaded_below_what_was(
    bar: TopBar, settings: SettingsStore, qtbot: QtBot
) -> None:
    settings.change(recent=["/m/q.gguf"])
    bar.show_models([LocalModel("new", "new.gguf", "/m/new.gguf"), LocalModel("q", "q.gguf", "/m/q.gguf")])
    menu = bar.build_menu()
    texts = [action.text() for action in menu.actions() if not action.isSeparator()]
    assert texts[1:4] == ["q.gguf", "new.gguf", "Open a model file…"]
    with qtbot.waitSignal(bar.modelChosen) as chosen:
        next(a for a in menu.actions() if a.text() == "new.gguf").trigger()
    assert chosen.args == ["/m/new.gguf"]


def test_the_chip_opens_the_sum(bar: TopBar) -> None:
    bar.show_state(READY)
    bar.chip.click()
    opened = popover()
    assert "22.3 GB of RAM is free" in opened.accessibleDescription()
    opened.close()


def test_a_refused_plan_offers_load_anyway_beside_the_sum(bar: TopBar, qtbot: QtBot) -> None:
    bar.show_state(HostState("failed", "Qwen", "/m/q.gguf", make_plan("tight", "Tight: needs 3.1 GB more free RAM")))
    bar.chip.click()
    anyway = next(b for b in popover().findChildren(QPushButton) if b.text() == "Load anyway")
    with qtbot.waitSignal(bar.loadAnyway):
        anyway.click()


def test_cached_experts_have_a_chip_where_there_is_room(bar: TopBar) -> None:
    label = label_with_cache(22)
    bar.show_state(HostState("ready", "Qwen3-30B-A3B", "/m/q.gguf", make_plan(label=label), kernel="int4"))
    assert bar.chip.text() == "Experts in RAM, the rest on the GPU"
    assert bar.cached.text() == "22% of experts cached in VRAM"
    assert not bar.cached.isHidden()
    bar.resize(700, 46)
    assert bar.cached.isHidden()
    bar.resize(1000, 46)
    bar.show_state(READY)
    assert bar.cached.isHidden()


def test_a_short_bar_keeps_the_name_and_shortens_the_plan(bar: TopBar) -> None:
    bar.show_state(READY)
    assert not bar.speed.isHidden()
    bar.resize(460, 46)
    bar.grab()
    assert bar.speed.isHidden()
    assert bar.chip.text().endswith("…")
    assert "Experts in RAM, the rest on the GPU" in bar.chip.accessibleName()
    assert bar.stage.geometry().right() <= bar.width()
    # A chip of three letters says nothing; the sum stays in reach.
    bar.resize(340, 46)
    assert bar.chip.isHidden()
    assert shown(bar)[0] == READY.model_name
    menu = bar.build_menu()
    next(a for a in menu.actions() if a.text() == "Show the calculation").trigger()
    popover().close()
    bar.resize(940, 46)
    assert bar.chip.text() == "Experts in RAM, the rest on the GPU"


def test_the_least_important_goes_first_and_the_name_stays_one(bar: TopBar) -> None:
    bar.show_state(HostState("ready", DEMO_NAME, DEMO, make_plan("cpu", label_with_cache(22))))
    assert bar.model.toolTip() == DEMO_NAME
    said: list[tuple[bool, str, str]] = []
    for width in range(1400, 440, -4):
        bar.resize(width, 46)
        said.append((not bar.cached.isHidden(), *shown(bar)))
        parts = [bar.model, bar.chip, bar.cached, bar.speed, bar.stage]
        seen = [part.geometry() for part in parts if not part.isHidden()]
        assert all(left.right() < right.left() for left, right in pairwise(seen))
        assert seen[-1].right() <= bar.width()
    assert list(dict.fromkeys(said)) == [
        (True, DEMO_NAME, "about 57 tok/s predicted"),
        (False, DEMO_NAME, "about 57 tok/s predicted"),
        (False, DEMO_NAME, "about 57 tok/s"),
        (False, "Greenroom demo", "about 57 tok/s predicted"),
        (False, "Greenroom demo", "about 57 tok/s"),
        (False, "Greenroom demo", ""),
    ]


def test_large_korean_text_beside_the_stage_keeps_the_models_name(bar: TopBar) -> None:
    language.set_language("ko")
    try:
        theme().set_look("light", 2.0, "comfortable", False)
        again = TopBar(bar._settings, bar._actions, bar.parentWidget())
        # What the stage leaves of a window of 1024 pixels.
        again.resize(450, theme().px(46))
        again.show()
        again.show_state(HostState("ready", DEMO_NAME, DEMO, make_plan("cpu")))
        assert shown(again)[0] == "Greenroom demo"
        assert again.chip.isHidden() or not again.chip.text().endswith("…")
    finally:
        theme().set_look("light", 1.0, "comfortable", False)
