"""The picture of the stage: hover or the arrow keys say more about one expert."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, QSize, Qt, Slot
from PySide6.QtGui import QFocusEvent, QKeyEvent, QMouseEvent, QPainter, QPainterPath, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.language import tr
from app.stage.activity import Activity
from app.stage.picture import Grid, Picture
from app.stage.summary import describe_expert
from app.theme import theme

RADIUS = 6
STEPS = {
    Qt.Key.Key_Left: (0, -1),
    Qt.Key.Key_Right: (0, 1),
    Qt.Key.Key_Up: (-1, 0),
    Qt.Key.Key_Down: (1, 0),
    Qt.Key.Key_PageUp: (-8, 0),
    Qt.Key.Key_PageDown: (8, 0),
}


class StageView(QWidget):
    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._activity: Activity | None = None
        self._picture: Picture | None = None
        self._corners: list[QPainterPath] = []
        #: (row, expert) that is told about.
        self._chosen: tuple[int, int] | None = None
        self.setAccessibleName(tr("Stage: layers by experts"))
        self.setMouseTracking(True)
        # Otherwise everything that lies below is painted thirty times a second.
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        theme().changed.connect(self._forget_picture)

    def show_activity(self, activity: Activity | None) -> None:
        """Another run, or what has become of this one."""
        before, self._activity = self._activity, activity
        if before is not None and (activity is None or activity.uses.shape != before.uses.shape):
            self._picture = self._chosen = None
        self.update()

    @property
    def chosen(self) -> tuple[int, int] | None:
        """(row, expert) that is told about."""
        return self._chosen

    def sizeHint(self) -> QSize:
        return QSize(theme().px(300), theme().px(430))

    def minimumSizeHint(self) -> QSize:
        return QSize(160, 140)

    @Slot()
    def _forget_picture(self) -> None:
        self._picture = None
        self.update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._picture = None
        self._corners = list(_outside(QRectF(self.rect())))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        if self._activity is None:
            painter.fillRect(self.rect(), theme().colour("panel"))
            return
        scale = self.devicePixelRatioF()
        width, height = round(self.width() * scale), round(self.height() * scale)
        picture = self._picture
        if picture is None or (picture.grid.width, picture.grid.height) != (width, height):
            layers, experts = self._activity.uses.shape
            picture = self._picture = Picture(Grid(layers, experts, width, height), theme().tokens)
        image = picture.paint(self._activity)
        image.setDevicePixelRatio(scale)
        painter.drawImage(QPointF(0, 0), image)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for corner in self._corners:
            painter.fillPath(corner, theme().colour("panel"))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        if self._chosen is not None:
            x, y, w, h = (value / scale for value in picture.grid.rectangle(*self._chosen))
            painter.setPen(QPen(theme().colour("text"), 1.5))
            painter.drawRect(QRectF(x - 1, y - 1, w + 1, h + 1))
        if self.hasFocus():
            painter.setPen(QPen(theme().colour("accent"), 2))
            painter.drawRect(self.rect().adjusted(1, 1, -1, -1))

    # One expert

    def choose(self, cell: tuple[int, int] | None) -> None:
        """Tell about an expert, by (row, number), or about none."""
        if cell != self._chosen:
            self._chosen = cell
            self.update()

    def describe(self) -> str:
        """The chosen expert in words; empty when there is none."""
        if self._activity is None or self._chosen is None:
            return ""
        return describe_expert(self._activity, *self._chosen)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self.choose(self._cell_at(event.position()))
        if self._chosen is not None:
            QToolTip.showText(event.globalPosition().toPoint() + QPoint(4, 12), self.describe(), self)
        else:
            QToolTip.hideText()

    def leaveEvent(self, event: QEvent) -> None:
        if not self.hasFocus():
            self.choose(None)

    def _cell_at(self, at: QPointF) -> tuple[int, int] | None:
        if self._picture is None:
            return None
        scale = self.devicePixelRatioF()
        return self._picture.grid.cell_at(at.x() * scale, at.y() * scale)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = STEPS.get(Qt.Key(event.key()))
        if step is None or self._activity is None:
            super().keyPressEvent(event)
            return
        layers, experts = self._activity.uses.shape
        row, expert = self._chosen or (0, 0)
        if self._chosen is not None:
            row, expert = row + step[0], expert + step[1]
        self.choose((min(max(row, 0), layers - 1), min(max(expert, 0), experts - 1)))
        said = self.describe()
        self.setAccessibleDescription(said)
        if self._picture is not None:
            x, y, _, height = (
                value / self.devicePixelRatioF() for value in self._picture.grid.rectangle(*self._chosen)
            )
            QToolTip.showText(self.mapToGlobal(QPoint(round(x), round(y + height + 6))), said, self)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self.choose(None)
        QToolTip.hideText()
        super().focusOutEvent(event)


def _outside(box: QRectF) -> Iterator[QPainterPath]:
    """What a box with round corners leaves of one with sharp ones."""
    rounded = QPainterPath()
    rounded.addRoundedRect(box, RADIUS, RADIUS)
    for x, y in ((box.left(), box.top()), (box.right() - RADIUS, box.top())):
        for top in (y, box.bottom() - RADIUS):
            corner = QPainterPath()
            corner.addRect(QRectF(x, top, RADIUS, RADIUS))
            yield corner - rounded
