"""Writing, sending and stopping with the keyboard, and saying why sending is not possible."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QMimeData, Qt

from app.chat.composer import MOST_LINES, Composer


@pytest.fixture
def composer(qtbot):
    made = Composer()
    qtbot.addWidget(made)
    made.resize(600, 120)
    made.show()
    return made


def test_enter_sends_and_shift_enter_starts_a_line(composer, qtbot):
    qtbot.keyClicks(composer.field, "one")
    qtbot.keyClick(composer.field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClicks(composer.field, "two ")
    with qtbot.waitSignal(composer.sent) as sent:
        qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    assert sent.args == ["one\ntwo"]


def test_nothing_is_sent_without_text_or_without_a_model(composer, qtbot):
    with qtbot.assertNotEmitted(composer.sent):
        qtbot.keyClick(composer.field, Qt.Key.Key_Return)
        assert not composer.action_button.isEnabled()
        composer.set_text("hello")
        assert composer.action_button.isEnabled()
        composer.set_ready("Loading Greenroom demo… 43 %")
        assert not composer.action_button.isEnabled()
        qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    assert composer.hint == "Loading Greenroom demo… 43 %"
    assert composer.text == "hello", "what was written waits for the model"
    composer.set_ready("")
    assert composer.action_button.isEnabled()
    assert composer.hint == ""


def test_the_button_and_escape_stop_an_answer(composer, qtbot):
    composer.set_text("next question")
    composer.set_answering(True)
    assert "Stop" in composer.action_button.text()
    with qtbot.assertNotEmitted(composer.sent):
        qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    with qtbot.waitSignal(composer.stopped):
        qtbot.mouseClick(composer.action_button, Qt.MouseButton.LeftButton)
    with qtbot.waitSignal(composer.stopped):
        qtbot.keyClick(composer.field, Qt.Key.Key_Escape)
    composer.set_answering(False)
    assert composer.action_button.text() == "Send"


def test_the_field_grows_to_a_limit(composer):
    heights = []
    for lines in (1, 3, MOST_LINES, MOST_LINES + 20):
        composer.set_text("\n".join(["x"] * lines))
        heights.append(composer.field.height())
    assert heights[0] < heights[1] < heights[2] == heights[3]


def test_pasted_rich_text_becomes_plain(composer):
    data = QMimeData()
    data.setHtml("<b>bold</b>")
    data.setText("bold <i>not</i>")
    composer.field.insertFromMimeData(data)
    assert composer.text == "bold <i>not</i>"


def test_the_meter_counts_tokens(composer):
    assert composer.meter_text == ""
    composer.set_context(312, 8192)
    assert composer.meter_text == "312 of 8k tokens"
    composer.set_context(3120, 32768)
    assert composer.meter_text == "3.1k of 32k tokens"


def test_editing_can_be_cancelled(composer, qtbot):
    composer.begin_edit("old question")
    assert composer.editing
    assert composer.text == "old question"
    with qtbot.waitSignal(composer.editCancelled):
        qtbot.keyClick(composer.field, Qt.Key.Key_Escape)
    assert not composer.editing
    assert composer.text == ""
