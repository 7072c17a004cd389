"""The comparison as a picture: a bar from the low to the high figure for each machine, on one scale."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QGuiApplication, QImage, QPainter, QPainterPath, QPen
from PySide6.QtWidgets import QWidget

from app.compare.study import RUNNABLE, amounts, cost, in_words, place, speed
from app.language import tr
from app.theme import theme
from app.widgets.chip import TONES
from engine.placement.compare import Comparison

#: Logical pixels; a saved picture has SCALE times as many on each side.
WIDTH, MARGIN, SCALE = 860, 32, 2
ROW, HEAD, FOOT, BAR = 92, 74, 40, 12
#: The bar's part of a row, between the machine at the left and its amounts at the right.
LEFT, RIGHT = 0.33, 0.21
_INKS = {"accent": "accent", "vram": "vram", "warn": "warn", "bad": "bad"}


class ComparisonView(QWidget):
    """The rows without a frame, as wide as there is room."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows: list[Comparison] = []
        self.setAccessibleName(tr("Comparison"))
        theme().changed.connect(self.update)

    def show_rows(self, rows: Sequence[Comparison]) -> None:
        self.rows = list(rows)
        self.setAccessibleDescription(in_words(rows))
        self.setMinimumHeight(self.sizeHint().height())
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(560, ROW * len(self.rows))

    def paintEvent(self, event: object) -> None:
        painter = QPainter(self)
        painter.setRenderHints(QPainter.RenderHint.Antialiasing | QPainter.RenderHint.TextAntialiasing)
        paint_rows(painter, self.rows, QRectF(self.rect()))
        painter.end()


def paint_comparison(rows: Sequence[Comparison], title: str, note: str) -> QImage:
    """A picture that stands on its own on any background. title: the model; note: how costs are counted."""
    height = HEAD + ROW * len(rows) + FOOT + MARGIN
    image = QImage(WIDTH * SCALE, height * SCALE, QImage.Format.Format_ARGB32_Premultiplied)
    image.setDevicePixelRatio(SCALE)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    painter.setRenderHints(QPainter.RenderHint.Antialiasing | QPainter.RenderHint.TextAntialiasing)
    colours = theme()
    outline = QPainterPath()
    outline.addRoundedRect(QRectF(0.5, 0.5, WIDTH - 1, height - 1), 16, 16)
    painter.fillPath(outline, colours.colour("bg"))
    painter.setPen(QPen(colours.colour("line"), 1))
    painter.drawPath(outline)
    room = WIDTH - 2 * MARGIN
    _text(painter, MARGIN, MARGIN + 16, title, _font(19, bold=True), colours.colour("text"), room)
    _text(painter, MARGIN, MARGIN + 37, tr("Predicted by Greenroom"), _font(13), colours.colour("muted"), room)
    paint_rows(painter, rows, QRectF(MARGIN, HEAD + 8, room, ROW * len(rows)))
    _text(painter, MARGIN, height - 24, note, _font(12), colours.colour("muted"), room)
    painter.end()
    return image


def paint_rows(painter: QPainter, rows: Sequence[Comparison], area: QRectF) -> None:
    most = max((row.decode_tps.high for row in rows if row.mode in RUNNABLE), default=1.0)
    for number, row in enumerate(rows):
        top = area.top() + number * ROW
        if number:
            painter.setPen(QPen(theme().colour("line"), 1))
            painter.drawLine(QPointF(area.left(), top), QPointF(area.right(), top))
        _row(painter, row, QRectF(area.left(), top, area.width(), ROW), most)


def _row(painter: QPainter, row: Comparison, area: QRectF, most: float) -> None:
    colours = theme()
    ink, muted = colours.colour("text"), colours.colour("muted")
    tone = _INKS[TONES[row.mode]]
    left, right = LEFT * area.width(), RIGHT * area.width()
    x, middle = area.left(), area.center().y()
    for number, line in enumerate(_wrapped(row.name, _font(14, bold=True), left - 16, 2)):
        _text(painter, x, middle - 18 + 18 * number, line, _font(14, bold=True), ink, left - 16)
    lines = _wrapped(place(row), _font(12), left - 16, 2)
    below = middle + (20 if len(_wrapped(row.name, _font(14, bold=True), left - 16, 2)) > 1 else 2)
    for number, line in enumerate(lines):
        _text(painter, x, below + 15 * number, line, _font(12), colours.colour(tone), left - 16)

    start, width = x + left, area.width() - left - right - 24
    _text(painter, start, middle - 14, speed(row), _font(14, bold=row.mode in RUNNABLE), ink, width)
    track = QRectF(start, middle - 3, width, BAR)
    _bar(painter, track, colours.colour("hover"))
    if row.mode in RUNNABLE:
        low, likely, high = (
            track.left() + width * value / most
            for value in (row.decode_tps.low, row.decode_tps.likely, row.decode_tps.high)
        )
        _bar(painter, QRectF(low, track.top(), max(BAR, high - low), BAR), colours.colour(tone))
        painter.setBrush(colours.colour("panel"))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.drawEllipse(QPointF(likely, track.center().y()), BAR / 2 - 3, BAR / 2 - 3)
    if row.mode in RUNNABLE and row.cost_per_million is not None:
        said = tr("{cost} / million tokens", cost=cost(row))
        _text(painter, start, middle + 28, said, _font(12), muted, width)

    for number, line in enumerate(amounts(row)):
        _text(painter, area.right() - right, middle - 14 + 20 * number, line, _font(13), muted, right)


def _bar(painter: QPainter, box: QRectF, colour: QColor) -> None:
    path = QPainterPath()
    path.addRoundedRect(box, box.height() / 2, box.height() / 2)
    painter.fillPath(path, colour)


def _text(painter: QPainter, x: float, baseline: float, text: str, font: QFont, colour: QColor, width: float) -> None:
    painter.setFont(font)
    painter.setPen(colour)
    shown = QFontMetricsF(font).elidedText(text, Qt.TextElideMode.ElideRight, width)
    painter.drawText(QPointF(x, baseline), shown)


def _wrapped(text: str, font: QFont, width: float, most: int) -> list[str]:
    """At most so many lines; the last one is shortened where it does not fit."""
    metrics, lines = QFontMetricsF(font), [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and len(lines) < most and metrics.horizontalAdvance(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _font(pixels: int, bold: bool = False) -> QFont:
    font = QFont(QGuiApplication.font())
    font.setPixelSize(theme().px(pixels))
    if bold:
        font.setWeight(QFont.Weight.DemiBold)
    return font
