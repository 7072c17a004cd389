"""The chat page as its user lives with it."""

from __future__ import annotations

from itertools import pairwise

from chat_fakes import PLAN, READY, STATS
from on_page import click, last, shown, stats_of, type_and_send
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLabel, QPushButton

from app.chat.storage.store import ChatStore
from app.host import HostState
from app.theme import theme
from engine.errors import GreenroomError
from engine.progress import Progress


def test_a_question_is_typed_answered_and_measured(page, host, qtbot):
    assert page.welcome.isVisible()
    with qtbot.waitSignals([page.chatChanged, page.titleChanged]):
        type_and_send(qtbot, page, "What is the capital of France?")
    assert page.title == "What is the capital of France?"
    assert page.composer.text == ""
    assert not page.welcome.isVisible()
    host.say("The capital")
    assert shown(page) == ["What is the capital of France?", "The capital"]
    assert "Stop" in page.composer.action_button.text()
    host.say(" is **Paris**.")
    host.end()
    assert shown(page)[-1] == "The capital is **Paris**."
    assert stats_of(last(page)) == (
        "12.4 tok/s (predicted 1.0 to 3.0) · 245 tokens · first token 0.8 s · stopped: end of text"
    )
    assert page.composer.meter_text == "312 of 8k tokens"
    assert page.composer.action_button.text() == "Send"


def test_escape_stops(page, host, qtbot):
    page.send("q")
    host.say("half")
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Escape)
    assert host.stops == 1
    host.end("cancelled")
    assert stats_of(last(page)).endswith("stopped by you")


def test_switching_chats_while_an_answer_streams(page, host, store, qtbot):
    page.send("first question")
    first = page.chat
    host.say("one ")
    page.new_chat()
    assert page.welcome.isVisible()
    host.say("two ")
    assert page.welcome.isVisible(), "the other chat's text does not show here"
    assert "Stop" in page.composer.action_button.text(), "there is one engine: what it writes can be stopped from here"
    page.open_chat(first)
    assert shown(page) == ["first question", "one two "]
    host.say("three")
    qtbot.waitUntil(lambda: shown(page)[-1] == "one two three")
    page.new_chat()
    host.end()
    page.open_chat(first)
    assert shown(page) == ["first question", "one two three"]
    assert stats_of(last(page)).endswith("stopped: end of text")
    assert [m.text for m in store.messages(first)] == ["first question", "one two three"]


def test_a_chat_says_where_an_answer_is_being_written(page, host, qtbot):
    page.send("first question")
    first = page.chat
    assert page.composer.hint == ""
    with qtbot.waitSignal(page.answeringChanged) as marked:
        page.new_chat()
    assert marked.args == [first]
    assert page.composer.hint == "Answering in “first question”"
    with qtbot.waitSignal(page.answeringChanged) as marked:
        host.answer("done")
    assert marked.args == [0]
    assert page.composer.hint == ""


def test_a_question_sent_too_early_follows_the_answer(page, host, qtbot):
    page.send("first")
    page.composer.set_text("second")
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    assert "after this answer" in page.composer.hint
    host.answer("one")
    qtbot.waitUntil(lambda: len(host.asked) == 2)
    host.answer("two")
    assert shown(page) == ["first", "one", "second", "two"]
    assert page.composer.text == ""


def test_stopping_an_answer_does_not_start_the_next(page, host, qtbot):
    page.send("first")
    page.composer.set_text("second")
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    host.say("half")
    host.end("cancelled")
    with qtbot.assertNotEmitted(page.composer.sent, wait=0):
        QApplication.processEvents()
    assert page.composer.text == "second"
    assert page.composer.action_button.isEnabled()


def test_regenerate_pages_between_versions(page, host, qtbot):
    page.send("q")
    host.answer("one")
    click(qtbot, last(page).findChild(QPushButton, "regenerate"))
    host.answer("two")
    assert shown(page) == ["q", "two"]
    assert "2/2" in [label.text() for label in last(page).findChildren(QLabel)]
    older = next(b for b in last(page).findChildren(QPushButton) if b.accessibleName() == "Previous version")
    click(qtbot, older)
    assert shown(page) == ["q", "one"]
    newer = next(b for b in last(page).findChildren(QPushButton) if b.accessibleName() == "Next version")
    click(qtbot, newer)
    assert shown(page) == ["q", "two"]


def test_editing_a_question_branches_and_keeps_the_draft(page, host, qtbot):
    page.send("q")
    host.answer("a")
    page.composer.set_text("a draft")
    click(qtbot, page.transcript.views[0].edit_button)
    assert page.composer.text == "q"
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Escape)
    assert page.composer.text == "a draft"
    click(qtbot, page.transcript.views[0].edit_button)
    page.composer.set_text("q, better")
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    host.answer("b")
    assert shown(page) == ["q, better", "b"]
    older = next(b for b in page.transcript.views[0].findChildren(QPushButton) if "Previous" in b.accessibleName())
    click(qtbot, older)
    assert shown(page) == ["q", "a"]


