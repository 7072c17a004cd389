"""In which order Tab visits what is in a widget."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget


def tab_in_order_made(root: QWidget, before: QWidget | None = None) -> QWidget | None:
    """Has Tab visit what is in `root` in the order it was made, behind `before`; returns the last one visited.

    Menus and popups in it are windows with an order of their own.
    """
    window = root.window()
    for part in root.findChildren(QWidget):
        if part.focusPolicy() & Qt.FocusPolicy.TabFocus and part.window() is window:
            if before is not None:
                QWidget.setTabOrder(before, part)
            before = part
    return before
