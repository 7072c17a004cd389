"""An answer in the user's words: another version of it, for which no model is asked."""

from __future__ import annotations

import pytest
from chat_fakes import READY, ask
from PySide6.QtCore import QMimeData, QPoint, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent
from PySide6.QtWidgets import QPushButton

from app import tasks
from app.chat.composing.attaching import LONG_PASTE
from app.chat.controller import ChatController
from app.chat.page import ChatPage
from app.chat.storage.presets import ChatSettings
from app.chat.storage.records import MOST_FILES, Attachment, Draft
from app.chat.storage.store import ChatStore
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
    (button,) = (b for b in page.composer.findChildren(QPushButton) if b.accessibleName().startswith(("Save", "Send")))
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
    assert answered.composer._button.text() == "Save"
    assert answered.composer._edit_said.text() == "Editing an answer. The old version is kept."
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
    monkeypatch.setattr(store, "add_path", fail)
    send(qtbot, answered)
    assert answered.banners.banners[-1].error.what == "The chat could not be saved"
    assert answered.composer.text == "A right answer"


def undo(page):
    (banner,) = (banner for banner in page.banners.banners if banner.key == "edit")
    next(b for b in banner.findChildren(QPushButton) if b.text() == "Undo").click()


def test_a_change_waits_while_another_chat_is_open(answered, store, qtbot):
    chat = answered.chat
    other, _, _ = ask(store, "another", "chat")
    answered.composer.set_text("half a question")
    begin(answered)
    answered.composer.set_text("Half an ans")
    answered.open_chat(other)
    assert (answered.composer.text, answered.composer.editing) == ("", False)
    answered.open_chat(chat)
    assert (answered.composer.text, answered.composer.editing) == ("Half an ans", True)
    assert answered.composer._button.text() == "Save"
    send(qtbot, answered)
    assert answered._messages[-1].text.endswith("Half an ans")
    assert answered._messages[-1].versions == 2
    assert store.draft(chat) == Draft("half a question") == answered.composer.draft


def test_a_change_waits_for_the_page_that_is_made_anew(host, store, qtbot):
    chat, question, _ = ask(store, "q", "a")
    controller = ChatController(host, store)
    page = ChatPage(host, store, controller=controller)
    page.show()
    page.open_chat(chat)
    page._editing.begin(page._messages[0])
    page.composer.set_text("q, bett")
    page.hide()
    page.deleteLater()
    again = ChatPage(host, store, controller=controller)
    qtbot.addWidget(again)
    again.open_chat(chat)
    assert (again.composer.text, again._editing.message.id) == ("q, bett", question)
    again.shutdown()


def test_a_change_outlives_the_program(answered, host, store, qtbot):
    chat = answered.chat
    begin(answered)
    answered.composer.set_text("Half an ans")
    answered.shutdown()
    again = ChatPage(host, ChatStore(store.path))
    qtbot.addWidget(again)
    again.open_chat(chat)
    assert (again.composer.text, again._editing.of_answer) == ("Half an ans", True)
    again.shutdown()


def test_a_change_of_a_message_that_is_gone_is_a_draft(answered, store):
    chat, files = answered.chat, [Attachment("a.txt", "a", 1)]
    answered.composer.set_text("waits")
    answered._editing.begin(answered._messages[0])
    answered.composer.set_draft(Draft("q, better", tuple(files)))
    answered.new_chat()
    store.delete_message(store.messages(chat)[0].id)
    answered.open_chat(chat)
    assert not answered.composer.editing
    assert answered.composer.draft == store.draft(chat) == Draft("waits\n\nq, better", tuple(files))


def test_what_was_given_up_can_be_had_back(answered, store, qtbot):
    chat = answered.chat
    begin(answered)
    answered.composer.set_text("Half an ans")
    qtbot.keyClick(answered.composer.field, Qt.Key.Key_Escape)
    assert (answered.composer.text, answered.composer.editing) == ("", False)
    assert store.draft(chat).empty
    answered.new_chat()
    undo(answered)
    assert (answered.chat, answered.composer.text, answered._editing.of_answer) == (chat, "Half an ans", True)
    # Nor does it vanish when another message is taken up instead; the same one is only gone on with.
    begin(answered)
    assert answered.composer.text == "Half an ans"
    answered._editing.begin(answered._messages[0])
    undo(answered)
    assert (answered.composer.text, answered._editing.of_answer) == ("Half an ans", True)


