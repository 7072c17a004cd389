"""The benchmark card as a picture, painted in the colours of the theme."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QImage, QPainter

from app.chat.speed.card import Card, Figure
from app.language import tr
from app.theme import theme
from app.theme.icons import make_pixmap
from app.widgets.picture import MARGIN, SCALE, blank, draw_box, draw_rule, draw_text, sheet, text_font, wrapped

#: Logical pixels.
WIDTH, ROW, LABEL_WIDTH, FIGURES_HEIGHT = 720, 26, 96, 124
TITLE_SIZES = (19, 17, 15, 13)


def paint_card(card: Card) -> QImage:
    """A picture of the card that stands on its own on any background."""
    room = WIDTH - 2 * MARGIN - LABEL_WIDTH
    rows = [(what, wrapped(value, " · ", text_font(13), room)) for what, value in card.rows]
    height = MARGIN + 66 + FIGURES_HEIGHT + 24 + sum(ROW + 18 * (len(lines) - 1) for _, lines in rows) + 46
    image, colours = blank(WIDTH, height), theme()
    text, muted = colours.colour("text"), colours.colour("muted")
    with sheet(image) as painter:
        y = _head(painter, card)
        y = _figures(painter, card.figures, y)
        for what, lines in rows:
            draw_text(painter, MARGIN, y, what, text_font(13), muted, LABEL_WIDTH)
            for number, line in enumerate(lines):
                left, middle = MARGIN + LABEL_WIDTH, Qt.TextElideMode.ElideMiddle
                draw_text(painter, left, y + 18 * number, line, text_font(13), text, room, middle)
            y += ROW + 18 * (len(lines) - 1)
        draw_rule(painter, MARGIN, WIDTH - MARGIN, height - 44.5)
        draw_text(painter, MARGIN, height - 20, card.foot, text_font(12), muted, WIDTH - 2 * MARGIN)
    return image


def _head(painter: QPainter, card: Card) -> float:
    """The logo, the model and the plan. Returns where the next part begins."""
    colours = theme()
    painter.drawPixmap(QPointF(MARGIN, MARGIN), make_pixmap("logo", colours.tokens.accent, 40, SCALE))
    left = MARGIN + 54
    room, middle = WIDTH - MARGIN - left, Qt.TextElideMode.ElideMiddle
    # A long name is written smaller before anything of it is left out.
    fonts = [text_font(pixels, bold=True) for pixels in TITLE_SIZES]
    font = next((font for font in fonts if QFontMetricsF(font).horizontalAdvance(card.title) <= room), fonts[-1])
    draw_text(painter, left, MARGIN + 16, card.title, font, colours.colour("text"), room, middle)
    draw_text(painter, left, MARGIN + 37, card.plan, text_font(13), colours.colour("accent"), room)
    return MARGIN + 66


def _figures(painter: QPainter, figures: tuple[Figure, ...], top: float) -> float:
    """The speeds side by side. Returns where the next part begins."""
    gap = 16
    width = (WIDTH - 2 * MARGIN - gap * (len(figures) - 1)) / len(figures)
    for number, figure in enumerate(figures):
        _figure(painter, figure, QRectF(MARGIN + number * (width + gap), top, width, FIGURES_HEIGHT))
    return top + FIGURES_HEIGHT + 34


def _figure(painter: QPainter, figure: Figure, box: QRectF) -> None:
    colours = theme()
    ink, muted = colours.colour("text"), colours.colour("muted")
    left, top, room = box.left() + 18, box.top(), box.width() - 36
    draw_box(painter, box, 12, colours.colour("panel"))
    draw_text(painter, left, top + 26, figure.name, text_font(13), muted, room)
    value, large = figure.value or "–", text_font(34, bold=True)
    draw_text(painter, left, top + 66, value, large, ink, room)
    taken = QFontMetricsF(large).horizontalAdvance(value) + 8
    draw_text(painter, left + taken, top + 66, "tok/s", text_font(14), muted, room - taken)
    draw_text(painter, left, top + 88, figure.note, text_font(12), muted, room)
    if figure.predicted:
        predicted = tr("predicted {range}", range=figure.predicted)
        draw_text(painter, left, top + 106, predicted, text_font(12), muted, room)
