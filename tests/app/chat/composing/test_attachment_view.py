"""An attached file is read by a click on its plate, or by the keyboard."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.chat.composing.attachment_view import AttachmentView
from app.chat.composing.chips import ChipRows
from app.chat.storage.records import Attachment

TEXT = "a walrus <b>and</b> a seal"


@pytest.fixture
def window(qtbot: QtBot) -> QWidget:
    made = QWidget()
    qtbot.addWidget(made)
    made.resize(500, 200)
    return made


def opened(window: QWidget) -> list[AttachmentView]:
    return [view for view in window.findChildren(AttachmentView) if view.isVisible()]


@pytest.mark.parametrize("removable", [False, True])
def test_a_file_opens_and_closes(window: QWidget, removable: bool, qtbot: QtBot) -> None:
    rows = ChipRows(removable, window)
    rows.show_files([Attachment("zoo.txt", TEXT, len(TEXT)), Attachment("half.txt", "half", 9)])
    window.show()
    qtbot.mouseClick(rows.chips[0], Qt.MouseButton.LeftButton)
    (view,) = opened(window)
    assert view.windowTitle() == "zoo.txt"
    assert view.text.toPlainText() == TEXT
    assert view.text.isReadOnly()
    copy, close = view.findChildren(QPushButton)
    copy.click()
    assert QGuiApplication.clipboard().text() == TEXT
    close.click()
    assert opened(window) == []
    qtbot.keyClick(rows.chips[1], Qt.Key.Key_Return)
    (view,) = opened(window)
    assert view.windowTitle() == "half.txt (beginning)"
    view.close()


def test_removing_a_file_does_not_open_it(window: QWidget, qtbot: QtBot) -> None:
    rows = ChipRows(True, window)
    rows.show_files([Attachment("zoo.txt", TEXT, len(TEXT))])
    window.show()
    with qtbot.waitSignal(rows.removed):
        qtbot.mouseClick(rows.chips[0].cross, Qt.MouseButton.LeftButton)
    assert opened(window) == []