def test_drafts_stay_with_their_chat(page, host):
    page.send("q")
    host.answer("a")
    first = page.chat
    page.composer.set_text("for the first")
    page.new_chat()
    assert page.composer.text == ""
    page.composer.set_text("for a new one")
    page.open_chat(first)
    assert page.composer.text == "for the first"
    page.new_chat()
    assert page.composer.text == "for a new one"


def test_an_error_is_told_in_its_place(page, host):
    page.send("q")
    host.say("half ")
    host.end("error", STATS, GreenroomError("The answer was interrupted", "memory is full", "Close something."))
    texts = [label.text() for label in last(page).findChildren(QLabel)]
    assert "The answer was interrupted" in texts
    assert "Memory is full. Close something." in texts
    assert shown(page)[-1] == "half "


def test_before_the_first_word_something_is_said(page, host):
    page.send("q")
    assert any(
        label.text() == "Reading your message…" and label.isVisible() for label in last(page).findChildren(QLabel)
    )
    host.say("x")
    assert not any(
        label.text() == "Reading your message…" and label.isVisible() for label in last(page).findChildren(QLabel)
    )


def test_states_of_the_model(page, host):
    assert page.welcome.demo_note_shown
    host.set_state(HostState("loading", "Greenroom demo", "demo", PLAN, Progress(43, 100, "x")))
    assert page.composer.hint == "Loading Greenroom demo… 43 %"
    page.send("too early")
    assert host.asked == []
    host.set_state(HostState("ready", "Qwen", "/m.gguf", PLAN))
    assert not page.welcome.demo_note_shown
    assert page.composer.field.placeholderText() == "Message Qwen"
    assert "Qwen is ready" in page.welcome.detail


def test_examples_are_sent_or_wait_for_the_model(page, host, qtbot):
    host.set_state(HostState())
    click(qtbot, page.welcome.examples[0])
    assert page.composer.text == "What is the capital of France?"
    assert host.asked == []
    host.set_state(READY)
    click(qtbot, page.welcome.examples[1])
    assert len(host.asked) == 1


def test_deleting_the_open_chat_opens_a_new_one(page, host, store):
    page.send("q")
    host.answer("a")
    store.delete(page.chat)
    assert page.chat is None
    assert page.welcome.isVisible()
    assert page.title == "New chat"


def test_renaming_the_open_chat_shows(page, host, store, qtbot):
    page.send("q")
    host.answer("a")
    with qtbot.waitSignal(page.titleChanged) as changed:
        store.rename(page.chat, "Better")
    assert changed.args == ["Better"]


def test_a_chat_that_is_gone_opens_as_a_new_one(page):
    page.open_chat(12345)
    assert page.chat is None
    assert page.welcome.isVisible()


def test_an_answer_cut_off_by_a_crash_is_told(page, store):
    chat = store.create_chat("q")
    store.set_text(store.add_message(chat, store.add_message(chat, None, "user", "q"), "assistant"), "half an")
    page.open_chat(chat)
    assert shown(page) == ["q", "half an"]
    assert stats_of(last(page)) == "stopped: Greenroom was closed"


def test_the_theme_changes_under_a_streaming_answer(page, host):
    page.send("q")
    host.say("some `code` and\n\n```py\nx = 1\n")
    theme().set_mode("dark")
    host.say("y = 2\n```\n\ndone")
    host.end()
    assert shown(page)[-1] == "some `code` and\n\n```py\nx = 1\ny = 2\n```\n\ndone"
    assert page.transcript.views[-1].body.leaves[1].text == "x = 1\ny = 2"


def test_shutdown_saves_and_closes(page, host, store):
    page.send("q")
    host.say("unfinished")
    chat = page.chat
    page.shutdown()
    again = ChatStore(store.path)
    assert [m.text for m in again.messages(chat)] == ["q", "unfinished"]
    again.close()


def test_a_message_written_while_the_store_fails_is_not_lost(page, host, store, monkeypatch, qtbot):
    def fail(*args, **kwargs):
        raise GreenroomError("The chat could not be saved", "another program is using it", "Try again.")

    monkeypatch.setattr(store, "create_chat", fail)
    type_and_send(qtbot, page, "precious words")
    assert page.composer.text == "precious words"
    assert [banner.error.what for banner in page.banners.banners] == ["The chat could not be saved"]
    assert host.asked == []


def test_a_short_window_scrolls_the_examples_instead_of_squeezing_them(page):
    page.resize(560, 300)
    page.grab()
    inner = page.welcome.widget()
    places = [example.geometry() for example in page.welcome.examples]
    assert all(above.bottom() < below.top() for above, below in pairwise(places))
    assert all(example.height() >= example.sizeHint().height() for example in page.welcome.examples)
    assert inner.height() > page.welcome.viewport().height()
    assert inner.width() == page.welcome.viewport().width()
