"""What is to be seen on the chat page, and hands to use it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel

from app.chat.message_view import QuestionView


def shown(page):
    """What the messages say, first to last."""
    return [v.message.text if isinstance(v, QuestionView) else v.body.text for v in page.transcript.views]


def last(page):
    return page.transcript.views[-1]


def stats_of(answer):
    return answer.findChild(QLabel, "stats").text()


def click(qtbot, widget):
    qtbot.mouseClick(widget, Qt.MouseButton.LeftButton)


def type_and_send(qtbot, page, text):
    qtbot.keyClicks(page.composer.field, text)
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
