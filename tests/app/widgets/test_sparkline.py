"""The line of recent speeds."""

from __future__ import annotations

from pytestqt.qtbot import QtBot

from app.theme import theme
from app.widgets.sparkline import Sparkline


def test_keeps_the_newest_values_and_draws_them(qtbot: QtBot) -> None:
    line = Sparkline(length=10)
    qtbot.addWidget(line)
    blank = line.grab().toImage()
    for value in range(25):
        line.push(float(value))
    assert line.values == [float(v) for v in range(15, 25)]
    assert line.grab().toImage() != blank
    line.clear()
    assert line.grab().toImage() == blank


def test_zeros_are_drawn_too(qtbot: QtBot) -> None:
    line = Sparkline()
    qtbot.addWidget(line)
    for _ in range(3):
        line.push(0.0)
    theme().set_mode("system")
    assert not line.grab().isNull()
