"""An answer in the user's words: another version of it, for which no model is asked."""

from __future__ import annotations

import pytest
from chat_fakes import READY, ask
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton

from app.chat.storage.records import Draft
from app.host import HostState
from engine.errors import GreenroomError


@pytest.fixture
def answered(page, store):
    chat, _, _ = ask(store, "q", "<think>\nhm\n</think>\n\nA wrong answer")
    page.open_chat(chat)
    return page


def begin(page):
    page.message_actions.menu(page._messages[-1]).actions()[1].trigger()


def send(qtbot, page):
    (button,) = (b for b in page.composer.findChildren(QPushButton) if b.accessibleName().startswith(("Keep", "Send")))
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def test_the_users_words_are_another_version_and_the_old_one_stays(answered, store, host, qtbot):
    begin(answered)
    assert answered.composer.text == "A wrong answer", "what the model thought is not to be changed"
    answered.composer.set_text("A right answer")
    send(qtbot, answered)
    message = answered._messages[-1]
    assert message.text == "<think>\nhm\n</think>\n\nA right answer"
    assert (message.version, message.versions, message.stop_reason, message.model) == (2, 2, "edited", "demo")
    assert not message.cut_off
    assert host.asked == []
    assert not answered.composer.editing
    assert answered.notices.bars == []
    answered.message_actions.show_version(message, -1)
    assert answered._messages[-1].text.endswith("A wrong answer")


def test_the_next_question_is_asked_with_the_users_words(answered, host, qtbot):
    begin(answered)
    answered.composer.set_text("A right answer")
    send(qtbot, answered)
    answered.send("go on")
    assert [m.content for m in host.asked[-1][0] if m.role == "assistant"] == ["A right answer"]


def test_the_model_can_go_on_from_the_users_words(answered, host, qtbot):
    begin(answered)
    answered.composer.set_text("It begins so")
    send(qtbot, answered)
    answered.message_actions.continue_answer(answered._messages[-1])
    assert host.wished[-1][1].text == "It begins so"


@pytest.mark.parametrize("text", ["A wrong answer", "  A wrong answer\n"])
def test_what_was_not_changed_is_no_new_version(answered, qtbot, text):
    begin(answered)
    answered.composer.set_text(text)
    send(qtbot, answered)
    assert answered._messages[-1].versions == 1
    assert not answered.composer.editing


def test_no_model_is_needed(answered, host, qtbot):
    host.set_state(HostState())
    begin(answered)
    answered.composer.set_text("Without any")
    send(qtbot, answered)
    assert answered._messages[-1].text.endswith("Without any")
    host.set_state(READY)


def test_the_button_says_what_it_does(answered):
    assert answered.composer._button.text() == "Send"
    begin(answered)
    assert answered.composer._button.text() == "Keep"
    assert answered.composer._edit_said.text() == "Editing an answer. The old one stays as another version."
    answered.composer.cancel_edit()
    assert answered.composer._button.text() == "Send"
    answered._editing.begin(answered._messages[0])
    assert answered.composer._edit_said.text().startswith("Editing an earlier message.")
    assert answered.composer._button.text() == "Send"


def test_the_draft_waits(answered, store, qtbot):
    answered.composer.set_text("half a question")
    begin(answered)
    answered.composer.set_text("A right answer")
    send(qtbot, answered)
    assert answered.composer.text == "half a question"
    assert store.draft(answered.chat) == Draft("half a question")


def test_an_answer_that_is_being_written_cannot_be_changed(answered, host):
    begin(answered)
    answered.composer.set_text("mine")
    answered._controller.ask(answered.chat, "meanwhile")
    answered._editing.keep_answer("mine")
    assert answered.composer.editing, "nothing is lost"
    host.end("cancelled")


def test_a_failure_is_said_and_the_words_stay(answered, store, qtbot, monkeypatch):
    def fail(*values, **named):
        raise GreenroomError("The chat could not be saved", "another program is using the chat file", "Try again.")

    begin(answered)
    answered.composer.set_text("A right answer")
    monkeypatch.setattr(store, "add_message", fail)
    send(qtbot, answered)
    assert answered.banners.banners[-1].error.what == "The chat could not be saved"
    assert answered.composer.text == "A right answer"
