"""Where the keyboard goes when what had it is not there any more."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt, Slot
from PySide6.QtWidgets import QApplication, QWidget
from shiboken6 import isValid


class LostFocus(QObject):
    """Qt gives it to the next widget in the order of Tab: the next keys would open a menu or change an old question."""

    def __init__(self, page: QWidget, heir: QWidget) -> None:
        """page: of what lies in it, whatever had the keyboard and disappears leaves it to `heir`."""
        super().__init__(page)
        self._page, self._heir = page, heir
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        app.focusChanged.connect(self._pass_on)

    @Slot(QWidget, QWidget)
    def _pass_on(self, old: QWidget | None, now: QWidget | None) -> None:
        # A page that is just being destroyed takes the keyboard from its own widgets.
        if old is None or not isValid(self._page) or not self._page.isVisible() or not self._page.isAncestorOf(old):
            return
        if not (old.isVisible() and old.isEnabled()):
            self._heir.setFocus(Qt.FocusReason.OtherFocusReason)
