"""Pictures that stand on their own on any background, and the few things that painted parts are made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QGuiApplication, QImage, QPainter, QPainterPath, QPen

from app.theme import theme

#: A saved picture has so many pixels on each side of a logical one: it stays sharp on dense screens.
SCALE = 2
MARGIN = 32
_SMOOTH = QPainter.RenderHint.Antialiasing | QPainter.RenderHint.TextAntialiasing


def blank(width: int, height: int) -> QImage:
    """A transparent picture of so many logical pixels, to be painted with `sheet`."""
    image = QImage(width * SCALE, height * SCALE, QImage.Format.Format_ARGB32_Premultiplied)
    image.setDevicePixelRatio(SCALE)
    image.fill(Qt.GlobalColor.transparent)
    return image


@contextmanager
def sheet(image: QImage) -> Iterator[QPainter]:
    """A painter upon a sheet with round corners in the theme's colours, which fills the picture."""
    size = image.deviceIndependentSize()
    painter = QPainter(image)
    painter.setRenderHints(_SMOOTH)
    draw_box(painter, QRectF(0.5, 0.5, size.width() - 1, size.height() - 1), 16, theme().colour("bg"))
    try:
        yield painter
    finally:
        painter.end()


def png(image: QImage) -> bytes:
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")
    return bytes(data.data())


def text_font(pixels: int, bold: bool = False) -> QFont:
    """The window's font at a size of its own; whoever paints into a window scales the painter to the zoom."""
    font = QFont(QGuiApplication.font())
    font.setPixelSize(pixels)
    if bold:
        font.setWeight(QFont.Weight.DemiBold)
    return font


def draw_box(painter: QPainter, box: QRectF, radius: float, fill: QColor) -> None:
    """A panel with round corners and a thin edge."""
    path = QPainterPath()
    path.addRoundedRect(box, radius, radius)
    painter.fillPath(path, fill)
    painter.setPen(QPen(theme().colour("line"), 1))
    painter.drawPath(path)


def draw_rule(painter: QPainter, left: float, right: float, y: float) -> None:
    painter.setPen(QPen(theme().colour("line"), 1))
    painter.drawLine(QPointF(left, y), QPointF(right, y))


def draw_text(
    painter: QPainter,
    x: float,
    baseline: float,
    text: str,
    font: QFont,
    colour: QColor,
    width: float,
    elide: Qt.TextElideMode = Qt.TextElideMode.ElideRight,
) -> None:
    """One line of text, shortened where it is wider than width (logical pixels)."""
    painter.setFont(font)
    painter.setPen(colour)
    painter.drawText(QPointF(x, baseline), QFontMetricsF(font).elidedText(text, elide, width))


def wrapped(text: str, between: str, font: QFont, width: float, most: int = 0) -> list[str]:
    """The text's parts in lines no wider than width (logical pixels), as far as single parts allow.

    between: what divides the parts, and stands between those on one line; most: lines, of which the last takes the
    rest (0: as many as it needs)
    """
    metrics, lines = QFontMetricsF(font), [""]
    for part in text.split(between):
        longer = f"{lines[-1]}{between}{part}" if lines[-1] else part
        if lines[-1] and len(lines) != most and metrics.horizontalAdvance(longer) > width:
            lines.append(part)
        else:
            lines[-1] = longer
    return lines
