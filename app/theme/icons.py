"""Line icons, coloured at the moment they are drawn, sharp at every scale."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt
from PySide6.QtGui import QIcon, QIconEngine, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from engine.resources import asset


@lru_cache(maxsize=64)
def icon_source(name: str) -> str:
    """The SVG text of assets/icons/<name>.svg; strokes are `currentColor`."""
    return asset(f"icons/{name}.svg").read_text(encoding="utf-8")


class _SvgEngine(QIconEngine):
    """Draws one SVG in one colour, and in a second one while disabled."""

    def __init__(self, name: str, colour: str, disabled: str) -> None:
        super().__init__()
        self._key = (name, colour, disabled)
        source = icon_source(name)
        self._normal = QSvgRenderer(QByteArray(source.replace("currentColor", colour).encode()))
        self._disabled = QSvgRenderer(QByteArray(source.replace("currentColor", disabled).encode()))

    def paint(self, painter: QPainter, rect, mode: QIcon.Mode, state: QIcon.State) -> None:
        renderer = self._disabled if mode == QIcon.Mode.Disabled else self._normal
        # A wider rectangle leaves room between the icon and the text beside it.
        renderer.render(painter, QRectF(rect.x(), rect.y(), rect.height(), rect.height()))

    def scaledPixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State, scale: float) -> QPixmap:
        device = size * scale if _asks_for_logical_size() else size
        pixmap = self._draw(device, mode)
        pixmap.setDevicePixelRatio(scale)
        return pixmap

    def pixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State) -> QPixmap:
        return self._draw(size, mode)

    def _draw(self, device: QSize, mode: QIcon.Mode) -> QPixmap:
        pixmap = QPixmap(device)
        pixmap.fill(Qt.GlobalColor.transparent)
        painter = QPainter(pixmap)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self.paint(painter, pixmap.rect(), mode, QIcon.State.Off)
        painter.end()
        return pixmap

    def clone(self) -> QIconEngine:
        return _SvgEngine(*self._key)


class _SizeProbe(QIconEngine):
    """Remembers which size QIcon asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = QSize()

    def scaledPixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State, scale: float) -> QPixmap:
        self.asked = QSize(size)
        return QPixmap(1, 1)


@lru_cache(maxsize=1)
def _asks_for_logical_size() -> bool:
    """Qt versions differ in whether `scaledPixmap` is given logical or device pixels, so this one is asked."""
    probe = _SizeProbe()
    QIcon(probe).pixmap(QSize(10, 10), 2.0)
    return probe.asked.width() == 10


def make_icon(name: str, colour: str, disabled: str) -> QIcon:
    """The icon `name` in `colour` ("#RRGGBB")."""
    return QIcon(_SvgEngine(name, colour, disabled))


def make_pixmap(name: str, colour: str, size: int, scale: float = 1.0) -> QPixmap:
    """A pixmap of size x size logical pixels for a screen of that scale."""
    device = round(size * scale)
    pixmap = _SvgEngine(name, colour, colour)._draw(QSize(device, device), QIcon.Mode.Normal)
    pixmap.setDevicePixelRatio(scale)
    return pixmap
