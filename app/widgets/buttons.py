"""Buttons with an icon that follows the theme."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QPushButton, QWidget

from app.theme import theme

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
        made.setToolTip(tip)
    return made
