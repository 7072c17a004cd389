"""Figures of an answer: what is derived from its steps, how they are shown, what the benchmark card carries."""

from __future__ import annotations

import getpass
from dataclasses import replace
from pathlib import Path

import pytest
from chat_fakes import STATS
from fakes import make_plan, make_report
from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QGuiApplication, QImage
from PySide6.QtWidgets import QFileDialog, QMessageBox

from app.chat.saving import save_bytes
from app.chat.speed.card import make_card
from app.chat.speed.card_picture import WIDTH, paint_card
from app.chat.speed.performance import KEPT, Measured, PerformanceLog, performance_log
from app.chat.speed.performance_chart import LEFT, StepChart, _round_up, _tick
from app.chat.speed.performance_panel import PerformancePanel
from app.host import AnswerDelta, AnswerResult, HostState
from app.theme import theme
from app.widgets.picture import SCALE, png
from engine.hardware.report import GpuReport
from engine.placement.plan import Range
from engine.runtime.events import GenerationStats
from engine.status import EngineStatus

READING = GenerationStats(prompt_tokens=40, prefilled_tokens=20)


def state_of(mode="cpu", **changes):
    report = make_report()
    memory = replace(report.memory, bandwidth_gbs={"1": 20.0, "8": 50.0, "16": 48.0})
    values = {
        "plan": make_plan(mode),
        "kernel": "int4 avx512vnni, 8 threads",
        "hardware": replace(report, memory=memory),
        "active_bytes": 2e9,
    }
    return HostState("ready", "Qwen3-30B-A3B-Q4_K_M", "/home/someone/models/Qwen3.gguf", **(values | changes))


class Host(QObject):
    answerEvent = Signal(object)
    answerFinished = Signal(object)

    def __init__(self):
        super().__init__()
        self.state = state_of()

    def status(self):
        return EngineStatus(hits=41, misses=59)


@pytest.fixture
def engine(qapp):
    return Host()


@pytest.fixture
def log(engine):
    return PerformanceLog(engine)


def answer(engine, log, message_id=1, stats=STATS, seconds=0.1, tokens=5):
    """One that gives a token every `seconds`, after its prompt has been read."""
    log.begin(message_id)
    engine.answerEvent.emit(AnswerDelta("", READING, ((9.0, 0), (9.5, 0))))
    for token in range(1, tokens + 1):
        engine.answerEvent.emit(AnswerDelta("x", stats, ((10 + token * seconds, token),)))
    engine.answerFinished.emit(AnswerResult("x", stats, "end"))


def test_steps_are_timed_token_by_token():
    measured = Measured(1, HostState(), [(1.0, 1), (1.2, 2), (1.5, 5), (1.6, 5), (1.8, 6)])
    assert measured.step_times == [
        (2, pytest.approx(200)),
        (5, pytest.approx(100)),  # three tokens at once: two drafts were right
        (6, pytest.approx(200)),
    ]
    assert measured.decode_s == pytest.approx(0.8)
    assert Measured(1, HostState()).step_times == []
    assert Measured(1, HostState()).decode_s == 0.0


def test_an_answer_is_followed_to_its_end(engine, log):
    seen = []
    log.changed.connect(lambda measured: seen.append((measured.message_id, measured.finished)))
    answer(engine, log, 7)
    assert log.newest is log.of(7)
    assert [tokens for _, tokens in log.newest.marks] == [1, 2, 3, 4, 5], "reading the prompt is no token"
    assert log.newest.status.hit_rate == pytest.approx(0.41)
    assert seen[-1] == (7, True)
    engine.answerEvent.emit(AnswerDelta("x", STATS, ((99.0, 9),)))
    assert len(log.of(7).marks) == 5, "nobody knows whose that is"


def test_only_the_newest_answers_are_kept(engine, log):
    for message in range(KEPT + 3):
        log.begin(message)
    assert log.of(2) is None
    assert log.of(3) is not None
    assert log.newest.message_id == KEPT + 2


def test_a_log_belongs_to_its_host(engine):
    assert performance_log(engine) is performance_log(engine)


