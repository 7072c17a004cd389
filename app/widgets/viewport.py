"""Views that come and go by the thousand."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractScrollArea


def leave_to_parent(view: QAbstractScrollArea) -> None:
    """Have a view without a background of its own not paint one behind its text either. To be called after each polish.

    With a style sheet, Qt remembers rules for every viewport that it paints a background for, and never forgets them:
    it takes care of the view's own only. That is some 400 bytes for each view that ever was.
    """
    view.viewport().setAttribute(Qt.WidgetAttribute.WA_StyledBackground, False)