def test_giving_up_nothing_is_not_worth_a_word(answered):
    begin(answered)
    answered.composer.cancel_edit()
    assert answered.banners.banners == []


def test_the_draft_waits_while_a_question_is_put_otherwise(answered, host, store):
    answered.composer.set_text("half a question")
    answered._editing.begin(answered._messages[0])
    answered.composer.set_text("q, better")
    answered.send("q, better")
    host.answer("a")
    assert answered.composer.draft == store.draft(answered.chat) == Draft("half a question")
    assert not answered.composer.editing


def test_what_is_pasted_into_an_answer_is_part_of_it(answered, qtbot):
    long = QMimeData()
    long.setText("long " * LONG_PASTE)
    field = answered.composer.field
    begin(answered)
    field.insertFromMimeData(long)
    assert answered.composer.attachments == ()
    send(qtbot, answered)
    assert answered._messages[-1].text.endswith("A wrong answer" + ("long " * LONG_PASTE).rstrip())
    field.insertFromMimeData(long)
    assert len(answered.composer.attachments) == 1, "into a question it goes as a file"


def test_an_answer_takes_no_files(answered, store, tmp_path):
    (tmp_path / "a.txt").write_text("a")
    files = QMimeData()
    files.setUrls([QUrl.fromLocalFile(str(tmp_path / "a.txt"))])

    def offered():
        event = QDragEnterEvent(
            QPoint(5, 5), Qt.DropAction.CopyAction, files, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
        )
        event.ignore()
        answered.dragEnterEvent(event)
        button = answered.composer._attach
        return event.isAccepted(), not button.isHidden(), answered.composer.field.canInsertFromMimeData(files)

    assert offered() == (True, True, True)
    begin(answered)
    answered._drafting.add([Attachment("late.txt", "l", 1)])
    assert not any(offered())
    assert answered.composer.attachments == ()
    answered.composer.cancel_edit()
    assert offered() == (True, True, True)
    assert [a.name for a in answered.composer.attachments] == ["late.txt"], "it was on its way to the draft"


def test_what_follows_an_answer_follows_its_new_version_too(page, store, qtbot):
    chat, _, first = ask(store, "q1", "wrong")
    _, asked, second = ask(store, "q2", "a2", chat, first)
    store.set_chat_settings(chat, ChatSettings(start=asked, summary="s").to_plain())
    page.open_chat(chat)
    page._editing.begin(page._messages[1])
    page.composer.set_text("right")
    send(qtbot, page)
    assert [m.text for m in page._messages] == ["q1", "right", "q2", "a2"]
    assert page._messages[3].stats == store.portable(chat).messages[3].stats is not None
    assert page._controller.settings_of(chat).start == page._messages[2].id
    page.message_actions.show_version(page._messages[1], -1)
    assert [m.id for m in page._messages] == [page._messages[0].id, first, asked, second], "the old ones are as before"


def test_a_paste_without_end_into_an_answer_is_refused(answered, monkeypatch):
    monkeypatch.setattr("app.chat.composing.field.MOST_INSERT", 100)
    long = QMimeData()
    long.setText("x" * 101)
    begin(answered)
    before = answered.composer.text
    answered.composer.field.insertFromMimeData(long)
    assert answered.composer.text == before
    assert [banner.error.what for banner in answered.banners.banners] == ["The text was not pasted"]


def test_ten_thousand_dropped_files_are_not_all_read(answered, monkeypatch, tmp_path, qtbot):
    read = []

    def reads(path):
        read.append(path)
        return Attachment(path.name, path.name, 1)

    monkeypatch.setattr("app.chat.composing.drafting.read_text_file", reads)
    answered._drafting.attach([str(tmp_path / str(n)) for n in range(10_000)])
    tasks.finish()
    assert len(read) == MOST_FILES + 1
    assert len(answered.composer.attachments) == MOST_FILES
    assert [banner.error.what for banner in answered.banners.banners] == ["Not all files were attached"]
