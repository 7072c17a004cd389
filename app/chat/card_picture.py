"""The benchmark card as a picture, painted in the colours of the theme."""

from __future__ import annotations

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QGuiApplication, QImage, QPainter, QPainterPath, QPen

from app.chat.card import Card, Figure
from app.language import tr
from app.theme import theme
from app.theme.icons import make_pixmap

#: Logical pixels; the picture has SCALE times as many on each side.
WIDTH, MARGIN, SCALE = 720, 32, 2
ROW, LABEL_WIDTH, FIGURES_HEIGHT = 26, 96, 124


def paint_card(card: Card) -> QImage:
    """A picture of the card that stands on its own on any background."""
    rows = [(what, _lines(value, WIDTH - 2 * MARGIN - LABEL_WIDTH, _font(13))) for what, value in card.rows]
    height = MARGIN + 66 + FIGURES_HEIGHT + 24 + sum(ROW + 18 * (len(lines) - 1) for _, lines in rows) + 46
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
    y = _head(painter, card)
    y = _figures(painter, card.figures, y)
    for what, lines in rows:
        _text(painter, MARGIN, y, what, _font(13), colours.colour("muted"))
        for number, line in enumerate(lines):
            _text(painter, MARGIN + LABEL_WIDTH, y + 18 * number, line, _font(13), colours.colour("text"))
        y += ROW + 18 * (len(lines) - 1)
    painter.setPen(QPen(colours.colour("line"), 1))
    painter.drawLine(QPointF(MARGIN, height - 44.5), QPointF(WIDTH - MARGIN, height - 44.5))
    _text(painter, MARGIN, height - 20, card.foot, _font(12), colours.colour("muted"))
    painter.end()
    return image


def png(image: QImage) -> bytes:
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")
    return bytes(data.data())


def _head(painter: QPainter, card: Card) -> float:
    """The logo, the model and the plan. Returns where the next part begins."""
    colours = theme()
    painter.drawPixmap(QPointF(MARGIN, MARGIN), make_pixmap("logo", colours.tokens.accent, 40, SCALE))
    left = MARGIN + 54
    title = QFontMetricsF(_font(19, bold=True)).elidedText(
        card.title, Qt.TextElideMode.ElideMiddle, WIDTH - MARGIN - left
    )
    _text(painter, left, MARGIN + 16, title, _font(19, bold=True), colours.colour("text"))
    _text(painter, left, MARGIN + 37, card.plan, _font(13), colours.colour("accent"))
    return MARGIN + 66


def _figures(painter: QPainter, figures: tuple[Figure, ...], top: float) -> float:
    """The speeds side by side. Returns where the next part begins."""
    colours = theme()
    gap = 16
    width = (WIDTH - 2 * MARGIN - gap * (len(figures) - 1)) / len(figures)
    for number, figure in enumerate(figures):
        left = MARGIN + number * (width + gap)
        box = QPainterPath()
        box.addRoundedRect(QRectF(left, top, width, FIGURES_HEIGHT), 12, 12)
        painter.fillPath(box, colours.colour("panel"))
        painter.setPen(QPen(colours.colour("line"), 1))
        painter.drawPath(box)
        _text(painter, left + 18, top + 26, figure.name, _font(13), colours.colour("muted"))
        value = figure.value or "–"
        _text(painter, left + 18, top + 66, value, _font(34, bold=True), colours.colour("text"))
        after = left + 18 + QFontMetricsF(_font(34, bold=True)).horizontalAdvance(value) + 8
        _text(painter, after, top + 66, "tok/s", _font(14), colours.colour("muted"))
        _text(painter, left + 18, top + 88, figure.note, _font(12), colours.colour("muted"))
        if figure.predicted:
            predicted = tr("predicted {range}", range=figure.predicted)
            _text(painter, left + 18, top + 106, predicted, _font(12), colours.colour("muted"))
    return top + FIGURES_HEIGHT + 34


def _text(painter: QPainter, x: float, baseline: float, text: str, font: QFont, colour: QColor) -> None:
    painter.setFont(font)
    painter.setPen(colour)
    painter.drawText(QPointF(x, baseline), text)


def _font(pixels: int, bold: bool = False) -> QFont:
    font = QFont(QGuiApplication.font())
    font.setPixelSize(pixels)
    if bold:
        font.setWeight(QFont.Weight.DemiBold)
    return font


def _lines(text: str, width: float, font: QFont) -> list[str]:
    """Wrapped between the parts that dots divide."""
    metrics = QFontMetricsF(font)
    lines = [""]
    for part in text.split(" · "):
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        if lines[-1] and metrics.horizontalAdvance(longer) > width:
            lines.append(metrics.elidedText(part, Qt.TextElideMode.ElideMiddle, width))
        else:
            lines[-1] = metrics.elidedText(longer, Qt.TextElideMode.ElideMiddle, width)
    return lines
