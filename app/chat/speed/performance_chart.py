"""The time of every token of an answer, with the range that was predicted, painted natively."""

from __future__ import annotations

from bisect import bisect_left
from statistics import median

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QMouseEvent, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.language import tr
from app.theme import theme
from engine.placement.plan import Range

#: Pixels around the plot: left for the scale's figures, below for the tokens.
LEFT, TOP, RIGHT, BELOW = 50, 8, 8, 18


class StepChart(QWidget):
    """Milliseconds a token over the tokens. A column of pixels with several steps shows their slowest."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._steps: list[tuple[int, float]] = []
        self._predicted: Range | None = None
        self.setMinimumHeight(110)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMouseTracking(True)
        self.setAccessibleName(tr("Time per token"))
        theme().changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(theme().px(280), theme().px(130))

    def show_steps(self, steps: list[tuple[int, float]], predicted: Range | None) -> None:
        """steps: (tokens until then, milliseconds a token), ascending; predicted: tokens per second."""
        self._steps, self._predicted = steps, predicted
        self.setAccessibleDescription(self.summary)
        self.update()

    @property
    def summary(self) -> str:
        """The chart in words."""
        times = [time for _, time in self._steps]
        if not times:
            return tr("No tokens measured yet.")
        return tr(
            "%n steps: median {median} ms per token, fastest {least} ms, slowest {most} ms.",
            n=len(times),
            median=_ms(median(times)),
            least=_ms(min(times)),
            most=_ms(max(times)),
        )

    def _top(self) -> float:
        """The scale's upper end in ms: one slow token must not press all others flat."""
        times = sorted(time for _, time in self._steps)
        usual = times[int(len(times) * 0.98) - 1 if len(times) > 50 else -1] if times else 0.0
        band = 1e3 / self._predicted.low if self._predicted is not None and self._predicted.low > 0 else 0.0
        return _round_up(max(usual * 1.15, min(band * 1.1, usual * 3) if usual else band * 1.1, 1e-3))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        paint_steps(painter, QRectF(self.rect()), self._steps, self._predicted, self._top())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        step = self._step_at(event.position().x())
        if step is not None:
            text = tr("Token {token}: {time} ms", token=step[0], time=_ms(step[1]))
            QToolTip.showText(event.globalPosition().toPoint(), text, self)

    def leaveEvent(self, event: QEvent) -> None:
        QToolTip.hideText()
        super().leaveEvent(event)

    def _step_at(self, x: float) -> tuple[int, float] | None:
        left = theme().px(LEFT)
        width = self.width() - left - RIGHT
        if not self._steps or not 0 <= x - left <= width:
            return None
        token = round((x - left) / width * self._steps[-1][0])
        return self._steps[min(bisect_left(self._steps, (token, 0.0)), len(self._steps) - 1)]


def paint_steps(
    painter: QPainter, area: QRectF, steps: list[tuple[int, float]], predicted: Range | None, top: float
) -> None:
    """Paint into `area`. top: the scale's upper end in ms."""
    colours = theme()
    plot = area.adjusted(colours.px(LEFT), TOP, -RIGHT, -colours.px(BELOW))
    font = painter.font()
    font.setPixelSize(colours.px(11))
    painter.setFont(font)
    metrics = QFontMetricsF(font)

    def height_of(ms: float) -> float:
        return plot.bottom() - min(ms / top, 1.0) * plot.height()

    if predicted is not None and predicted.low > 0:
        high, low = height_of(1e3 / predicted.low), height_of(1e3 / predicted.high)
        painter.fillRect(QRectF(plot.left(), high, plot.width(), max(1.0, low - high)), colours.colour("soft"))
    for share in (0.0, 0.5, 1.0):
        y = plot.bottom() - share * plot.height()
        painter.setPen(QPen(colours.colour("line"), 1))
        painter.drawLine(QPointF(plot.left(), y), QPointF(plot.right(), y))
        painter.setPen(colours.colour("muted"))
        text = _tick(top * share)
        painter.drawText(QPointF(plot.left() - 6 - metrics.horizontalAdvance(text), y + metrics.ascent() / 2 - 1), text)
    if not steps:
        return
    last = steps[-1][0]
    painter.setPen(colours.colour("muted"))
    text = tr("%n tokens", n=last)
    painter.drawText(QPointF(plot.right() - metrics.horizontalAdvance(text), area.bottom() - 4), text)
    slowest: dict[int, float] = {}
    for token, time in steps:
        column = round(token / last * plot.width())
        slowest[column] = max(slowest.get(column, 0.0), time)
    points = [QPointF(plot.left() + column, height_of(time)) for column, time in sorted(slowest.items())]
    painter.setPen(QPen(colours.colour("accent"), 1.4, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap))
    if len(points) == 1:
        painter.drawPoint(points[0])
    painter.drawPolyline(QPolygonF(points))


def _tick(time: float) -> str:
    """ "0", "250 ms", "1.5 s": short enough for the room beside the scale."""
    return "0" if not time else f"{time:g} ms" if time < 1000 else f"{time / 1000:g} s"


def _ms(time: float) -> str:
    """ "412", "17.2", "0.84"."""
    return f"{time:.0f}" if time >= 99.5 else f"{time:.1f}" if time >= 9.95 else f"{time:.2f}"


def _round_up(value: float) -> float:
    """To 1, 2, 3, 4, 5, 6 or 8 times a power of ten."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.999)
