"""What can be done with one message, and what is kept of what is being written."""

from __future__ import annotations

from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent, QGuiApplication
from PySide6.QtWidgets import QPushButton

from app.chat.controller import ChatController
from app.chat.message_view import FiguresLabel
from app.chat.page import ChatPage
from app.chat.storage.exporting import to_markdown
from app.chat.storage.presets import ChatSettings
from app.chat.storage.records import Attachment, Draft
from app.chat.storage.store import ChatStore
from app.settings.store import Settings
from engine.runtime.events import Begun


def texts(page):
    return [message.text for message in page._messages]


def entry(menu, text):
    return next(action for action in menu.actions() if action.text() == text)


def talk(page, host, *questions):
    for question in questions:
        page.send(question)
        host.answer(f"answer to {question}")


def test_the_menu_of_an_answer(page, host, qtbot):
    talk(page, host, "q1", "q2")
    first, last = page.message_actions.menu(page._messages[1]), page.message_actions.menu(page._messages[3])
    assert not entry(first, "Continue answer").isEnabled(), "others follow it"
    assert entry(first, "Delete this and later messages").isEnabled()
    entry(last, "Continue answer").trigger()
    assert host.wished[-1] == (None, Begun("answer to q2"))
    during = page.message_actions.menu(page._messages[1])
    assert not entry(during, "Delete this and later messages").isEnabled(), "while the chat is answered"
    host.answer(" and more")
    assert texts(page)[-1] == "answer to q2 and more"
    for menu in (first, last, during):
        menu.close()


def test_copying(page, host):
    page.send("q")
    host.answer("Paris", "hm")
    question, answer = (page.message_actions.menu(message) for message in page._messages)
    entry(answer, "Copy answer").trigger()
    assert QGuiApplication.clipboard().text() == "Paris"
    entry(answer, "Copy raw text").trigger()
    assert QGuiApplication.clipboard().text() == "<think>\nhm\n</think>\n\nParis"
    entry(question, "Copy message").trigger()
    assert QGuiApplication.clipboard().text() == "q"
    question.close()
    answer.close()


def test_deleting_a_message_can_be_undone(page, host, qtbot):
    talk(page, host, "q1", "q2")
    menu = page.message_actions.menu(page._messages[2])
    entry(menu, "Delete this and later messages").trigger()
    assert texts(page) == ["q1", "answer to q1"]
    undo = next(b for b in page.banners.findChildren(QPushButton) if b.text() == "Undo")
    qtbot.mouseClick(undo, Qt.MouseButton.LeftButton)
    assert texts(page) == ["q1", "answer to q1", "q2", "answer to q2"]
    page.message_actions.delete(page._messages[0])
    assert page.welcome.isVisible()
    page.message_actions.undo_delete()
    assert len(texts(page)) == 4
    menu.close()


def test_the_dots_open_the_menu(page, host, qtbot, monkeypatch):
    talk(page, host, "q")
    opened = []
    monkeypatch.setattr(page.message_actions, "menu", lambda message: opened.append(message.text) or QMenuStub())
    more = page.transcript.views[-1].findChild(QPushButton, "more")
    qtbot.mouseClick(more, Qt.MouseButton.LeftButton)
    assert opened == ["answer to q"]


class QMenuStub:
    def popup(self, place):
        pass


def test_the_last_answer_is_asked_for_again(page, host):
    talk(page, host, "q")
    page.regenerate_last()
    assert len(host.asked) == 2
    host.answer("another")
    page.new_chat()
    page.regenerate_last()
    assert len(host.asked) == 2


def test_drafts_outlive_the_program(page, host, store, tmp_path, qtbot):
    talk(page, host, "q")
    chat = page.chat
    page.composer.set_draft(Draft("half a question", (Attachment("a.txt", "a", 1),)))
    qtbot.waitUntil(lambda: not store.draft(chat).empty)
    page.new_chat()
    page.composer.set_text("for a new chat")
    page.shutdown()
    again = ChatPage(host, ChatStore(store.path))
    qtbot.addWidget(again)
    assert again.composer.text == "for a new chat"
    again.open_chat(chat)
    assert again.composer.draft == Draft("half a question", (Attachment("a.txt", "a", 1),))
    again.send("done")
    assert again._store.draft(chat).empty
    host.answer("a")
    again.shutdown()


def test_a_change_of_an_earlier_message_is_no_draft(page, host, store):
    page.composer.set_attachments([Attachment("a.txt", "a", 1)])
    page.send("q")
    host.answer("a")
    page.composer.set_text("a draft")
    page._editing.begin(page._messages[0])
    assert [a.name for a in page.composer.attachments] == ["a.txt"]
    page.composer.set_text("q, better")
    page._drafting.save()
    assert store.draft(page.chat).text == "a draft"
    page.composer.cancel_edit()
    assert page.composer.draft == Draft("a draft")


def test_files_are_read_and_what_is_no_text_is_told(page, host, store, qtbot, tmp_path):
    good, bad = tmp_path / "notes.txt", tmp_path / "photo.png"
    good.write_text("some notes")
    bad.write_bytes(b"\x89PNG\r\n")
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(good))])
    drop = QDropEvent(
        QPointF(50, 50), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    )
    page.dropEvent(drop)
    qtbot.waitUntil(lambda: len(page.composer.attachments) == 1)
    page._drafting.attach([str(bad), str(good)])
    qtbot.waitUntil(lambda: bool(page.banners.banners))
    assert "photo.png was not attached" in str(page.banners.banners[0].error)
    assert len(page.composer.attachments) == 1, "the same file twice is one"
    page.composer.set_text("What is this?")
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    assert "some notes" in host.asked[-1][0][0].content
    host.answer("Notes.")
    bubble = page.transcript.views[0]
    assert [chip.attachment.name for chip in bubble._files.chips] == ["notes.txt"]
    assert bubble.height() > bubble._files.height() + bubble._text.height()
    assert store.messages(page.chat)[0].text == "What is this?"


