"""Machines side by side: what is asked, shown and saved."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import make_report
from PySide6.QtGui import QFontMetricsF, QImage
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app import language, tasks
from app.compare.dialog import BOUGHT, CompareDialog, save_picture
from app.compare.picture import BAR, LEAST, LEFT, RIGHT, ComparisonView, paint_comparison
from app.compare.study import Entry, amounts, compared, cost, in_words, models, place, speed
from app.theme import theme
from app.widgets.picture import text_font
from app.words import expected
from engine.errors import GreenroomError
from engine.placement.compare import Comparison, Use
from engine.placement.plan import Range

MODEL = "qwen3-30b-a3b-instruct-2507"
HERE = replace(make_report(), gpus=[replace(make_report().gpus[0], vendor="nvidia")])

Open = Callable[..., CompareDialog]


@pytest.fixture
def open_dialog(qtbot: QtBot) -> Iterator[Open]:
    def make(parts: Entry | None = None, model: str = MODEL) -> CompareDialog:
        dialog = CompareDialog(HERE, parts, model)
        qtbot.addWidget(dialog)
        dialog.show()
        tasks.finish()
        return dialog

    yield make
    tasks.finish()


def names(dialog: CompareDialog) -> list[str]:
    return [row.name for row in dialog.view.rows]


def test_this_pc_stands_beside_what_was_asked(open_dialog: Open) -> None:
    dialog = open_dialog(Entry(ram=128, gpu="RTX 4090"))
    assert names(dialog) == ["This PC", "128 GB RAM, RTX 4090"]
    assert not dialog.lines[0].remove.isVisible()
    assert dialog.view.accessibleDescription().startswith("This PC: ")


def test_machines_are_added_and_taken_away(open_dialog: Open) -> None:
    dialog = open_dialog()
    dialog.cpu.setText("2x EPYC 9355")
    dialog.ram.setValue(768)
    dialog.more.click()
    tasks.finish()
    assert names(dialog) == ["This PC", "2x EPYC 9355, 768 GB RAM"]
    assert dialog.cpu.text() == ""
    dialog.lines[1].remove.click()
    tasks.finish()
    assert names(dialog) == ["This PC"]
    # Nothing was said: that would be this PC again.
    dialog.more.click()
    tasks.finish()
    assert names(dialog) == ["This PC"]


def test_an_unknown_part_is_said_and_keeps_the_rest(open_dialog: Open) -> None:
    dialog = open_dialog()
    dialog.cpu.setText("no such thing")
    dialog.more.click()
    tasks.finish()
    assert "no such thing" in dialog.trouble.text()
    assert names(dialog) == ["This PC"]
    assert dialog.cpu.text() == "no such thing"


def test_prices_become_costs(open_dialog: Open, qtbot: QtBot) -> None:
    dialog = open_dialog(Entry(ram=128, gpu="RTX 4090"))
    assert not dialog._bought.isVisible()
    with qtbot.waitSignal(dialog.answered):
        dialog.lines[0].price.setValue(2.5)
    with qtbot.waitSignal(dialog.answered):
        dialog.lines[1].kind.setCurrentIndex(dialog.lines[1].kind.findData(BOUGHT))
        dialog.lines[1].price.setValue(3000)
    assert dialog._bought.isVisible()
    rented, bought = dialog.view.rows
    assert rented.cost_per_million is not None
    assert rented.cost_per_million.likely == pytest.approx(2.5 / 3600 * 1e6 / rented.decode_tps.likely)
    assert bought.cost_per_million is not None
    hourly = 3000 / (3 * 365 * 8)
    assert bought.cost_per_million.likely == pytest.approx(hourly / 3600 * 1e6 / bought.decode_tps.likely)
    assert "per million tokens" in dialog.view.accessibleDescription()


def test_another_model_and_quantisation(open_dialog: Open, qtbot: QtBot) -> None:
    dialog = open_dialog()
    first = dialog.view.rows[0].ram_bytes
    with qtbot.waitSignal(dialog.answered):
        dialog.quant.setCurrentIndex(dialog.quant.findData("Q8_0"))
    assert dialog.view.rows[0].ram_bytes > 1.5 * first
    with qtbot.waitSignal(dialog.answered):
        dialog.model.setCurrentIndex(dialog.model.findData("deepseek-v3"))
    assert dialog.view.rows[0].mode == "too_large"
    assert dialog.title.startswith("DeepSeek-V3 ")


def test_a_context_that_is_too_long_is_said(open_dialog: Open, qtbot: QtBot) -> None:
    dialog = open_dialog(model="mixtral-8x7b-instruct")
    with qtbot.waitSignal(dialog.answered):
        dialog.context.setValue(1_000_000)
    assert "1000000 tokens cannot be planned" in dialog.trouble.text()


def test_saved_as_table_and_picture(open_dialog: Open, tmp_path: Path) -> None:
    dialog = open_dialog(Entry(ram=128, gpu="RTX 4090"))
    table, picture = tmp_path / "a.csv", tmp_path / "a.png"
    dialog.csv.click()
    dialog.findChild(QFileDialog).fileSelected.emit(str(table))
    with table.open(encoding="utf-8", newline="") as file:
        assert [row["machine"] for row in csv.DictReader(file)] == names(dialog)
    save_picture(picture, dialog.view.rows, dialog.title, dialog.use)
    assert not QImage(str(picture)).isNull()


def test_a_place_that_cannot_be_written_is_said(open_dialog: Open, tmp_path: Path) -> None:
    dialog = open_dialog()
    dialog._write(tmp_path / "none" / "a.csv", lambda path: path.write_text("a"))
    assert "could not be saved" in dialog.trouble.text()
    dialog._write(tmp_path, lambda path: save_picture(path, dialog.view.rows, "a", Use()))
    assert "could not be saved" in dialog.trouble.text()


@pytest.fixture(params=["light", "dark"])
def look(request: pytest.FixtureRequest, qapp: object) -> Iterator[None]:
    before = theme().mode
    theme().set_mode(request.param)
    yield
    theme().set_mode(before)


def test_the_picture_shows_a_bar_where_there_is_a_speed(look: None) -> None:
    rows = compared(HERE, MODEL, None, [Entry(), Entry(ram=2, vram=0)], Use())
    assert [row.mode for row in rows] == ["hybrid", "too_large"]
    image = paint_comparison(rows, "A model", "A note")
    assert image.pixelColor(image.width() // 2, 20) == theme().colour("bg")
    accent = theme().colour("accent")
    columns = [
        sum(image.pixelColor(x, y) == accent for x in range(0, image.width(), 4)) for y in range(0, image.height(), 4)
    ]
    # The first machine has a bar; the second has none.
    half = len(columns) // 2
    assert max(columns[:half]) > 20
    assert max(columns[half:]) == 0


def test_a_zoom_makes_rows_higher_where_they_are_shown(qtbot: QtBot) -> None:
    view = ComparisonView()
    qtbot.addWidget(view)
    view.resize(900, 300)
    view.show_rows(compared(HERE, MODEL, None, [Entry(), Entry(ram=2, vram=0)], Use()))
    view.show()
    before, look = view.minimumHeight(), theme()
    try:
        look.set_look(look.mode, 1.5, "comfortable", False)
        assert view.minimumHeight() == before * 1.5, "the rows are as high as their text"
        view.resize(900, view.minimumHeight())
        shown = view.grab().toImage()
        bars = {y for y in range(shown.height()) if shown.pixelColor(shown.width() // 2, y) == look.colour("hover")}
        assert len(bars) >= BAR * 1.5 - 2, "the empty bar of the second row is higher too"
        view.resize(700, view.minimumHeight())
        assert view.minimumHeight() == before * 1.25, "no higher than what is in them can be as wide"
    finally:
        look.set_look(look.mode, 1.0, "comfortable", False)


@pytest.mark.parametrize("spoken", ["en", "ko"])
def test_the_narrowest_rows_have_room_for_their_figures(spoken: str, qapp: object) -> None:
    language.set_language(spoken)
    metrics = QFontMetricsF(text_font(14, bold=True))
    assert metrics.horizontalAdvance(expected(Range(888.0, 888.0, 888.0))) <= LEAST * (1 - LEFT - RIGHT) - 24


def test_words_for_what_does_not_run() -> None:
    (row,) = compared(HERE, MODEL, None, [Entry(ram=4, vram=0)], Use())
    assert (place(row), speed(row), cost(row)) == ("Too large", "–", "")
    assert amounts(row)[0].startswith("needs ")
    assert in_words([row]).count("\n") == 0


def test_every_model_of_the_list_can_be_compared() -> None:
    keys = [entry.id for entry in models()]
    assert {"deepseek-v3", MODEL} <= set(keys)
    rows: list[Comparison] = compared(HERE, "deepseek-v3:Q8_0", 4096, [Entry(ram=1536, gpu="RTX 5090")], Use())
    assert rows[0].mode in ("hybrid", "cpu")
    with pytest.raises(GreenroomError, match="no-such-model"):
        compared(HERE, "no-such-model", None, [Entry()], Use())


def test_one_year_is_no_years(open_dialog: Open) -> None:
    dialog = open_dialog()
    for value, text in ((3.0, "3.0 years"), (1.0, "1.0 year"), (1.5, "1.5 years"), (0.5, "0.5 years")):
        dialog.years.setValue(value)
        assert dialog.years.text() == text
    dialog.hours.setValue(1.0)
    assert dialog.hours.text() == "1.0 hour a day"
