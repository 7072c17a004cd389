"""Messages as they stand on the page: thoughts, links, figures, copies, and chats longer than the window."""

from __future__ import annotations

from dataclasses import replace

from chat_fakes import STATS, fill
from on_page import click, last, stats_of
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QLabel, QPushButton

from app.chat.message_view import AnswerView, QuestionView
from app.chat.rendering.flow_view import FlowView
from app.widgets.labels import ElideLabel
from engine.runtime.events import GenerationStats


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
