"""Buttons with an icon that follows the theme."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QPushButton, QSizePolicy, QWidget

from app.theme import theme
from app.widgets.labels import elided, plain_tip, set_plain_tip

#: Icons are ICON pixels square; beside text the gap widens Qt's own 4 pixels.
ICON = 16
GAPS = {"": 3, "nav": 6}


def button(
    text: str,
    icon: str = "",
    kind: str = "",
    role: str = "text",
    name: str = "",
    tip: str = "",
    parent: QWidget | None = None,
) -> QPushButton:
    """A push button.

    kind: primary | nav | ghost | link, or "" for the bordered default
    role: the token the icon is coloured with
    name: what a screen reader says; needed when there is no text
    """
    made = QPushButton(text, parent)
    if kind:
        made.setProperty("kind", kind)
    if icon:
        theme().bind_icon(made, icon, role)
        icon_size = theme().px(ICON)
        made.setIconSize(QSize(icon_size + GAPS.get(kind, GAPS[""]) if text else icon_size, icon_size))
    # A click leaves no focus ring behind; the keyboard still reaches every button.
    made.setFocusPolicy(Qt.FocusPolicy.TabFocus)
    made.setAccessibleName(name or text)
    if tip:
        set_plain_tip(made, tip)
    return made


class ElideButton(QPushButton):
    """Its text ends in an ellipsis where there is no room for it; the whole text is in its tool tip then."""

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self._whole = text
        # A button's own policy is never to be narrower than its text.
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(text)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)

    def sizeHint(self) -> QSize:
        return super().sizeHint() + QSize(self._advance(self._whole) - self._advance(self.text()), 0)

    def minimumSizeHint(self) -> QSize:
        return QSize(self._padding + self._advance("MMM…"), super().minimumSizeHint().height())

    @property
    def _padding(self) -> int:
        return super().sizeHint().width() - self._advance(self.text())

    def _advance(self, text: str) -> int:
        return self.fontMetrics().horizontalAdvance(text)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        room = self.width() - self._padding
        shown = elided(self._whole, self.fontMetrics(), Qt.TextElideMode.ElideRight, room)
        if shown != self.text():
            self.setText(shown)
            self.setToolTip("" if shown == self._whole else plain_tip(self._whole))
