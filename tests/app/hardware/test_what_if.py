"""What a model would do on another PC, worked out while the user types."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from fakes import FakeApi, make_report
from pytestqt.qtbot import QtBot

import engine
from app import tasks
from app.compare.dialog import CompareDialog
from app.hardware.what_if import GB, Question, WhatIfPanel, answer
from app.models.survey import ModelRow, find_offers
from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport

LONG = 20_000


def shown(qtbot: QtBot, panel: WhatIfPanel) -> WhatIfPanel:
    qtbot.addWidget(panel)
    panel.resize(800, 400)
    panel.show_report(make_report())
    tasks.finish()
    return panel


def test_more_memory_runs_a_larger_model() -> None:
    here = make_report(gpus=[])
    small = answer(engine, here, Question(ram=16))
    large = answer(engine, here, Question(ram=512, cpu="Xeon Gold 6454S"))
    assert small is not None
    assert large is not None
    assert large.plan.bytes.ram_total > 4 * small.plan.bytes.ram_total


def test_a_graphics_card_of_that_size_is_planned_with() -> None:
    entry = "Qwen3-30B-A3B Instruct"
    key = next(row.entry.id for row in find_offers() if row.name == entry)
    with_card = answer(engine, make_report(), Question(ram=64, vram=96, gpu="RTX PRO 6000", entry=key))
    without = answer(engine, make_report(), Question(ram=64, vram=0, entry=key))
    assert with_card.plan.mode == "all_gpu"
    assert without.plan.mode == "cpu"
    assert with_card.plan.prediction.decode_tps.likely > without.plan.prediction.decode_tps.likely


def test_nothing_fits_in_two_gigabytes() -> None:
    assert answer(engine, make_report(gpus=[]), Question(ram=2)) is None


def test_the_panel_asks_anew_after_each_change(qtbot: QtBot, api: FakeApi) -> None:
    asked: list[Question] = []

    def ask(api: Any, report: HardwareReport, question: Question) -> ModelRow | None:
        assert threading.current_thread() is not threading.main_thread()
        asked.append(question)
        return answer(api, report, question)

    panel = shown(qtbot, WhatIfPanel(api, ask))
    assert asked == [Question()]
    assert panel.speed.text() == "49 to 66 tok/s"
    with qtbot.waitSignal(panel.answered, timeout=LONG):
        panel.ram.setValue(64)
        panel.vram.setValue(16)
        panel.gpu.setText("RTX 4080")
    assert asked[-1] == Question(64, 16, "", "RTX 4080")
    tasks.finish()


def test_a_new_question_takes_the_old_answer_away_and_goes_on_to_the_comparison(qtbot: QtBot, api: FakeApi) -> None:
    panel = shown(qtbot, WhatIfPanel(api))
    with qtbot.waitSignal(panel.answered, timeout=LONG):
        panel.context.setValue(139_000)
        panel._ask()
        assert panel.speed.isHidden()
        assert panel.figures.text() == "Calculating…"
    # What was typed asks once more a moment later, which may be this one.
    qtbot.waitUntil(lambda: not panel.speed.isHidden(), timeout=LONG)
    panel.compare.click()
    dialog = panel.findChild(CompareDialog)
    assert dialog.context.value() == 139_000
    dialog.close()
    tasks.finish()


def test_an_unknown_part_is_said_and_corrected(qtbot: QtBot, api: FakeApi) -> None:
    panel = shown(qtbot, WhatIfPanel(api))
    with qtbot.waitSignal(panel.answered, timeout=LONG):
        panel.cpu.setText("Abacus 3000")
    assert "Abacus 3000" in panel.name.text()
    assert panel.chip.isHidden()
    with qtbot.waitSignal(panel.answered, timeout=LONG):
        panel.cpu.setText("Ryzen 9 7950X")
    assert not panel.chip.isHidden()
    tasks.finish()


def test_a_card_that_nobody_knows_cannot_be_compared_with(qtbot: QtBot, api: FakeApi) -> None:
    panel = shown(qtbot, WhatIfPanel(api))
    assert panel.compare.isEnabled()
    # Asked for before the answer is there, it is said at once.
    panel.gpu.setText("Foobar 9999")
    panel.compare.click()
    assert "Foobar 9999" in panel.name.text()
    assert not panel.compare.isEnabled()
    with qtbot.waitSignal(panel.answered, timeout=LONG):
        panel._ask()
    assert "Foobar 9999" in panel.name.text()
    assert not panel.compare.isEnabled()
    with qtbot.waitSignal(panel.answered, timeout=LONG):
        panel.gpu.setText("RTX 4080")
    assert panel.compare.isEnabled()
    tasks.finish()


def test_that_nothing_fits_is_said(qtbot: QtBot, api: FakeApi) -> None:
    api.mode = "too_large"
    panel = shown(qtbot, WhatIfPanel(api))
    assert panel.name.text() == "No model in the catalogue would fit"
    assert panel.speed.isHidden()


@pytest.mark.parametrize("vram", [0, 24])
def test_no_card_and_a_card_are_different_questions(qtbot: QtBot, api: FakeApi, vram: int) -> None:
    panel = shown(qtbot, WhatIfPanel(api))
    assert panel.question.vram is None
    panel.vram.setValue(vram)
    assert panel.question.vram == vram
    with qtbot.waitSignal(panel.answered, timeout=LONG):
        pass
    tasks.finish()


def test_amounts_are_in_gigabytes() -> None:
    with pytest.raises(GreenroomError):
        answer(engine, make_report(), Question(ram=(1 << 60) // GB + 1))
