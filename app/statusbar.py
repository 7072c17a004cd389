"""The bottom line: how fast, how busy, how much memory, and which kernel computes."""

from __future__ import annotations

import time
from collections import deque

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.host import AnswerDelta, AnswerResult, EngineHost, HostState
from app.widgets.labels import ElideLabel, label
from app.widgets.sparkline import Sparkline
from app.words import gigabytes, needed, rate

HEIGHT = 30
#: Milliseconds between two looks at the CPU, and between two points of the line.
CPU_INTERVAL_MS = 1000
POINT_INTERVAL_MS = 125
#: Seconds over which the line's points are averaged.
WINDOW_S = 1.0


class Figure(QWidget):
    """A word, a figure, a unit: "RAM 17.9 GB". Word and unit may be empty."""

    def __init__(self, before: str, after: str, widest: str, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self.value = label("", "figure")
        # So that the line does not shiver while figures change.
        self.value.setMinimumWidth(self.value.fontMetrics().horizontalAdvance(widest))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(4)
        if before:
            row.addWidget(label(before, "small"))
        row.addWidget(self.value)
        self._unit = label(after, "small")
        self._unit.setVisible(bool(after))
        row.addWidget(self._unit)

    def show_value(self, text: str) -> None:
        """The figure, with its unit after a space unless the unit is fixed."""
        figure, _, unit = text.partition(" ")
        self.value.setText(figure)
        if unit:
            self._unit.setText(unit)
            self._unit.show()
        self.setAccessibleName(f"{self._name}: {figure} {self._unit.text()}".strip())


class StatusBar(QWidget):
    def __init__(self, host: EngineHost | None = None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedHeight(HEIGHT)
        self.setProperty("surface", "statusbar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._clock = time.monotonic
        self._tokens: deque[tuple[float, int]] = deque()
        self._process = None

        self.speed = Figure("", "tok/s", "", "Answer speed")
        self.spark = Sparkline()
        self.cpu = Figure("CPU", "", "100%", "CPU use")
        self.ram = Figure("RAM", "", "", "RAM of the model")
        self.vram = Figure("VRAM", "", "", "VRAM of the model")
        self.note = ElideLabel("No model loaded", "small")
        self.kernel = ElideLabel("", "mono", Qt.TextElideMode.ElideLeft)
        self.kernel.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.kernel.setAccessibleName("Kernel")
        row = QHBoxLayout(self)
        row.setContentsMargins(16, 1, 16, 0)
        row.setSpacing(18)
        for part in (self.speed, self.spark, self.cpu, self.ram, self.vram):
            row.addWidget(part)
        row.addWidget(self.note, 1)
        row.addWidget(self.kernel, 2)
        for part in (self.speed, self.spark, self.cpu, self.ram, self.vram):
            part.hide()

        self._cpu_timer = QTimer(self)
        self._cpu_timer.setInterval(CPU_INTERVAL_MS)
        self._cpu_timer.timeout.connect(self._look_at_cpu)
        self._point_timer = QTimer(self)
        self._point_timer.setInterval(POINT_INTERVAL_MS)
        self._point_timer.timeout.connect(self._add_point)

    def start(self) -> None:
        """Begins to watch the CPU; called after the first paint, because psutil takes a moment to import."""
        import psutil

        self._process = psutil.Process()
        psutil.cpu_percent(None)  # the first call only sets the starting point
        self._cpu_timer.start()

    def show_state(self, state: HostState) -> None:
        plan = state.plan if state.kind in ("ready", "generating") else None
        self.ram.setVisible(plan is not None and plan.bytes.ram_total > 0)
        self.vram.setVisible(plan is not None and plan.bytes.vram_total > 0)
        if plan is not None:
            self.ram.show_value(needed(plan.bytes.ram_total))
            self.vram.show_value(needed(plan.bytes.vram_total))
        else:
            self.speed.hide()
            self.spark.hide()
            self.spark.clear()
        self.kernel.setText(state.kernel if plan is not None else "")
        words = {"empty": "No model loaded", "planning": "Preparing…", "loading": "Loading…", "failed": "Not loaded"}
        self.note.setText(words.get(state.kind, ""))
        if state.kind == "generating":
            self._tokens.clear()
            self._point_timer.start()
        else:
            self._point_timer.stop()

    def show_delta(self, delta: AnswerDelta) -> None:
        self._tokens.append((self._clock(), delta.stats.completion_tokens))
        self._show_speed(delta.stats.decode_tps)

    def show_result(self, result: AnswerResult) -> None:
        self._show_speed(result.stats.decode_tps)

    def _show_speed(self, decode_tps: float) -> None:
        if decode_tps > 0:
            self.speed.show_value(rate(decode_tps))
            self.speed.show()
            self.spark.show()

    def _add_point(self) -> None:
        """The speed over the last second. The figure beside it is the whole answer's."""
        now = self._clock()
        while len(self._tokens) > 2 and now - self._tokens[1][0] > WINDOW_S:
            self._tokens.popleft()
        if len(self._tokens) >= 2:
            (start, before), (end, after) = self._tokens[0], self._tokens[-1]
            if end > start:
                self.spark.push((after - before) / (end - start))

    def _look_at_cpu(self) -> None:
        import psutil

        self.cpu.show_value(f"{psutil.cpu_percent(None):.0f}%")
        self.cpu.setVisible(True)
        used = gigabytes(self._process.memory_info().rss)
        self.ram.setToolTip(f"What the plan gives the model. Greenroom as a whole uses {used} now.")
