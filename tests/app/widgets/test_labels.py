"""A label that shortens its text."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QFontMetrics, QTextDocument
from pytestqt.qtbot import QtBot

from app.widgets.buttons import ElideButton
from app.widgets.labels import ElideLabel, elided


def test_what_is_cut_is_in_the_tool_tip(qtbot: QtBot) -> None:
    label = ElideLabel("Qwen3-235B-A22B-아주-긴-이름-" * 4)
    qtbot.addWidget(label)
    label.resize(120, 20)
    label.grab()
    assert label.toolTip() == label.text()
    label.resize(4000, 20)
    label.grab()
    assert label.toolTip() == ""


def test_a_detail_is_in_the_tool_tip_in_any_case(qtbot: QtBot) -> None:
    label = ElideLabel("12.4 tok/s · 245 tokens")
    label.detail = "Read 34 tokens at 410 tok/s"
    qtbot.addWidget(label)
    label.resize(400, 20)
    label.grab()
    assert label.toolTip() == label.detail
    label.resize(60, 20)
    label.grab()
    assert label.toolTip() == f"{label.text()}\n{label.detail}"


def test_a_long_text_does_not_ask_for_room(qtbot: QtBot) -> None:
    label = ElideLabel("long " * 200)
    qtbot.addWidget(label)
    assert label.minimumSizeHint().width() < 120


def test_html_in_a_name_is_shown_not_read(qtbot: QtBot) -> None:
    name = "<img src='http://tracker.example/x'><b>Model</b>"
    label = ElideLabel(name)
    qtbot.addWidget(label)
    label.resize(60, 20)
    label.grab()
    assert label.textFormat() == Qt.TextFormat.PlainText
    shown = QTextDocument()
    shown.setHtml(label.toolTip())
    assert shown.toPlainText() == name


def test_a_shorter_text_is_shown_before_anything_is_cut(qtbot: QtBot) -> None:
    label = ElideLabel("one two three four")
    label.shorter = ("one two", "one")
    qtbot.addWidget(label)

    def shown(width: int) -> object:
        label.resize(width, 20)
        return label.grab().toImage()

    room = label.fontMetrics().horizontalAdvance("one two") + 2
    other = ElideLabel("one two")
    qtbot.addWidget(other)
    other.resize(room, 20)
    assert shown(room) == other.grab().toImage()
    assert label.toolTip() == label.text()


def test_a_text_with_just_its_room_is_whole_at_every_size(qtbot: QtBot) -> None:
    button = ElideButton("On the CPU")
    qtbot.addWidget(button)
    for size in range(80, 240):
        font = QFont(button.font())
        font.setPointSizeF(size / 10)
        metrics = QFontMetrics(font)
        room = metrics.horizontalAdvance("On the CPU")
        assert elided("On the CPU", metrics, Qt.TextElideMode.ElideRight, room) == "On the CPU", size
        assert elided("On the CPU", metrics, Qt.TextElideMode.ElideRight, room - 2).endswith("…"), size
        button.setFont(font)
        button.resize(button.sizeHint())
        button.grab()
        assert button.text() == "On the CPU", size
