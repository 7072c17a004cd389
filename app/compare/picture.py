"""The comparison as a picture: a bar from the low to the high figure for each machine, on one scale."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QImage, QPainter, QPainterPath, QResizeEvent
from PySide6.QtWidgets import QWidget

from app.compare.study import RUNNABLE, amounts, cost, in_words, place, speed
from app.language import tr
from app.theme import theme
from app.widgets.chip import TONES
from app.widgets.picture import MARGIN, blank, draw_rule, draw_text, sheet, text_font, wrapped
from engine.placement.compare import Comparison

#: Logical pixels. LEAST: how wide rows are at least, or what is in them is cut.
LEAST = 560
WIDTH, ROW, HEAD, FOOT, BAR = 860, 92, 74, 40, 12
#: The bar's part of a row, between the machine at the left and its amounts at the right.
LEFT, RIGHT = 0.33, 0.21


class ComparisonView(QWidget):
    """The rows without a frame, as wide as there is room; where that is little, smaller than the zoom asks for."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows: list[Comparison] = []
        self.setAccessibleName(tr("Comparison"))
        theme().changed.connect(self._fit)

    def show_rows(self, rows: Sequence[Comparison]) -> None:
        self.rows = list(rows)
        self.setAccessibleDescription(in_words(rows))
        self._fit()

    def _fit(self) -> None:
        self.setMinimumHeight(self.sizeHint().height())
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(LEAST, round(self._zoom * ROW * len(self.rows)))

    @property
    def _zoom(self) -> float:
        return min(theme().zoom, self.width() / LEAST)

    def resizeEvent(self, event: QResizeEvent) -> None:
        if event.size().width() != event.oldSize().width():
            self._fit()

    def paintEvent(self, event: object) -> None:
        painter = QPainter(self)
        painter.setRenderHints(QPainter.RenderHint.Antialiasing | QPainter.RenderHint.TextAntialiasing)
        zoom = self._zoom
        painter.scale(zoom, zoom)
        paint_rows(painter, self.rows, QRectF(0, 0, self.width() / zoom, self.height() / zoom))
        painter.end()


def paint_comparison(rows: Sequence[Comparison], title: str, note: str) -> QImage:
    """A picture that stands on its own on any background. title: the model; note: how costs are counted."""
    height, room = HEAD + ROW * len(rows) + FOOT + MARGIN, WIDTH - 2 * MARGIN
    image, colours = blank(WIDTH, height), theme()
    ink, muted = colours.colour("text"), colours.colour("muted")
    with sheet(image) as painter:
        draw_text(painter, MARGIN, MARGIN + 16, title, text_font(19, bold=True), ink, room)
        draw_text(painter, MARGIN, MARGIN + 37, tr("Predicted by Greenroom"), text_font(13), muted, room)
        paint_rows(painter, rows, QRectF(MARGIN, HEAD + 8, room, ROW * len(rows)))
        draw_text(painter, MARGIN, height - 24, note, text_font(12), muted, room)
    return image


def paint_rows(painter: QPainter, rows: Sequence[Comparison], area: QRectF) -> None:
    """The rows from the top of the area (logical pixels), each ROW high, on one scale of tokens per second."""
    most = max((row.decode_tps.high for row in rows if row.mode in RUNNABLE), default=1.0)
    for number, row in enumerate(rows):
        top = area.top() + number * ROW
        if number:
            draw_rule(painter, area.left(), area.right(), top)
        _row(painter, row, QRectF(area.left(), top, area.width(), ROW), most)


def _row(painter: QPainter, row: Comparison, area: QRectF, most: float) -> None:
    colours, runs = theme(), row.mode in RUNNABLE
    ink, muted, tone = colours.colour("text"), colours.colour("muted"), colours.colour(TONES[row.mode])
    left, right = LEFT * area.width(), RIGHT * area.width()
    x, middle = area.left(), area.center().y()
    bold = text_font(14, bold=True)
    names = wrapped(row.name, " ", bold, left - 16, 2)
    for number, line in enumerate(names):
        draw_text(painter, x, middle - 18 + 18 * number, line, bold, ink, left - 16)
    below = middle + (20 if len(names) > 1 else 2)
    for number, line in enumerate(wrapped(place(row), " ", text_font(12), left - 16, 2)):
        draw_text(painter, x, below + 15 * number, line, text_font(12), tone, left - 16)

    start, width = x + left, area.width() - left - right - 24
    draw_text(painter, start, middle - 14, speed(row), text_font(14, bold=runs), ink, width)
    track = QRectF(start, middle - 3, width, BAR)
    _bar(painter, track, colours.colour("hover"))
    if runs:
        low, likely, high = (
            track.left() + width * value / most
            for value in (row.decode_tps.low, row.decode_tps.likely, row.decode_tps.high)
        )
        _bar(painter, QRectF(low, track.top(), max(BAR, high - low), BAR), tone)
        painter.setBrush(colours.colour("panel"))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.drawEllipse(QPointF(likely, track.center().y()), BAR / 2 - 3, BAR / 2 - 3)
    if runs and row.cost_per_million is not None:
        said = tr("{cost} / million tokens", cost=cost(row))
        draw_text(painter, start, middle + 28, said, text_font(12), muted, width)

    for number, line in enumerate(amounts(row)):
        draw_text(painter, area.right() - right, middle - 14 + 20 * number, line, text_font(13), muted, right)


def _bar(painter: QPainter, box: QRectF, colour: QColor) -> None:
    path = QPainterPath()
    path.addRoundedRect(box, box.height() / 2, box.height() / 2)
    painter.fillPath(path, colour)
