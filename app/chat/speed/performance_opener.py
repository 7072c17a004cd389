"""Opens the performance panel beside the messages, and closes it."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.chat.speed.performance import PerformanceLog
from app.chat.speed.performance_panel import PerformancePanel, copy_card
from app.theme import theme

#: With less than this beside the panel, nobody reads the messages.
LEAST_BESIDE = 220


class PerformanceOpener(QObject):
    #: bool: whether the panel is shown
    shown = Signal(bool)

    def __init__(self, log: PerformanceLog, row: QHBoxLayout, messages: QWidget, page: QWidget) -> None:
        """row: of the page, at whose end the panel stands. messages: what it stands beside, or in place of."""
        super().__init__(page)
        self._log, self._row, self._messages, self._page = log, row, messages, page
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
        self.share_room()
        if self.panel is not None:
            self.panel.choose(message_id)
        self.shown.emit(on)

    def share_room(self) -> None:
        """The panel takes no more than half of the page, or all of it where that leaves too little for the messages."""
        alone = False
        if self.panel is not None:
            page = self._page.width()
            self.panel.set_room(page // 2)
            alone = page - self.panel.beside < theme().px(LEAST_BESIDE)
            if alone:
                self.panel.set_room(page // 2, page)
        self._messages.setVisible(not alone)

    def give_way(self) -> None:
        """The messages are to be seen."""
        if self.panel is not None and self._messages.isHidden():
            self.show(False)

    def copy_card(self) -> bool:
        """Copy the benchmark card of the newest answer; False when there is none."""
        return copy_card(self._log.newest)
