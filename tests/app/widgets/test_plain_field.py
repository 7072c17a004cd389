from __future__ import annotations

from PySide6.QtCore import QMimeData
from pytestqt.qtbot import QtBot

from app.settings.store import PROMPT_LIMIT
from app.widgets.plain_field import PlainField


def test_a_paste_without_end_is_cut_to_what_a_prompt_may_have(qtbot: QtBot) -> None:
    field = PlainField()
    qtbot.addWidget(field)
    pasted = QMimeData()
    pasted.setText("x" * 3 * PROMPT_LIMIT)
    field.insertFromMimeData(pasted)
    assert len(field.toPlainText()) == PROMPT_LIMIT
