"""The bottom line: how fast, how busy, how much memory, and which kernel computes."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, QTimer, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLayout, QWidget

from app import tasks
from app.host import AnswerDelta, AnswerResult, EngineHost, HostState
from app.language import mark, told, tr
from app.theme import theme
from app.widgets.labels import ElideLabel, label, set_plain_tip
from app.widgets.sparkline import Sparkline
from app.words import rate
from engine.errors import GreenroomError
from engine.hardware.gpu_load import GpuLoad
from engine.units import size_text, size_up

if TYPE_CHECKING:
    from engine.hardware.report import GpuReport
    from engine.status import EngineStatus

HEIGHT = 30
GAP = 18
#: Milliseconds between two looks at the machine, and between two points of the line.
LOOK_INTERVAL_MS = 1000
POINT_INTERVAL_MS = 125
#: Seconds over which the line's points are averaged.
WINDOW_S = 1.0
NOTES = {
    "empty": mark("No model loaded"),
    "planning": mark("Preparing…"),
    "loading": mark("Loading…"),
    "failed": mark("Not loaded"),
}


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


@dataclass
class _Part:
    """importance: parts of higher numbers are the first to go where the line is short."""

    widget: QWidget
    importance: int
    wanted: bool = False


class StatusBar(QWidget):
    def __init__(self, host: EngineHost | None = None, parent: QWidget | None = None) -> None:
        """host: tells what the engine does, while a model is loaded."""
        super().__init__(parent)
        self._host = host
        self.setProperty("surface", "statusbar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._clock = time.monotonic
        self._tokens: deque[tuple[float, int]] = deque()
        #: Of the model's last answer, tok/s; 0 before the first.
        self._measured = 0.0
        self._process = None
        self._state = HostState()
        self._gpu_load: GpuLoad | None = None
        #: Hits and misses of the VRAM cache when the answer began.
        self._cache_before = (0, 0)

        self.speed = Figure("", tr("tok/s"), "", tr("Answer speed"))
        self.spark = Sparkline()
        self.cpu = Figure(tr("CPU"), "", "100%", tr("CPU use"))
        self.gpu = Figure(tr("GPU"), "", "100%", tr("GPU use"))
        self.ram = Figure(tr("RAM"), "", "", tr("RAM used by the model"))
        self.vram = Figure(tr("VRAM"), "", "", tr("VRAM used by the model"))
        self.cache = Figure(tr("Cache"), "", "", tr("Experts found in VRAM"))
        self.note = ElideLabel("", "small")
        self.kernel = ElideLabel("", "mono", Qt.TextElideMode.ElideLeft)
        self.kernel.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.kernel.setAccessibleName(tr("Kernel"))
        self._parts = [
            _Part(self.speed, 0),
            _Part(self.spark, 6),
            _Part(self.cpu, 4),
            _Part(self.gpu, 5),
            _Part(self.ram, 1),
            _Part(self.vram, 2),
            _Part(self.cache, 3),
        ]
        row = QHBoxLayout(self)
        row.setContentsMargins(16, 1, 16, 0)
        row.setSpacing(GAP)
        row.setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)
        for part in self._parts:
            row.addWidget(part.widget)
            part.widget.hide()
        row.addWidget(self.note, 1)
        row.addWidget(self.kernel, 2)

        self._look_timer = QTimer(self)
        self._look_timer.setInterval(LOOK_INTERVAL_MS)
        self._look_timer.timeout.connect(self._look)
        self._point_timer = QTimer(self)
        self._point_timer.setInterval(POINT_INTERVAL_MS)
        self._point_timer.timeout.connect(self._add_point)
        theme().changed.connect(self._fit_height)
        self._fit_height()
        self.show_state(self._state)

    def start(self) -> None:
        """Begins to watch the machine; called after the first paint, because psutil takes a moment to import."""
        import psutil

        self._process = psutil.Process()
        psutil.cpu_percent(None)  # the first call only sets the starting point
        self._look_timer.start()

    def resume(self, before: StatusBar) -> None:
        """What another bar has measured is shown here, too."""
        self._tokens, self._cache_before = before._tokens, before._cache_before
        for value in before.spark.values:
            self.spark.push(value)
        if before.cpu.value.text():
            self.cpu.show_value(before.cpu.value.text())
            self._want(self.cpu, True)
        self._show_speed(before._measured)
        self._show_status()
        self._share_room()

    def show_state(self, state: HostState) -> None:
        before, self._state = self._state, state
        plan = state.plan if state.kind in ("ready", "generating") else None
        self.note.setText(tr(NOTES[state.kind]) if state.kind in NOTES else "")
        self.note.setVisible(bool(self.note.text()))
        if plan is None:
            for part in self._parts:
                part.wanted = part.widget is self.cpu and part.wanted
            self.spark.clear()
            self._measured = 0.0
            self.kernel.setText("")
            set_plain_tip(self.kernel, "")
        else:
            self._show_memory(plan.bytes.ram_total, plan.bytes.vram_total)
        if state.kind == "generating":
            if before.kind != "generating":
                self._begin_answer()
        else:
            self._point_timer.stop()
        self._show_status()
        self._share_room()

    def _begin_answer(self) -> None:
        status = self._status
        self._cache_before = (0, 0) if status is None else (status.hits, status.misses)
        self._tokens.clear()
        self._point_timer.start()

    def show_delta(self, delta: AnswerDelta) -> None:
        self._tokens.append((self._clock(), delta.stats.completion_tokens))
        self._show_speed(delta.stats.decode_tps)

    def show_result(self, result: AnswerResult) -> None:
        self._show_speed(result.stats.decode_tps)
        self._show_status()

    def _show_speed(self, decode_tps: float) -> None:
        if decode_tps > 0:
            self._measured = decode_tps
            self.speed.show_value(rate(decode_tps))
            self._want(self.speed, True)
            self._want(self.spark, True)
            self._share_room()

    @Slot()
    def _add_point(self) -> None:
        """The speed over the last second. The figure beside it is the whole answer's."""
        now = self._clock()
        while len(self._tokens) > 2 and now - self._tokens[1][0] > WINDOW_S:
            self._tokens.popleft()
        if len(self._tokens) >= 2:
            (start, before), (end, after) = self._tokens[0], self._tokens[-1]
            if end > start:
                self.spark.push((after - before) / (end - start))

    # The engine

    @property
    def _status(self) -> EngineStatus | None:
        loaded = self._state.kind in ("ready", "generating")
        return self._host.status() if self._host is not None and loaded else None

    def _show_status(self) -> None:
        """What the engine says about itself; until it does, what was planned."""
        status = self._status
        if self._state.kind not in ("ready", "generating"):
            return
        kernel = [told(self._state.kernel)]
        if status is not None:
            if status.ram_bytes or status.vram_bytes:
                self._show_memory(status.ram_bytes, status.vram_bytes)
            if status.graphs:
                kernel.append(tr("graphs on"))
            hits, misses = status.hits - self._cache_before[0], status.misses - self._cache_before[1]
            if hits + misses > 0:
                self.cache.show_value(f"{100 * hits / (hits + misses):.0f}%")
            self._want(self.cache, hits + misses > 0)
            self.kernel.detail = "\n".join(told(note) for note in status.notes)
        self.kernel.setText(" · ".join(filter(None, kernel)))
        # The threads go before any of the kernel's name.
        self.kernel.shorter = (kernel[0], kernel[0].partition(",")[0])
        self.kernel.update()

    def _show_memory(self, ram: int, vram: int) -> None:
        self.ram.show_value(size_up(ram))
        self._want(self.ram, ram > 0)
        total = max((gpu.total_bytes for gpu in self._gpus), default=0)
        if vram and total:
            # The figure is strong, all after it is its unit: "9.6" "of 12 GB".
            figure, unit = size_up(vram).split(" ")
            whole = size_text(total).removesuffix(f" {unit}")
            self.vram.show_value(f"{figure} " + tr("of {total} {unit}", total=whole.removesuffix(".0"), unit=unit))
        else:
            self.vram.show_value(size_up(vram))
        self._want(self.vram, vram > 0)

    @property
    def _gpus(self) -> list[GpuReport]:
        hardware = self._state.hardware
        return [gpu for gpu in hardware.gpus if not gpu.integrated] if hardware is not None else []

    # The machine

    @Slot()
    def _look(self) -> None:
        import psutil

        self.cpu.show_value(f"{psutil.cpu_percent(None):.0f}%")
        self._want(self.cpu, True)
        if self._process is not None:
            used = size_text(self._process.memory_info().rss)
            self.ram.setToolTip(tr("RAM used by the model. Greenroom uses {used} in total.", used=used))
        self._show_status()
        self._look_at_gpu()
        self._share_room()

    def _look_at_gpu(self) -> None:
        plan = self._state.plan
        busy = plan is not None and plan.device.startswith("cuda") and self._state.kind in ("ready", "generating")
        if not busy or not self._gpus:
            self._want(self.gpu, False)
            return
        if self._gpu_load is None:
            self._gpu_load = GpuLoad(self._gpus[0].vendor.lower())
        tasks.run(self._gpu_load.read, done=self._show_gpu, failed=self._no_gpu)

    def _show_gpu(self, share: float | None) -> None:
        if share is not None:
            self.gpu.show_value(f"{100 * share:.0f}%")
        self._want(self.gpu, share is not None)
        self._share_room()

    def _no_gpu(self, error: GreenroomError) -> None:
        self._want(self.gpu, False)

    # Room

    def _want(self, widget: QWidget, on: bool) -> None:
        next(part for part in self._parts if part.widget is widget).wanted = on

    def _share_room(self) -> None:
        """The least important parts go first where the line is short, the line of speeds before any of the kernel's
        name, which keeps a little in any case."""
        margins = self.layout().contentsMargins()
        room = self.width() - margins.left() - margins.right()
        least = self.kernel.minimumSizeHint().width()
        whole = self.kernel.sizeHint().width() if self.kernel.text() else least
        room -= least + GAP if self.kernel.text() else 0
        room -= self.note.minimumSizeHint().width() + GAP if self.note.text() else 0
        shown = set()
        for part in sorted(self._parts, key=lambda part: part.importance):
            if part.wanted:
                room -= max(part.widget.sizeHint().width(), part.widget.minimumWidth()) + GAP
                if room < (whole - least if part.widget is self.spark else 0):
                    break
                shown.add(part.importance)
        for part in self._parts:
            part.widget.setVisible(part.importance in shown)

    @Slot()
    def _fit_height(self) -> None:
        self.setFixedHeight(theme().px(HEIGHT))

    def minimumSizeHint(self) -> QSize:
        """Any width will do: parts go where there is no room."""
        return QSize(0, self.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._share_room()
