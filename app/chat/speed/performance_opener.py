"""Opens the performance panel beside the messages, and closes it."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.chat.speed.performance import PerformanceLog
from app.chat.speed.performance_panel import PerformancePanel, copy_card


class PerformanceOpener(QObject):
    #: bool: whether the panel is shown
    shown = Signal(bool)

    def __init__(self, log: PerformanceLog, row: QHBoxLayout, page: QWidget) -> None:
        """row: of the page, at whose end the panel stands."""
        super().__init__(page)
        self._log, self._row, self._page = log, row, page
        #: Made when it is first wanted.
        self.panel: PerformancePanel | None = None

    def show(self, on: bool, message_id: int | None = None) -> None:
        """The figures of an answer; of the newest one without a message."""
        if on and self.panel is None:
            self.panel = PerformancePanel(self._log, self._page)
            self.panel.closed.connect(lambda: self.show(False))
            self._row.addWidget(self.panel)
        elif not on and self.panel is not None:
            self._row.removeWidget(self.panel)
            self.panel.hide()
            self.panel.deleteLater()
            self.panel = None
        if self.panel is not None:
            self.share_room()
            self.panel.choose(message_id)
        self.shown.emit(on)

    def share_room(self) -> None:
        """The panel takes no more than half of the page."""
        if self.panel is not None:
            self.panel.set_room(self._page.width() // 2)

    def copy_card(self) -> bool:
        """Copy the benchmark card of the newest answer; False when there is none."""
        return copy_card(self._log.newest)
