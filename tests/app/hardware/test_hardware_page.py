"""The This PC page."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fakes import FakeApi, make_report
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from app import tasks
from app.compare.dialog import CompareDialog
from app.hardware.page import HardwarePage
from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport, MemoryReport
from engine.progress import Progress

MEASURED = make_report(memory=MemoryReport(64_000_000_000, 50_000_000_000, {"8": 52.0}))


def shown(qtbot: QtBot, page: HardwarePage) -> HardwarePage:
    qtbot.addWidget(page)
    page.resize(1000, 700)
    page.show()
    tasks.finish()
    return page


def titles(page: HardwarePage) -> list[str]:
    return [row.check.title for row in page.rows]


def test_shows_a_check_for_each_part(qtbot: QtBot, api: FakeApi) -> None:
    page = shown(qtbot, HardwarePage(api))
    assert titles(page) == ["CPU", "Instructions", "Memory", "GPU", "Disk"]
    assert page.rows[0].accessibleName().startswith("CPU: Good. AMD Ryzen")


def test_measuring_shows_progress_and_then_the_speed(qtbot: QtBot, api: FakeApi) -> None:
    go_on = threading.Event()

    def measure(progress: Callable[[Progress], None]) -> HardwareReport:
        progress(Progress(1, 4, "Reading RAM with 8 threads"))
        assert go_on.wait(20)
        return MEASURED

    page = shown(qtbot, HardwarePage(api, measure))
    page.measure.click()
    qtbot.waitUntil(lambda: page._message.text() == "Reading RAM with 8 threads", timeout=20_000)
    assert not page.measure.isEnabled()
    go_on.set()
    tasks.finish()
    assert page.measure.isEnabled()
    assert next(row.check.note for row in page.rows if row.check.title == "Memory") == "52.0 GB/s with 8 threads"


def test_measuring_can_be_cancelled(qtbot: QtBot, api: FakeApi) -> None:
    def measure(progress: Callable[[Progress], None]) -> HardwareReport:
        while True:
            progress(Progress(1, 4, "Reading RAM"))

    page = shown(qtbot, HardwarePage(api, measure))
    page.measure.click()
    page.stop_measuring()
    tasks.finish()
    assert page.measure.isEnabled()
    assert page.report is api.report


def test_a_failed_measurement_says_why_and_keeps_the_report(qtbot: QtBot, api: FakeApi) -> None:
    def measure(progress: Callable[[Progress], None]) -> HardwareReport:
        raise GreenroomError("The memory could not be measured", "too little is free", "Close other programs.")

    page = shown(qtbot, HardwarePage(api, measure))
    page.measure.click()
    tasks.finish()
    assert "too little is free" in page._trouble.text()
    assert page.measure.isEnabled()
    assert len(page.rows) == 5


def test_the_report_is_copied_as_text(qtbot: QtBot, api: FakeApi) -> None:
    page = HardwarePage(api)
    qtbot.addWidget(page)
    assert not page.copy.isEnabled()
    shown(qtbot, page)
    page.copy.click()
    text = QGuiApplication.clipboard().text()
    assert "[ok] CPU: AMD Ryzen 7 9700X, 8 cores." in text
    assert page.copy.text() == "Copied"


def test_the_set_up_guide_can_be_asked_for(qtbot: QtBot, api: FakeApi) -> None:
    page = shown(qtbot, HardwarePage(api))
    with qtbot.waitSignal(page.wizardWanted, timeout=20_000):
        page.guide.click()


def test_rows_stay_when_the_report_changes(qtbot: QtBot, api: FakeApi) -> None:
    page = shown(qtbot, HardwarePage(api))
    before = page.rows
    page.show_report(make_report(gpus=[], memory=MEASURED.memory))
    assert page.rows[:3] == before[:3]
    page.show_report(make_report(warnings=["One.", "Two."]))
    assert titles(page)[-2:] == ["Note", "Note"]
    page.show_report(make_report())
    assert len(page.rows) == 5
    tasks.finish()


def test_a_comparison_waits_for_the_report(qtbot: QtBot, api: FakeApi) -> None:
    page = HardwarePage(api)
    qtbot.addWidget(page)
    page.open_comparison()
    assert page.findChild(CompareDialog) is None
    page.show_report(MEASURED)
    dialog = page.findChild(CompareDialog)
    assert dialog.isVisible()
    dialog.close()
    page.show_report(MEASURED)
    assert not any(found.isVisible() for found in page.findChildren(CompareDialog)), "asked for once"
    tasks.finish()
