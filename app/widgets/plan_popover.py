"""A plan's label, opened: the arithmetic, the prediction, and what else would work."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication, QPainterPath, QRegion
from PySide6.QtWidgets import QFrame, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from app.language import told, tr
from app.theme import theme
from app.widgets.buttons import button
from app.widgets.chip import TONES, Chip
from app.widgets.labels import label
from app.words import expected, rate, sentence
from engine.placement.plan import OffloadPlan
from engine.units import size_up

WIDTH = 440
#: As the style sheet rounds a card.
RADIUS = 12


class PlanPopover(QWidget):
    """Closes at a click elsewhere or with Esc."""

    def __init__(
        self,
        model: str,
        plan: OffloadPlan,
        load_anyway: Callable[[], object] | None,
        parent: QWidget | None = None,
        measured: float = 0.0,
    ) -> None:
        """measured: tokens per second of the last answer, 0 when there was none."""
        super().__init__(parent, Qt.WindowType.Popup | Qt.WindowType.FramelessWindowHint)
        # Without a compositor see-through corners would be black; there the window is cut to shape instead.
        self._cut = QGuiApplication.platformName() == "xcb"
        self.setAttribute(Qt.WidgetAttribute.WA_TranslucentBackground, not self._cut)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setAccessibleName(tr("Plan for {model}", model=model))
        self.setAccessibleDescription("\n".join(map(told, plan.explanation)))
        self.setFixedWidth(theme().px(WIDTH))

        card = QFrame(self)
        card.setProperty("surface", "card")
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(card)
        # What is taller than the screen, with large letters, is scrolled.
        area = QScrollArea()
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setWidgetResizable(True)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        inside = QVBoxLayout(card)
        inside.setContentsMargins(0, 0, 0, 0)
        inside.addWidget(area)
        self._body = QWidget()
        area.setWidget(self._body)
        area.viewport().setAutoFillBackground(False)
        self._body.setAutoFillBackground(False)
        box = QVBoxLayout(self._body)
        box.setContentsMargins(18, 16, 18, 16)
        box.setSpacing(8)

        head = QHBoxLayout()
        head.addWidget(Chip(told(plan.label), TONES[plan.mode]))
        head.addStretch(1)
        box.addLayout(head)
        box.addWidget(label(model, "heading", wrap=True))
        for line in plan.explanation:
            box.addWidget(label(told(line), wrap=True))

        box.addSpacing(4)
        if plan.bytes.vram_total:
            box.addLayout(_row("VRAM", size_up(plan.bytes.vram_total), "strong"))
        box.addLayout(_row("RAM", size_up(plan.bytes.ram_total), "strong"))
        box.addLayout(_row(tr("Predicted answer speed"), expected(plan.prediction.decode_tps), "strong"))
        if measured > 0:
            box.addLayout(_row(tr("Measured answer speed"), tr("{measured} tok/s", measured=rate(measured)), "strong"))
        box.addLayout(_row(tr("Predicted reading speed"), expected(plan.prediction.prefill_tps), "small"))
        bottleneck = f"{sentence(told(plan.prediction.bottleneck)).rstrip('.')}."
        # A word joiner: a unit is not broken at its slash.
        box.addWidget(label(bottleneck.replace("/", "/\u2060"), "small", wrap=True))
        if plan.runnable and (lines := plan.time_sum()):
            box.addWidget(label(tr("Time per token, by part"), "strong"))
            for line in lines:
                box.addWidget(label(told(line).replace("/", "/\u2060"), "small", wrap=True))

        if plan.alternatives:
            box.addSpacing(4)
            box.addWidget(label(tr("Alternatives"), "strong"))
            for line in plan.alternatives:
                box.addWidget(label(told(line), "small", wrap=True))
        if load_anyway is not None:
            anyway = button(tr("Load anyway"))
            anyway.clicked.connect(lambda: (self.close(), load_anyway()))
            row = QHBoxLayout()
            row.addStretch(1)
            row.addWidget(anyway)
            box.addLayout(row)

    def open_below(self, anchor: QWidget) -> None:
        """Under the widget, kept on its screen."""
        screen = anchor.screen().availableGeometry()
        layout, border = self._body.layout(), 2
        width = self.width()
        height = layout.heightForWidth(width - border) if layout.hasHeightForWidth() else layout.sizeHint().height()
        self.resize(width, min(height + border, screen.height() - 16))
        at = anchor.mapToGlobal(QPoint(0, anchor.height() + 6))
        at.setX(max(screen.left() + 8, min(at.x(), screen.right() - self.width() - 8)))
        at.setY(max(screen.top() + 8, min(at.y(), screen.bottom() - self.height() - 8)))
        self.move(at)
        if self._cut:
            shape = QPainterPath()
            shape.addRoundedRect(self.rect(), RADIUS, RADIUS)
            self.setMask(QRegion(shape.toFillPolygon().toPolygon()))
        self.show()


def _row(left: str, right: str, role: str) -> QHBoxLayout:
    row = QHBoxLayout()
    row.setContentsMargins(0, 0, 0, 0)
    row.addWidget(label(left, role))
    row.addStretch(1)
    row.addWidget(label(right, role))
    return row
