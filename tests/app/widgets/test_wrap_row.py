"""Parts of a row that has too little room go on below."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QRect
from PySide6.QtWidgets import QSizePolicy, QWidget
from pytestqt.qtbot import QtBot

from app.widgets.wrap_row import WrapRow

GAP = 10


def part(width: int, expands: bool = False) -> QWidget:
    made = QWidget()
    made.setMinimumSize(width, 20)
    grows = QSizePolicy.Policy.Expanding if expands else QSizePolicy.Policy.Fixed
    made.setSizePolicy(grows, QSizePolicy.Policy.Fixed)
    return made


def places(width: int, *parts: QWidget, qtbot: QtBot) -> list[tuple[int, int, int]]:
    """(left, top, width) of each in a row of that width."""
    around = QWidget()
    qtbot.addWidget(around)
    row = WrapRow(*parts, gap=GAP)
    around.setLayout(row)
    row.setGeometry(QRect(0, 0, width, row.heightForWidth(width)))
    return [(p.x(), p.y(), p.width()) for p in parts]


def test_in_one_line_while_there_is_room(qtbot: QtBot) -> None:
    assert places(130, part(40), part(70), qtbot=qtbot) == [(0, 0, 40), (50, 0, 70)]


def test_the_next_line_takes_what_does_not_fit(qtbot: QtBot) -> None:
    found = places(119, part(40), part(70), part(40), qtbot=qtbot)
    assert found == [(0, 0, 40), (0, 30, 70), (0, 60, 40)]


def test_parts_that_expand_share_what_is_left_of_their_line(qtbot: QtBot) -> None:
    found = places(200, part(40), part(30, expands=True), part(30, expands=True), qtbot=qtbot)
    assert found == [(0, 0, 40), (50, 0, 70), (130, 0, 70)]


def test_a_hidden_part_takes_no_room(qtbot: QtBot) -> None:
    hidden = part(90)
    hidden.hide()
    assert places(130, part(40), hidden, part(70), qtbot=qtbot)[2] == (50, 0, 70)


@pytest.mark.parametrize(("width", "height"), [(500, 20), (119, 80), (10, 80)])
def test_it_says_how_high_it_will_be(width: int, height: int, qtbot: QtBot) -> None:
    around = QWidget()
    qtbot.addWidget(around)
    row = WrapRow(part(40), part(70), part(40), gap=GAP)
    around.setLayout(row)
    assert row.heightForWidth(width) == height
    assert row.minimumSize().width() == 70