def test_the_share_of_the_bandwidth_counts_what_comes_from_ram():
    stats = replace(STATS, decode_tps=10.0)
    measured = Measured(1, state_of(), stats=stats)
    assert measured.decode_gbs == pytest.approx(20.0)
    assert measured.read_gbs == 50.0, "with as many threads as the plan has"
    assert measured.bandwidth_share == pytest.approx(0.4)
    assert Measured(1, state_of("hybrid"), stats=stats).bandwidth_share is None
    assert Measured(1, state_of(active_bytes=0.0), stats=stats).bandwidth_share is None
    assert Measured(1, state_of(hardware=make_report()), stats=stats).read_gbs is None


class TestChart:
    @pytest.fixture
    def chart(self, qtbot):
        made = StepChart()
        qtbot.addWidget(made)
        made.resize(300, 130)
        return made

    def test_it_says_what_it_shows(self, chart):
        chart.show_steps([(2, 20.0), (3, 25.0), (4, 400.0)], Range(40, 50, 60))
        assert chart.summary == "3 steps: median 25.0 ms per token, fastest 20.0 ms, slowest 400 ms."
        assert chart.accessibleDescription() == chart.summary
        chart.show_steps([], None)
        assert chart.summary == "No tokens measured yet."

    def test_one_slow_token_does_not_press_the_others_flat(self, chart):
        chart.show_steps([(n, 20.0) for n in range(2, 300)] + [(300, 5000.0)], None)
        assert chart._top() < 50

    def test_the_scale_ends_at_a_round_figure(self):
        assert [_round_up(value) for value in (0.011, 0.7, 1.0, 6.5, 23, 101)] == pytest.approx(
            [0.02, 0.8, 1.0, 8, 30, 200]
        )

    @pytest.mark.parametrize("count", [0, 1, 2, 40_000])
    def test_any_number_of_steps_is_painted(self, chart, count):
        chart.show_steps([(n + 2, 20.0 + n % 7) for n in range(count)], Range(40, 50, 60))
        image = chart.grab().toImage()
        colours = (QColor(image.pixel(x, y)) for x in range(image.width()) for y in range(image.height()))
        painted = sum(colour.green() - colour.red() > 40 for colour in colours)  # the accent is green, thin lines pale
        assert (painted > 5) == (count > 1)

    def test_the_pointer_finds_the_token(self, chart):
        chart.show_steps([(2, 20.0), (50, 30.0), (100, 40.0)], None)
        assert chart._step_at(LEFT) == (2, 20.0)
        assert chart._step_at(chart.width() - 8) == (100, 40.0)
        assert chart._step_at(3) is None


class TestPanel:
    @pytest.fixture
    def panel(self, qtbot, log):
        made = PerformancePanel(log)
        qtbot.addWidget(made)
        made.show()
        return made

    def test_before_any_answer(self, panel):
        assert panel.value("decode") == ""
        assert not panel.copy_card.isEnabled()

    def test_measured_stands_beside_predicted(self, panel, engine, log):
        stats = replace(STATS, prefill_s=0.5, drafted_tokens=60, accepted_tokens=31)
        answer(engine, log, stats=stats)
        assert panel.value("decode") == "12.4 tok/s"
        assert panel.value("decode_predicted") == "49 to 66"
        assert panel.value("prefill") == "80.0 tok/s"
        assert panel.value("prefill_predicted") == "400 to 640"
        assert panel.value("first") == "0.8 s"
        assert panel.value("bandwidth") == "24.8 of 50.0 GB/s"
        assert panel.value("drafts") == "31 of 60"
        assert panel.value("cache") == "41 %"
        assert panel._split.accessibleDescription() == "reading 0.5 s, writing 0.4 s"
        assert panel.copy_card.isEnabled()

    def test_what_is_not_known_is_left_out(self, panel, engine, log):
        engine.state = state_of("hybrid", hardware=make_report())
        answer(engine, log)
        assert panel.value("bandwidth") == "24.8 GB/s"
        assert panel.value("drafts") == ""
        assert not panel._bandwidth.isVisible()

    def test_an_older_answer_can_be_chosen(self, panel, engine, log):
        answer(engine, log, 1, replace(STATS, decode_tps=11.0))
        answer(engine, log, 2, replace(STATS, decode_tps=22.0))
        assert panel.value("decode") == "22.0 tok/s"
        panel.choose(1)
        assert panel.value("decode") == "11.0 tok/s"
        panel.choose(99)
        assert panel.value("decode") == "22.0 tok/s"

    def test_while_an_answer_grows_it_is_drawn_now_and_then(self, panel, engine, log, qtbot):
        log.begin(1)
        for token in range(1, 50):
            engine.answerEvent.emit(AnswerDelta("x", replace(STATS, decode_tps=float(token)), ((token * 0.1, token),)))
        assert panel.value("decode") == ""
        qtbot.waitUntil(lambda: panel.value("decode") == "49.0 tok/s")

    def test_the_card_is_copied_as_picture_and_text(self, panel, engine, log, qtbot):
        answer(engine, log)
        qtbot.mouseClick(panel.copy_card, Qt.MouseButton.LeftButton)
        data = QGuiApplication.clipboard().mimeData()
        assert data.hasImage()
        assert "12.4 tok/s" in data.text()
        assert panel.copy_card.text() == "Copied"
        qtbot.waitUntil(lambda: panel.copy_card.text() == "Copy benchmark card")
        qtbot.mouseClick(panel.copy_text, Qt.MouseButton.LeftButton)
        assert not QGuiApplication.clipboard().mimeData().hasImage()

    def test_the_card_is_saved(self, panel, engine, log, qtbot, tmp_path):
        answer(engine, log)
        qtbot.mouseClick(panel.save_card, Qt.MouseButton.LeftButton)
        dialog = panel.findChild(QFileDialog)
        dialog.fileSelected.emit(str(tmp_path / "card.png"))
        dialog.reject()
        assert QImage(str(tmp_path / "card.png")).width() == WIDTH * SCALE


