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


def test_enter_while_the_model_loads_sends_once_it_is_there(composer, qtbot):
    composer.set_ready("Loading Greenroom demo…", soon=True)
    composer.set_text("hello")
    with qtbot.assertNotEmitted(composer.sent):
        qtbot.keyClick(composer.field, Qt.Key.Key_Return)
        composer.set_ready("Loading Greenroom demo… 80 %", soon=True)
    assert "when the model is loaded" in composer.hint
    with qtbot.waitSignal(composer.sent) as sent:
        composer.set_ready("")
    assert sent.args == ["hello"]
    composer.clear()
    with qtbot.assertNotEmitted(composer.sent, wait=0):
        composer.set_ready("")


@pytest.mark.parametrize("change", ["write", "fail"])
def test_a_waiting_message_is_held_back_by_a_change_or_a_failure(composer, qtbot, change):
    composer.set_ready("Loading Greenroom demo…", soon=True)
    composer.set_text("hello")
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    if change == "write":
        qtbot.keyClicks(composer.field, " world")
    else:
        composer.set_ready("It could not be loaded")
    with qtbot.assertNotEmitted(composer.sent, wait=0):
        composer.set_ready("")
    assert composer.text.startswith("hello")
    assert composer.action_button.isEnabled()


def test_the_placeholder_stays_on_one_line(composer):
    composer.set_model("Qwen3 235B A22B Instruct 2507 with a name that goes on and on, 한국어도 있는 아주 긴 이름")
    composer.resize(420, 120)
    composer.grab()
    shown = composer.field.placeholderText()
    assert shown.startswith("Message Qwen3")
    assert composer.field.fontMetrics().horizontalAdvance(shown) <= composer.field.viewport().width()


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