def test_too_many_files_are_told(page, qtbot):
    page._drafting.add([Attachment(f"{n}.txt", str(n), 1) for n in range(25)])
    assert len(page.composer.attachments) == 20
    assert "Not all files were attached" in str(page.banners.banners[0].error)


def test_what_enter_does_follows_the_settings_page(host, store, qtbot):
    values = [Settings()]
    page = ChatPage(host, store, lambda: values[0])
    qtbot.addWidget(page)
    page.show()
    page.hide()
    values[0] = Settings(enter="newline")
    page.show()
    qtbot.keyClicks(page.composer.field, "one")
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    assert host.asked == []
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert host.asked
    host.answer("a")
    page.shutdown()


def test_what_is_written_stays_when_the_page_is_made_anew(host, store, qtbot):
    controller = ChatController(host, store)
    page = ChatPage(host, store, controller=controller)
    page.show()
    page.composer.set_text("half a thought")
    page.hide()
    page.deleteLater()
    again = ChatPage(host, store, controller=controller)
    qtbot.addWidget(again)
    assert again.composer.text == "half a thought"
    qtbot.wait(0)
    again.send("q")
    host.answer("a")
    assert [m.text for m in store.messages(again.chat)] == ["q", "a"]
    again.shutdown()


def test_a_new_chat_goes_on_from_a_message(page, host, store, qtbot):
    talk(page, host, "q1", "q2")
    page.message_actions.regenerate(page._messages[3])
    host.answer("otherwise")
    original = page.chat
    store.move(original, "Work")
    store.pin(original, True)
    page._controller.set_settings(original, ChatSettings(system="Be brief", start=page._messages[2].id, summary="s"))
    before = store.portable(original)
    entry(page.message_actions.menu(page._messages[1]), "New chat from here").trigger()
    assert page.chat != original
    assert (page.title, texts(page)) == ("Copy of q1", ["q1", "answer to q1"])
    assert store.folders() == ["Work"]
    settings = page._controller.settings_of(page.chat)
    assert (settings.system, settings.start, settings.summary) == ("Be brief", None, "")
    assert store.model_path(page.chat) == store.model_path(original) != ""
    assert store.portable(original) == before, "the original is as it was"
    talk(page, host, "q3")
    assert texts(page)[2:] == ["q3", "answer to q3"]
    # With what was left out of the prompt, where the copy has that too; of several versions the one that is seen.
    page.open_chat(original)
    page.message_actions.branch(page._messages[3])
    assert texts(page) == ["q1", "answer to q1", "q2", "otherwise"]
    assert page._controller.settings_of(page.chat).start == page._messages[2].id
    assert [message.versions for message in page._messages] == [1] * 4


def test_the_menu_says_which_model_has_answered(page, host, store):
    talk(page, host, "q")
    menu = page.message_actions.menu(page._messages[1])
    said = entry(menu, f"Answered by {page._messages[1].model}")
    assert not said.isEnabled()
    assert not any("Answered" in action.text() for action in page.message_actions.menu(page._messages[0]).actions())
    (figures,) = page.transcript.findChildren(FiguresLabel)
    assert figures.detail.endswith(f"Answered by {page._messages[1].model}")


def answer_button(page):
    return next((b for b in page.notices.buttons if b.text() == "Answer this message"), None)


def test_a_chat_that_ends_with_a_question_can_be_answered(page, host, store):
    talk(page, host, "q1", "q2")
    assert answer_button(page) is None
    entry(page.message_actions.menu(page._messages[2]), "New chat from here").trigger()
    assert page.composer.field.hasFocus()
    for way in (
        lambda: answer_button(page).click(),
        page.regenerate_last,
        lambda: entry(page.message_actions.menu(page._messages[-1]), "Answer this message").trigger(),
        lambda: answer_button(page).click(),
    ):
        assert texts(page) == ["q1", "answer to q1", "q2"]
        assert "This message has no answer yet." in page.notices.text
        way()
        assert host.asked[-1][0][-1].content == "q2"
        assert answer_button(page) is None
        host.answer("at last")
        assert texts(page)[-1] == "at last"
        page.message_actions.delete(page._messages[-1])


def test_who_has_changed_an_answer_is_named_with_the_model(page, host, store):
    talk(page, host, "q")
    page._controller.revise(page._messages[-1], "mine")
    page.open_chat(page.chat)
    model = page._messages[1].model
    assert entry(page.message_actions.menu(page._messages[1]), f"Answered by {model}, edited by you")
    figures = page.transcript.views[1].findChild(FiguresLabel)
    assert figures.detail == f"Answered by {model}, edited by you"
    assert f"## {model}, edited by you" in to_markdown([store.portable(page.chat)])


def test_copying_by_a_command_says_so(page, host, monkeypatch):
    said = []
    page.said.connect(said.append)
    page.copy_last()
    assert not page.copy_card()
    talk(page, host, "q")
    page.copy_last()
    monkeypatch.setattr(page._performance, "copy_card", lambda: True)
    assert page.copy_card()
    assert said == [
        "There is no answer to copy yet",
        "The answer was copied",
        "The benchmark card was copied",
    ]