class TestCard:
    def test_it_carries_the_machine(self, qapp):
        card = make_card(Measured(1, state_of(), stats=STATS))
        for part in (
            "Qwen3-30B-A3B-Q4_K_M · On the CPU",
            "Decode: 12.4 tok/s (245 tokens written) · predicted 49 to 66",
            "Prefill: 80.0 tok/s (67 tokens read, first token after 0.8 s) · predicted 400 to 640",
            "AMD Ryzen 7 9700X · 8 threads on 8 cores · AVX2 AVX-512 VNNI",
            "64.0 GB · 50.0 GB/s measured",
            "NVIDIA GeForce RTX 4070 · 12.0 GB · driver 570.1 · not used",
            "tokens of context · KV cache bf16 · 17.5 GB of RAM",
            "int4 avx512vnni, 8 threads",
            "24.8 GB/s of weights · 50 % of RAM speed",
            "Greenroom 0",
        ):
            assert part in card.text

    def test_it_says_nothing_of_its_owner(self, qapp):
        text = make_card(Measured(1, state_of(), stats=STATS)).text
        for private in ("/home", "someone", str(Path.home()), f"/{getpass.getuser()}"):
            assert private not in text

    def test_there_is_none_of_what_says_nothing(self, qapp):
        assert make_card(Measured(1, HostState(), stats=STATS)) is None
        assert make_card(Measured(1, state_of(), stats=GenerationStats(prompt_tokens=4))) is None

    @pytest.mark.parametrize("mode", ["light", "dark"])
    def test_its_picture_has_the_colours_of_the_theme(self, qapp, mode):
        theme().set_mode(mode)
        gpu = GpuReport("A graphics card with a name that is far longer than any line " * 3, "X", 1, 1, False, "1")
        state = state_of(hardware=replace(make_report(), gpus=[gpu] * 3))
        image = paint_card(make_card(Measured(1, state, stats=STATS)))
        assert image.width() == WIDTH * SCALE
        assert QColor(image.pixel(image.width() // 2, 20)) == theme().colour("bg")
        assert image.pixelColor(0, 0).alpha() == 0, "the corners are round"
        again = QImage.fromData(png(image))
        assert again.size() == image.size()


def test_a_file_that_cannot_be_written_is_told(qtbot, tmp_path):
    from PySide6.QtWidgets import QWidget

    parent = QWidget()
    qtbot.addWidget(parent)
    dialog = save_bytes(parent, "Save", "a.txt", b"x")
    dialog.fileSelected.emit(str(tmp_path / "missing" / "a.txt"))
    dialog.reject()
    box = parent.findChild(QMessageBox)
    assert "a.txt was not saved" in box.text()
    assert "folder" in box.informativeText()
    box.done(0)


def test_ticks_of_the_scale_fit_beside_it():
    assert [_tick(time) for time in (0.0, 0.5, 250.0, 1000.0, 1500.0)] == [
        "0",
        "0.5 ms",
        "250 ms",
        "1 s",
        "1.5 s",
    ]
