"""A field whose hint fits."""

from __future__ import annotations

from pytestqt.qtbot import QtBot
from whole import cut

from app.widgets.hint_field import HintField

HINTS = ("Filter, or press Enter to search", "Filter, Enter searches", "Filter")


def test_the_longest_hint_that_fits_is_shown(qtbot: QtBot) -> None:
    field = HintField(HINTS)
    qtbot.addWidget(field)
    field.show()
    seen = []
    for width in range(500, 60, -5):
        field.resize(width, 36)
        seen.append(field.placeholderText())
        assert seen[-1] == HINTS[-1] or cut(field) == []
    assert tuple(dict.fromkeys(seen)) == HINTS
