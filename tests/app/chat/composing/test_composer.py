"""Writing, sending and stopping with the keyboard, and saying why sending is not possible."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QMimeData, Qt, QUrl
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QLabel, QVBoxLayout, QWidget

from app.chat.composing.attaching import LONG_PASTE
from app.chat.composing.composer import MOST_LINES, Composer
from app.chat.storage.records import Attachment, Draft
from app.language import set_language


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
    assert "Your message will be sent once the model is loaded" in composer.hint
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
    assert shown == "Write a message"
    assert composer.field.fontMetrics().horizontalAdvance(shown) <= composer.field.viewport().width()
    composer.set_model("Greenroom demo (SmolLM2-135M as a mixture of experts)")
    composer.resize(300, 120)
    composer.grab()
    assert composer.field.placeholderText() == "Message Greenroom demo"


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


def test_enter_may_start_a_line_instead(composer, qtbot):
    composer.set_enter("newline")
    qtbot.keyClicks(composer.field, "one")
    with qtbot.assertNotEmitted(composer.sent):
        qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    qtbot.keyClicks(composer.field, "two")
    with qtbot.waitSignal(composer.sent) as sent:
        qtbot.keyClick(composer.field, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert sent.args == ["one\ntwo"]
    assert composer.field.accessibleDescription() == "Ctrl+Enter to send, Enter for a new line"


def test_up_in_the_empty_field_goes_through_what_was_asked(composer, qtbot):
    composer.set_history(lambda: ["newest", "older"])
    for key, text in (("Up", "newest"), ("Up", "older"), ("Up", "older"), ("Down", "newest"), ("Down", "")):
        qtbot.keyClick(composer.field, getattr(Qt.Key, f"Key_{key}"))
        assert composer.text == text
    qtbot.keyClicks(composer.field, "mine")
    qtbot.keyClick(composer.field, Qt.Key.Key_Up)
    assert composer.text == "mine", "what was written is not lost to a key"
    composer.clear()
    qtbot.keyClick(composer.field, Qt.Key.Key_Up)
    qtbot.keyClicks(composer.field, "!")
    qtbot.keyClick(composer.field, Qt.Key.Key_Up)
    assert composer.text == "newest!", "changed, it is a text of one's own"
    composer.set_history(list)
    composer.clear()
    qtbot.keyClick(composer.field, Qt.Key.Key_Up)
    assert composer.text == ""


def test_files_that_are_pasted_or_dropped_become_attachments(composer, qtbot):
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile("/tmp/a.txt"), QUrl("https://example.org/b.txt")])
    assert composer.field.canInsertFromMimeData(data)
    with qtbot.waitSignal(composer.attachWanted) as wanted:
        composer.field.insertFromMimeData(data)
    assert wanted.args == [["/tmp/a.txt"]]
    long = QMimeData()
    long.setText("x" * (LONG_PASTE + 1))
    with qtbot.waitSignal(composer.pasteWanted) as pasted:
        composer.field.insertFromMimeData(long)
    assert pasted.args == [long.text()]
    assert composer.text == ""


def test_a_picture_is_refused_in_words(page, qtbot):
    """Not in silence: other programs take pictures."""
    picture = QMimeData()
    picture.setImageData(QImage(4, 4, QImage.Format.Format_RGB32))
    field = page.composer.field
    assert field.canInsertFromMimeData(picture)
    with qtbot.waitSignal(page.composer.pictureGiven):
        field.insertFromMimeData(picture)
    assert [banner.error.what for banner in page.banners.banners] == ["The picture was not attached"]
    picture.setText("its caption")
    field.insertFromMimeData(picture)
    assert page.composer.text == "its caption", "what has text as well is pasted as text"


def test_attachments_stand_above_the_text_and_can_be_taken_away(composer, qtbot):
    files = [Attachment("a.txt", "a", 1), Attachment("b <i>.txt", "begin", 500)]
    with qtbot.waitSignal(composer.draftChanged):
        composer.set_attachments(files)
    first, second = composer.chips.chips
    assert first.size_text == "1 characters" or first.size_text == "1 character"
    second.set_tokens(3120)
    assert second.size_text == "beginning · 3.1k tokens"
    assert composer.action_button.isEnabled(), "a file alone can be sent"
    with qtbot.waitSignal(composer.sent) as sent:
        qtbot.mouseClick(composer.action_button, Qt.MouseButton.LeftButton)
    assert sent.args == [""]
    qtbot.mouseClick(first.cross, Qt.MouseButton.LeftButton)
    assert composer.attachments == (files[1],)
    assert composer.draft == Draft("", (files[1],))
    composer.clear()
    assert composer.attachments == ()
    assert composer.chips.isHidden()


def test_an_estimate_is_marked_as_one_and_a_full_meter_warns(composer):
    composer.set_context(3120, 8192, exact=False)
    assert composer.meter_text == "~3.1k of 8k tokens"
    assert not composer._meter.property("full")
    composer.set_context(8000, 8192)
    assert composer._meter.property("full")


def test_no_word_of_a_composer_is_cut_at_any_width(composer):
    composer.set_preset("A preset with a long name")
    composer.set_context(403, 8192)
    for width in range(760, 300, -10):
        composer.setFixedSize(width, 120)
        QApplication.processEvents()
        for tool in (composer.settings_button, composer.action_button):
            assert tool.width() >= tool.sizeHint().width(), width


@pytest.mark.parametrize("language", ["en", "ko"])
def test_what_waits_is_said_whole_at_any_width(qtbot, language):
    set_language(language)
    page = QWidget()
    qtbot.addWidget(page)
    composer = Composer()
    column = QVBoxLayout(page)
    column.addStretch()
    column.addWidget(composer)
    page.show()
    composer.set_preset("Recommended")
    composer.set_context(709, 8192, exact=False)
    composer.set_answering(True)
    composer.set_text("hello")
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    assert composer.hint
    over = set()
    for width in range(1200, 330, -15):
        page.resize(width, 400)
        QApplication.processEvents()
        said = next(part for part in composer.findChildren(QLabel) if part.isVisible() and part.text() == composer.hint)
        assert said.height() >= said.heightForWidth(said.width()), width
        over.add(said.y() + said.height() <= composer.action_button.y())
    assert over == {True, False}, "beside the tools only where there is room"
    page.resize(500, 400)
    composer.set_answering(False)
    composer.clear()
    QApplication.processEvents()
    assert not composer.hint
    assert not composer._hint_over.isVisible(), "no empty line stays"
    least = composer.minimumSizeHint().width()
    composer.set_answering(True, "x" * 400)
    assert composer.minimumSizeHint().width() == least, "a long word asks for no room"


def test_a_narrow_composer_leaves_out_the_words_of_its_buttons(composer):
    composer.set_preset("Balanced")
    assert composer.settings_button.text() == "Balanced"
    composer.resize(360, 120)
    composer.grab()
    assert composer.settings_button.text() == ""
    assert composer.settings_button.accessibleName() == "Chat settings: Balanced"
