"""A plan's label, opened: the arithmetic, the prediction, and what else would work."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication, QPainterPath, QRegion
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.widgets.buttons import button
from app.widgets.chip import TONES, Chip
from app.widgets.labels import label
from app.words import gigabytes, rate_range
from engine.placement.plan import OffloadPlan

WIDTH = 440
#: As the style sheet rounds a card.
RADIUS = 12

_ROLES = {
    "experts": "Experts",
    "shared_experts": "Shared experts",
    "attention": "Attention",
    "router_and_norms": "Router and norms",
    "embeddings": "Embeddings",
    "lm_head": "Output head",
    "kv_cache": "KV cache",
    "buffers": "Buffers",
    "reserve": "Kept back for the system",
}


class PlanPopover(QWidget):
    """Closes at a click elsewhere or with Esc."""

    def __init__(
        self, model: str, plan: OffloadPlan, load_anyway: Callable[[], object] | None, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent, Qt.WindowType.Popup | Qt.WindowType.FramelessWindowHint)
        self.setAttribute(Qt.WidgetAttribute.WA_TranslucentBackground)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setAccessibleName(f"Plan for {model}")
        self.setAccessibleDescription(plan.explain())
        self.setFixedWidth(WIDTH)

        card = QFrame(self)
        card.setProperty("surface", "card")
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(card)
        box = QVBoxLayout(card)
        box.setContentsMargins(18, 16, 18, 16)
        box.setSpacing(8)

        head = QHBoxLayout()
        head.addWidget(Chip(plan.label, TONES[plan.mode]))
        head.addStretch(1)
        box.addLayout(head)
        box.addWidget(label(model, "heading", wrap=True))
        for sentence in plan.explanation:
            box.addWidget(label(sentence, wrap=True))

        box.addSpacing(4)
        for place, roles, total in (
            ("VRAM", plan.bytes.vram, plan.bytes.vram_total),
            ("RAM", plan.bytes.ram, plan.bytes.ram_total),
        ):
            if total:
                box.addLayout(_row(place, gigabytes(total), strong=True))
                for role, count in sorted(roles.items(), key=lambda item: -item[1]):
                    if count >= 500_000:
                        box.addLayout(_row(_ROLES.get(role, role.replace("_", " ").capitalize()), gigabytes(count)))

        box.addSpacing(4)
        box.addLayout(_row("Predicted answer speed", f"{rate_range(plan.prediction.decode_tps)} tok/s", strong=True))
        box.addLayout(_row("Predicted reading speed", f"{rate_range(plan.prediction.prefill_tps)} tok/s"))
        box.addWidget(label(plan.prediction.bottleneck, "small", wrap=True))

        if plan.alternatives:
            box.addSpacing(4)
            box.addWidget(label("What else would work", "strong"))
            for sentence in plan.alternatives:
                box.addWidget(label(sentence, "small", wrap=True))
        if load_anyway is not None:
            anyway = button("Load anyway")
            anyway.clicked.connect(lambda: (self.close(), load_anyway()))
            row = QHBoxLayout()
            row.addStretch(1)
            row.addWidget(anyway)
            box.addLayout(row)

    def open_below(self, anchor: QWidget) -> None:
        """Under the widget, kept on its screen."""
        layout = self.layout()
        self.resize(WIDTH, layout.heightForWidth(WIDTH) if layout.hasHeightForWidth() else layout.sizeHint().height())
        at = anchor.mapToGlobal(QPoint(0, anchor.height() + 6))
        screen = anchor.screen().availableGeometry()
        at.setX(max(screen.left() + 8, min(at.x(), screen.right() - self.width() - 8)))
        at.setY(max(screen.top() + 8, min(at.y(), screen.bottom() - self.height() - 8)))
        self.move(at)
        if QGuiApplication.platformName() == "xcb":
            # Without a compositor the see-through corners would be black.
            shape = QPainterPath()
            shape.addRoundedRect(self.rect(), RADIUS, RADIUS)
            self.setMask(QRegion(shape.toFillPolygon().toPolygon()))
        self.show()


def _row(left: str, right: str, strong: bool = False) -> QHBoxLayout:
    role = "strong" if strong else "small"
    row = QHBoxLayout()
    row.setContentsMargins(0, 0, 0, 0)
    row.addWidget(label(left, role))
    row.addStretch(1)
    row.addWidget(label(right, role))
    return row
