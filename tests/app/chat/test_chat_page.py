"""The chat page as its user lives with it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from chat_fakes import PLAN, READY, STATS, fill
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QLabel, QPushButton

from app.chat.flow_view import FlowView
from app.chat.message_view import AnswerView, QuestionView
from app.chat.store import ChatStore
from app.host import HostState
from app.theme import theme
from app.widgets.labels import ElideLabel
from engine.errors import GreenroomError
from engine.progress import Progress
from engine.runtime.events import GenerationStats


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
    host.end("error", STATS, GreenroomError("The answer broke off", "memory is full", "Close something."))
    texts = [label.text() for label in last(page).findChildren(QLabel)]
    assert "The answer broke off" in texts
    assert "Memory is full. Close something." in texts
    assert shown(page)[-1] == "half "


def test_the_answer_is_copied_without_its_thoughts(page, host, qtbot):
    page.send("q")
    host.say("Paris <b>!", thought="hm")
    host.end()
    copy = next(b for b in last(page).findChildren(QPushButton) if b.accessibleName() == "Copy answer")
    click(qtbot, copy)
    assert QGuiApplication.clipboard().text() == "Paris <b>!"


def test_thoughts_fold(page, host, qtbot):
    page.send("q")
    host.say("", thought="Let me see.")
    answer = last(page)
    assert answer.thought.toggle.text().startswith("▸ Thinking…")
    host.say("Paris.")
    host.end()
    assert answer.thought.toggle.text().startswith("▸ Thought for ")
    assert answer.body.text == "Paris."
    closed = answer.height()
    click(qtbot, answer.thought.toggle)
    assert answer.height() > closed
    assert answer.thought._body.text == "Let me see."
    click(qtbot, answer.thought.toggle)
    assert answer.height() == closed


def test_a_thought_that_was_cut_off_is_one(page, host):
    page.send("q")
    host.say("", thought="Let me")
    host.end("length")
    answer = last(page)
    assert answer.thought.toggle.text().startswith("▸ Thought for "), "nobody thinks any more"
    assert answer.body.isHidden()


def test_tags_in_an_answer_are_shown(page, host):
    page.send("How does a model think aloud?")
    host.answer("<think> opens and\n</think>\ncloses.")
    assert last(page).thought is None
    assert last(page).body.text == "<think> opens and\n</think>\ncloses."


def test_long_thoughts_open_in_slices(page, host, qtbot):
    thought = "\n\n".join(f"Thought {number} about `code`." for number in range(600))
    page.send("q")
    host.answer("Paris.", thought)
    answer = last(page)
    closed = answer.height()
    click(qtbot, answer.thought.toggle)
    qtbot.waitUntil(lambda: answer.thought._body.text == thought)
    assert answer.height() >= closed + answer.thought._body.height() > 600 * 20


def test_before_the_first_word_something_is_said(page, host):
    page.send("q")
    assert any(
        label.text() == "Reading your message…" and label.isVisible() for label in last(page).findChildren(QLabel)
    )
    host.say("x")
    assert not any(
        label.text() == "Reading your message…" and label.isVisible() for label in last(page).findChildren(QLabel)
    )


def test_a_link_asks_first(page, host, qtbot, monkeypatch):
    opened = []
    monkeypatch.setattr("app.chat.link_bar.QDesktopServices.openUrl", lambda url: opened.append(url.toString()))
    last_address = "https://example.org/a?b=c"
    page.transcript.linkChosen.emit(last_address)
    assert page.link_bar.isVisible()
    assert page.link_bar.address == last_address
    assert opened == []
    click(qtbot, page.link_bar.open_button)
    assert opened == [last_address]
    assert not page.link_bar.isVisible()
    page.transcript.linkChosen.emit("file:///etc/passwd")
    assert page.link_bar.isVisible()
    assert not page.link_bar.open_button.isVisible(), "a file is never opened from an answer"


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


class TestLongChats:
    def test_only_the_end_is_built_and_the_rest_on_scrolling_up(self, page, store, qtbot):
        page.open_chat(fill(store, 250))
        bar = page.transcript.verticalScrollBar()
        built = len(page.transcript.views)
        assert built < 60
        assert last(page).body.text.startswith("Answer 249.")
        assert bar.value() == bar.maximum()
        watched = page.transcript.views[0]
        bar.setValue(bar.minimum())
        assert len(page.transcript.views) > built
        place = watched.mapTo(page.transcript.viewport(), watched.rect().topLeft()).y()
        assert 0 <= place <= page.transcript.viewport().height(), "what was looked at has not moved away"

    def test_the_end_is_followed_unless_the_user_scrolled_up(self, page, host, store):
        page.open_chat(fill(store, 10))
        page.send("more")
        bar = page.transcript.verticalScrollBar()
        for number in range(40):
            host.say(f"Line {number}\n\n")
        assert bar.value() == bar.maximum()
        bar.setValue(bar.maximum() - 300)
        place = bar.value()
        for number in range(40):
            host.say(f"Line {number}\n\n")
        host.end()
        assert bar.value() == place
        assert page.transcript._jump.isVisible()
        page.transcript._jump.click()
        assert bar.value() == bar.maximum()
        assert not page.transcript._jump.isVisible()

    def test_resizing_keeps_the_end(self, page, store, qtbot):
        page.open_chat(fill(store, 20))
        page.resize(620, 500)
        bar = page.transcript.verticalScrollBar()
        qtbot.waitUntil(lambda: bar.value() == bar.maximum())
        assert all(view.width() <= page.transcript.viewport().width() for view in page.transcript.views)

    def test_a_narrow_page_cuts_nothing_off(self, page, host):
        page.resize(420, 500)
        QApplication.processEvents()
        page.send("averyverylongword" * 20)
        host.answer("anotherverylongword" * 20)
        QApplication.processEvents()
        for view in page.transcript.views:
            assert view.x() >= 0
            assert view.x() + view.width() <= page.transcript.viewport().width()
            for part in view.findChildren(FlowView):
                left = part.mapTo(view, part.rect().topLeft()).x()
                assert 0 <= left <= left + part.width() <= view.width()


def test_actions_stand_below_the_figures_where_both_have_no_room(page, host):
    page.send("q")
    host.answer("a")
    view = last(page)
    for width in (640, 150):
        view.set_width(width)
        QApplication.processEvents()
        stats, again = view.findChild(ElideLabel, "stats"), view.findChild(QPushButton, "regenerate")
        spots = [part.mapTo(view, QPoint()) for part in (stats, again)]
        assert (spots[0].y() + stats.height() <= spots[1].y()) == (width == 150)
        assert spots[1].y() + again.height() <= view.height()
        shortest = stats.shorter[-1]
        assert stats.fontMetrics().horizontalAdvance(shortest) <= stats.width()


def test_a_stopped_stream_without_figures(page, host):
    page.send("q")
    host.end("cancelled", GenerationStats())
    assert stats_of(last(page)) == "stopped by you"
    assert isinstance(last(page), AnswerView)


def test_messages_far_from_sight_give_their_widgets_back(page, store):
    page.open_chat(fill(store, 60))
    bar = page.transcript.verticalScrollBar()
    while bar.value() > 0:
        bar.setValue(bar.value() - 400)
    page.transcript.release_far()
    built = page.transcript.views
    assert built[0].message.text == "Question 0"
    assert len(built) < 60
    bar.setValue(bar.maximum())
    page.transcript.release_far()
    assert last(page).message.text.startswith("Answer 59")
    assert "Question 0" not in [view.message.text for view in page.transcript.views]


def test_the_place_stays_when_messages_are_built_again(page, store):
    """Rooms keep the height of another width until they are looked at."""
    page.open_chat(fill(store, 60, "word " * 150))
    bar = page.transcript.verticalScrollBar()
    while bar.value() > 0:
        bar.setValue(bar.value() - 400)
    bar.setValue(bar.maximum())
    page.transcript.release_far()
    page.resize(480, 700)
    QApplication.processEvents()
    while bar.value() > 0:
        before = {view: view.y() - bar.value() for view in page.transcript.views}
        step = min(200, bar.value())
        bar.setValue(bar.value() - step)
        moved = {view.y() - bar.value() - before[view] for view in page.transcript.views if view in before}
        assert moved == {step}
    assert page.transcript.views[0].message.text == "Question 0"


def test_a_selection_is_copied_by_the_keyboard(page, host, qtbot):
    page.send("q")
    host.answer("First **bold** paragraph.\n\n- one\n- two")
    text = last(page).findChild(FlowView)
    text.setFocus()
    text.selectAll()
    qtbot.keyClick(text, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "First bold paragraph.\n• one\n• two"


def test_copy_takes_the_whole_answer_as_markdown(page, host, qtbot):
    whole = "First **bold** paragraph.\n\n```python\nx = 1\n```\n\n- one"
    page.send("q")
    host.answer(whole)
    copy = next(b for b in last(page).findChildren(QPushButton) if b.accessibleName() == "Copy answer")
    click(qtbot, copy)
    assert QGuiApplication.clipboard().text() == whole


def test_a_short_window_scrolls_the_examples_instead_of_squeezing_them(page):
    page.resize(560, 300)
    page.grab()
    inner = page.welcome.widget()
    places = [example.geometry() for example in page.welcome.examples]
    assert all(above.bottom() < below.top() for above, below in pairwise(places))
    assert all(example.height() >= example.sizeHint().height() for example in page.welcome.examples)
    assert inner.height() > page.welcome.viewport().height()
    assert inner.width() == page.welcome.viewport().width()


def test_tab_scrolls_to_what_it_reaches(page, store):
    page.open_chat(fill(store, 10))
    bar = page.transcript.verticalScrollBar()
    assert bar.value() == bar.maximum() > 0
    edit = next(view.edit_button for view in page.transcript.views if isinstance(view, QuestionView))
    edit.setFocus(Qt.FocusReason.TabFocusReason)
    top = edit.mapTo(page.transcript.viewport(), edit.rect().topLeft()).y()
    assert 0 <= top <= page.transcript.viewport().height() - edit.height()


def test_a_message_far_above_is_gone_to_without_building_all_between(page, store, qtbot):
    chat = fill(store, 200)
    page.open_chat(chat)
    messages = store.messages(chat)
    page.transcript.go_to(messages[20].id)
    top = page.transcript.verticalScrollBar().value()
    shown_now = [v for v in page.transcript.views if v.y() >= top]
    assert shown_now[0].message.id == messages[20].id
    assert len(page.transcript.views) < 100
    page.transcript.go_to(-1)
    assert page.transcript.verticalScrollBar().value() == top


def test_the_figures_of_an_answer_open_beside_the_messages(page, host, qtbot):
    for tps in (11.0, 22.0):
        page.send("q")
        host.say("a", replace(STATS, decode_tps=tps))
        host.end(stats=replace(STATS, decode_tps=tps))
    first = next(view for view in page.transcript.views if isinstance(view, AnswerView))
    with qtbot.waitSignal(page.performanceShown):
        click(qtbot, first.findChild(QLabel, "stats"))
    assert page.performance.value("decode") == "11.0 tok/s"
    last(page).findChild(QLabel, "stats").setFocus()
    qtbot.keyClick(last(page).findChild(QLabel, "stats"), Qt.Key.Key_Return)
    assert page.performance.value("decode") == "22.0 tok/s"
    page.performance.closed.emit()
    assert page.performance is None
    assert not page.copy_card(), "the fake has no machine"


def test_the_keyboard_sees_where_it_is_on_the_figures(page, host):
    page.send("q")
    host.answer("a")
    figures = last(page).findChild(QLabel, "stats")
    before = figures.grab().toImage()
    page.activateWindow()
    figures.setFocus(Qt.FocusReason.TabFocusReason)
    assert figures.hasFocus()
    assert figures.grab().toImage() != before
