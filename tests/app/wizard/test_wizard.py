"""The wizard, page by page, with a fake engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from fakes import FakeApi, make_report
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QLineEdit, QWizard
from pytestqt.qtbot import QtBot
from wizard_fakes import MEASURED, Open

from app import tasks
from app.widgets.page import MARGIN
from app.wizard.wizard import SetupWizard
from engine.errors import GreenroomError
from engine.hardware.report import DiskReport, HardwareReport, Isa, MemoryReport
from engine.progress import Progress

LONG = 20_000
NEXT, BACK = QWizard.WizardButton.NextButton, QWizard.WizardButton.BackButton
DEMO, FINISH = QWizard.WizardButton.CustomButton1, QWizard.WizardButton.FinishButton


def go_to(wizard: SetupWizard, page: str) -> None:
    while wizard.currentPage() is not getattr(wizard, page):
        wizard.button(NEXT).click()
    tasks.finish()


def states(wizard: SetupWizard) -> dict[str, str]:
    return {row.check.title: row.check.state for row in wizard.this_pc.list.rows}


def wanted(wizard: SetupWizard) -> list[object]:
    """What the wizard asks for, in order, and that it has ended."""
    seen: list[object] = []
    wizard.demoWanted.connect(lambda: seen.append("demo"))
    wizard.downloadWanted.connect(lambda row: seen.append(row.name))
    wizard.finished.connect(lambda result: seen.append("closed" if result == 0 else "finished"))
    return seen


def endless(progress: Callable[[Progress], None]) -> HardwareReport:
    """Measures until it is cancelled."""
    while True:
        progress(Progress(1, 4, "Reading RAM with 8 threads"))
        threading.Event().wait(0.005)


def test_one_click_leads_to_the_demo(open_wizard: Open) -> None:
    wizard = open_wizard()
    seen = wanted(wizard)
    wizard.button(DEMO).click()
    assert seen == ["demo", "finished"]


def test_checks_wait_until_the_pc_has_answered(
    open_wizard: Open, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(api, "probe", lambda found: go_on.wait(20) and MEASURED)
    wizard = open_wizard()
    wizard.button(NEXT).click()
    assert set(states(wizard).values()) == {"wait"}
    go_on.set()
    tasks.finish()
    assert set(states(wizard).values()) == {"good"}
    assert not wizard.this_pc.work.isVisible()


def test_the_memory_is_measured_with_progress(open_wizard: Open, api: FakeApi, qtbot: QtBot) -> None:
    api.report, go_on = make_report(), threading.Event()

    def measure(progress: Callable[[Progress], None]) -> HardwareReport:
        progress(Progress(3, 4, "Reading RAM with 8 threads"))
        assert go_on.wait(20)
        return MEASURED

    wizard = open_wizard(measure=measure)
    wizard.button(NEXT).click()
    page = wizard.this_pc
    qtbot.waitUntil(lambda: page._doing.text() == "Reading RAM with 8 threads", timeout=LONG)
    assert page.work.isVisible()
    assert (page._bar.value(), page._bar.maximum()) == (3, 4)
    assert states(wizard)["Memory"] == "note"
    go_on.set()
    tasks.finish()
    assert states(wizard)["Memory"] == "good"
    assert not page.work.isVisible()


def test_the_measurement_can_be_skipped(open_wizard: Open, api: FakeApi, qtbot: QtBot) -> None:
    api.report = make_report()
    wizard = open_wizard(measure=endless)
    wizard.button(NEXT).click()
    qtbot.waitUntil(wizard.this_pc.skip.isVisible, timeout=LONG)
    wizard.this_pc.skip.click()
    tasks.finish()
    assert not wizard.this_pc.work.isVisible()
    go_to(wizard, "fits")
    assert wizard.fits.cards
    assert "not measured" in wizard.fits.lead.text()


def test_who_does_not_wait_sees_plans_and_better_ones_after_the_measurement(
    open_wizard: Open, api: FakeApi, qtbot: QtBot
) -> None:
    api.report, go_on = make_report(), threading.Event()

    def measure(progress: Callable[[Progress], None]) -> HardwareReport:
        assert go_on.wait(20)
        return MEASURED

    wizard = open_wizard(measure=measure)
    qtbot.waitUntil(lambda: wizard.findings.measuring, timeout=LONG)
    wizard.button(NEXT).click()
    wizard.button(NEXT).click()
    qtbot.waitUntil(lambda: bool(wizard.fits.cards), timeout=LONG)
    assert "not measured" in wizard.fits.lead.text()
    go_on.set()
    tasks.finish()
    assert "measurements of this PC" in wizard.fits.lead.text()


def test_a_failed_measurement_says_why_and_can_be_tried_again(open_wizard: Open, api: FakeApi) -> None:
    api.report = make_report()
    results: list[object] = [GreenroomError("It cannot be measured", "too little is free", "Close programs."), MEASURED]

    def measure(progress: Callable[[Progress], None]) -> HardwareReport:
        result = results.pop(0)
        if isinstance(result, GreenroomError):
            raise result
        assert isinstance(result, HardwareReport)
        return result

    wizard = open_wizard(measure=measure)
    go_to(wizard, "this_pc")
    assert "too little is free" in wizard.this_pc.trouble.text()
    assert wizard.findings.fits is not None
    wizard.this_pc.again.click()
    tasks.finish()
    assert not wizard.this_pc.trouble.isVisible()
    assert states(wizard)["Memory"] == "good"


def test_a_failed_probe_keeps_nobody_from_going_on(
    open_wizard: Open, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> HardwareReport:
        raise GreenroomError("This PC could not be looked at", "a file is unreadable", "Start again.")

    monkeypatch.setattr(api, "probe", fail)
    wizard = open_wizard()
    seen = wanted(wizard)
    go_to(wizard, "this_pc")
    assert "a file is unreadable" in wizard.this_pc.trouble.text()
    go_to(wizard, "fits")
    assert "a file is unreadable" in wizard.fits.lead.text()
    go_to(wizard, "start")
    assert not wizard.start.download.isVisible()
    wizard.button(FINISH).click()
    assert seen == ["demo", "finished"]


def test_a_failed_probe_can_be_tried_again(open_wizard: Open, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[object] = [GreenroomError("It failed", "of a reason", "Again."), MEASURED]

    def probe(**_: object) -> object:
        answer = answers.pop(0)
        if isinstance(answer, GreenroomError):
            raise answer
        return answer

    monkeypatch.setattr(api, "probe", probe)
    wizard = open_wizard()
    tasks.finish()
    wizard.button(NEXT).click()
    tasks.finish()
    assert set(states(wizard).values()) == {"good"}


def test_a_cross_never_blocks(open_wizard: Open, api: FakeApi) -> None:
    api.report = replace(MEASURED, cpu=replace(MEASURED.cpu, isa=Isa(["sse2"], ["sse2"])))
    wizard = open_wizard()
    go_to(wizard, "this_pc")
    assert states(wizard)["Instructions"] == "bad"
    assert wizard.button(NEXT).isEnabled()


def test_what_fits_says_place_speed_memory_and_size(open_wizard: Open) -> None:
    wizard = open_wizard()
    go_to(wizard, "fits")
    cards = wizard.fits.cards
    assert 1 < len(cards) <= 4
    best = cards[0]
    assert best.row is wizard.findings.fits.best
    for word in ("Experts in RAM, the rest on the GPU", "49 to 66 tokens per second", "17.5 GB RAM", "4.1 GB VRAM"):
        assert word in best.accessibleName()
    assert best.row.choice.label in best.accessibleName()
    assert best.accessibleDescription().startswith("Good at ")  # why it is the best
    assert cards[1].accessibleDescription() == ""


def test_a_card_downloads_its_model(open_wizard: Open) -> None:
    wizard = open_wizard()
    seen = wanted(wizard)
    go_to(wizard, "fits")
    card = wizard.fits.cards[1]
    card.action.click()
    assert seen == [card.row.name, "finished"]


def test_where_nothing_fits_only_the_demo_is_offered(open_wizard: Open, api: FakeApi) -> None:
    api.mode = "too_large"
    wizard = open_wizard()
    go_to(wizard, "fits")
    assert wizard.findings.fits.best is None
    assert {card.action.text() for card in wizard.fits.cards} == {"Show the calculation"}
    assert "No model in the catalogue fits" in wizard.fits._note.text()
    go_to(wizard, "start")
    assert not wizard.start.download.isVisible()


def test_a_full_disk_is_said_and_nothing_is_recommended(open_wizard: Open, api: FakeApi) -> None:
    api.report = replace(MEASURED, disk=DiskReport("/", 1_000, 10_000))
    wizard = open_wizard()
    go_to(wizard, "fits")
    assert wizard.findings.fits.best is None
    assert not wizard.fits.cards[0].action.isEnabled()
    assert "more free disk space" in wizard.fits.cards[0].accessibleName()


def test_the_end_offers_the_demo_or_the_recommended_model(open_wizard: Open) -> None:
    wizard = open_wizard()
    seen = wanted(wizard)
    go_to(wizard, "start")
    assert wizard.start.demo.isChecked()
    assert "No download" in wizard.start._demo_about.text()
    assert wizard.button(FINISH).text() == "Start"
    assert not wizard.button(DEMO).isVisible()
    wizard.start.download.click()
    assert wizard.button(FINISH).text() == "Download and start"
    wizard.button(FINISH).click()
    assert seen == [wizard.findings.fits.best.name, "finished"]


def test_a_missing_demo_says_its_download(open_wizard: Open) -> None:
    wizard = open_wizard(demo_is_here=lambda: False)
    go_to(wizard, "start")
    assert "93 MB" in wizard.start._demo_about.text()


@pytest.mark.parametrize("page", ["welcome", "this_pc", "fits", "start"])
def test_esc_closes_at_every_page_and_ends_the_work(open_wizard: Open, api: FakeApi, qtbot: QtBot, page: str) -> None:
    api.report = make_report()
    wizard = open_wizard(measure=endless)
    seen = wanted(wizard)
    qtbot.waitUntil(lambda: wizard.findings.measuring, timeout=LONG)
    while wizard.currentPage() is not getattr(wizard, page):
        wizard.button(NEXT).click()
    qtbot.keyClick(wizard, Qt.Key.Key_Escape)
    assert seen == ["closed"]
    tasks.finish()


def test_skipping_the_set_up_closes_it(open_wizard: Open) -> None:
    wizard = open_wizard()
    seen = wanted(wizard)
    wizard.steps.skip.click()
    assert seen == ["closed"]


def test_enter_goes_on_to_the_end(open_wizard: Open, qtbot: QtBot) -> None:
    wizard = open_wizard()
    seen = wanted(wizard)
    for name in ("welcome", "this_pc", "fits", "start"):
        assert wizard.currentPage() is getattr(wizard, name)
        tasks.finish()
        qtbot.keyClick(wizard, Qt.Key.Key_Return)
    assert seen == ["demo", "finished"]


def test_the_steps_follow_and_back_goes_back(open_wizard: Open) -> None:
    wizard = open_wizard()
    go_to(wizard, "fits")
    assert wizard.steps.accessibleName() == "Step 3 of 4: What fits"
    wizard.button(BACK).click()
    assert wizard.steps.accessibleName() == "Step 2 of 4: This PC"
    assert states(wizard)["Memory"] == "good"


def test_every_control_has_a_name(open_wizard: Open) -> None:
    wizard = open_wizard()
    go_to(wizard, "start")
    controls = [part for kind in (QAbstractButton, QLineEdit) for part in wizard.findChildren(kind)]
    nameless = [part for part in controls if not (part.accessibleName() or getattr(part, "text", str)())]
    # Qt keeps its own buttons that are not in the layout.
    assert [part for part in nameless if part.isVisible()] == []


def test_nothing_reaches_the_network(open_wizard: Open, asked_network: list[object]) -> None:
    wizard = open_wizard()
    for name in ("this_pc", "fits", "start"):
        go_to(wizard, name)
    wizard.start.download.click()
    wizard.button(FINISH).click()
    tasks.finish()
    assert asked_network == []


@pytest.mark.parametrize("size", [(680, 360), (760, 520), (980, 760)])
def test_nothing_is_wider_than_its_page(open_wizard: Open, api: FakeApi, size: tuple[int, int]) -> None:
    api.report = replace(MEASURED, memory=MemoryReport(3_000_000_000, 1_000_000_000, {"8": 52.0}))
    wizard = open_wizard()
    wizard.resize(*size)
    go_to(wizard, "start")
    for page in (wizard.start, wizard.fits, wizard.this_pc):
        inner = page.content.parentWidget()
        assert inner.minimumSizeHint().width() <= wizard.width() - wizard.steps.width() - 2 * MARGIN
        wizard.button(BACK).click()


def test_each_check_comes_as_it_is_known(
    open_wizard: Open, api: FakeApi, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> None:
    steps = threading.Semaphore(0)

    def probe(found: Callable[[str, HardwareReport], None]) -> HardwareReport:
        for field in ("disk", "memory", "cpu", "gpus"):
            assert steps.acquire(timeout=20)
            found(field, replace(MEASURED, warnings=["Something to know at the end."]))
        assert steps.acquire(timeout=20)
        return MEASURED

    monkeypatch.setattr(api, "probe", probe)
    wizard = open_wizard()
    wizard.button(NEXT).click()
    for known in (
        {"Disk"},
        {"Disk", "Memory"},
        {"Disk", "Memory", "CPU", "Instructions"},
        {"Disk", "Memory", "CPU", "Instructions", "GPU"},
    ):
        steps.release()
        qtbot.waitUntil(lambda known=known: len(known) == list(states(wizard).values()).count("good"), timeout=LONG)
        assert {title for title, state in states(wizard).items() if state == "good"} == known
    steps.release()
    tasks.finish()
    assert set(states(wizard).values()) == {"good"}
