"""The keyboard goes to the message field when what had it disappears."""

from __future__ import annotations

import pytest
from on_page import click, last
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QHBoxLayout, QLineEdit, QPushButton, QWidget
from shiboken6 import delete

from app.chat.lost_focus import LostFocus
from app.chat.message_view import Pager
from app.chat.rendering.rich_text import TextView


@pytest.fixture
def window(page, qtbot):
    """The page beside a menu's button, to which Qt goes after the last message."""
    made = QWidget()
    qtbot.addWidget(made)
    row = QHBoxLayout(made)
    row.addWidget(QPushButton("menu"))
    row.addWidget(page)
    made.resize(1000, 700)
    made.show()
    made.activateWindow()
    qtbot.waitUntil(made.isActiveWindow)
    yield made
    # The page is taken down by whoever made it.
    page.setParent(None)


@pytest.fixture
def talk(window, page, host):
    """A chat whose last answer has two versions."""
    for question in ("q1", "q2"):
        page.send(question)
        host.answer(f"answer to {question}")
    page.message_actions.regenerate(page._messages[-1])
    host.answer("another answer")
    return page


def focus(widget):
    widget.setFocus(Qt.FocusReason.TabFocusReason)
    assert widget.hasFocus()


def part_of(view, name):
    return view.findChild(QPushButton, name)


def written(page, qtbot):
    """What is in the message field once a word was typed wherever the keyboard is."""
    qtbot.keyClicks(QApplication.focusWidget(), "next")
    return page.composer.text


def regenerate(page, qtbot):
    click(qtbot, part_of(last(page), "regenerate"))


def choose(text, place=-1):
    def action(page, qtbot):
        menu = page.message_actions.menu(page._messages[place])
        next(entry for entry in menu.actions() if entry.text() == text).trigger()
        menu.close()

    return action


def older(page, qtbot):
    click(qtbot, last(page).findChild(Pager).findChild(QPushButton))


ACTIONS = {
    "regenerate": regenerate,
    "continue": choose("Continue answer"),
    "delete": choose("Delete"),
    "branch": choose("New chat from here"),
    "version": older,
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("where", ["text", "regenerate", "more", "pager"])
def test_after_an_action_on_an_answer_one_writes(talk, qtbot, action, where):
    view = last(talk)
    if where == "text":
        focus(view.body.findChildren(TextView)[-1])
    elif where == "pager":
        focus(view.findChild(Pager).findChild(QPushButton))
    else:
        focus(part_of(view, where))
    ACTIONS[action](talk, qtbot)
    assert written(talk, qtbot) == "next"


def test_after_the_first_message_was_deleted_one_writes(talk, qtbot):
    focus(part_of(last(talk), "more"))
    choose("Delete this and later messages", 0)(talk, qtbot)
    assert written(talk, qtbot) == "next"


def test_after_another_version_of_a_question_one_writes(talk, host, qtbot):
    talk._editing.begin(talk._messages[2])
    talk.send("q2 in other words")
    host.answer("yes")
    question = talk.transcript.views[-2]
    button = question.findChild(Pager).findChild(QPushButton)
    focus(button)
    qtbot.keyClick(button, Qt.Key.Key_Space)
    assert talk._messages[2].text == "q2"
    assert written(talk, qtbot) == "next"


def test_after_an_answer_was_stopped_with_the_button_one_writes(talk, host, qtbot):
    talk.send("q3")
    focus(talk.composer.action_button)
    qtbot.keyClick(talk.composer.action_button, Qt.Key.Key_Space)
    host.end("cancelled")
    assert written(talk, qtbot) == "next"


def test_an_answer_that_ends_unseen_leaves_the_keyboard_to_the_field(talk, host, qtbot):
    talk.send("q3")
    focus(talk.composer.action_button)
    other = QWidget()
    qtbot.addWidget(other)
    other.show()
    other.activateWindow()
    qtbot.waitUntil(other.isActiveWindow)
    host.end()
    assert talk.window().focusWidget() is talk.composer.field


@pytest.mark.parametrize("answer", [False, True])
def test_after_an_edit_was_given_up_with_its_button_one_writes(talk, qtbot, answer):
    talk._editing.begin(talk._messages[3 if answer else 2])
    cancel = next(b for b in talk.composer.findChildren(QPushButton) if b.accessibleName() == "Cancel editing")
    focus(cancel)
    qtbot.keyClick(cancel, Qt.Key.Key_Space)
    assert written(talk, qtbot) == "next"


@pytest.mark.parametrize("answer", [False, True])
def test_after_an_edit_was_saved_with_its_button_one_writes(talk, host, qtbot, answer):
    talk._editing.begin(talk._messages[3 if answer else 2])
    talk.composer.set_text("other words")
    focus(talk.composer.action_button)
    qtbot.keyClick(talk.composer.action_button, Qt.Key.Key_Space)
    if not answer:
        host.answer("yes")
    assert "other words" in [message.text for message in talk._messages]
    assert written(talk, qtbot) == "next"


def test_what_stays_keeps_the_keyboard(talk, host, qtbot):
    for _version in range(2):
        choose("Delete")(talk, qtbot)
    more = talk.transcript.views[-1]._more
    focus(more)
    choose("Answer this message")(talk, qtbot)
    host.answer("yes")
    assert talk._messages[-1].text == "yes"
    assert more.hasFocus()


def test_undoing_with_the_button_of_its_banner_leaves_one_writing(talk, qtbot):
    choose("Delete")(talk, qtbot)
    undo = next(b for b in talk.banners.findChildren(QPushButton) if b.text() == "Undo")
    focus(undo)
    qtbot.keyClick(undo, Qt.Key.Key_Space)
    assert len(talk._messages) == 4
    assert written(talk, qtbot) == "next"


def test_after_an_example_was_chosen_one_writes(window, page, qtbot):
    example = next(b for b in page.welcome.findChildren(QPushButton) if b.isVisible())
    focus(example)
    qtbot.keyClick(example, Qt.Key.Key_Space)
    assert len(page._messages) == 2
    assert written(page, qtbot) == "next"


def test_a_page_that_is_left_takes_the_keyboard_from_nobody(talk, qtbot):
    focus(part_of(last(talk), "more"))
    talk.hide()
    assert not talk.composer.field.hasFocus()


def test_a_page_that_is_destroyed_while_one_writes_raises_nothing(qtbot):
    with qtbot.captureExceptions() as raised:
        page = QWidget()
        field = QLineEdit(page)
        LostFocus(page, field)
        page.show()
        page.activateWindow()
        qtbot.waitUntil(page.isActiveWindow)
        focus(field)
        delete(page)
    assert not raised
