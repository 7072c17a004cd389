"""What the engine did without, and a device that broke down: told under the answer, kept with it, in any language."""

from __future__ import annotations

import pytest
from chat_fakes import READY, STATS
from PySide6.QtCore import Qt

from app.chat.message_view import AnswerView
from app.chat.stepped_down import SteppedDownLine
from app.chat.storage import columns
from app.chat.storage.store import ChatStore
from app.host import HostState
from app.language import set_language
from engine.errors import GreenroomError
from engine.words import joined, say

#: As the engine says it.
SHORT = say(
    "VRAM ran short in an answer: %n experts are left in it, so answers are slower.",
    n=12,
    one="VRAM ran short in an answer: %n expert is left in it, so answers are slower.",
)
BROKEN = GreenroomError(
    say("The answer was interrupted"),
    say("{name} has stopped working ({value})", name="cuda:0", value="an illegal memory access"),
    say("Greenroom will load the model again. If that fails, restart Greenroom."),
)


def line_under(page):
    return page.transcript.views[-1].findChild(SteppedDownLine)


def test_what_was_given_up_is_said_under_the_answer(page, host, qtbot):
    page.send("q")
    host.say("slowly")
    host.end(stepped_down=(SHORT,))
    line = line_under(page)
    assert line.isVisible()
    assert line.text() == (
        "VRAM ran short in an answer: 12 experts are left in it, so answers are slower. To restore full speed, "
        "close other programs that use the GPU and load the model again."
    )
    assert line.accessibleName() == line.text()
    assert line.focusPolicy() & Qt.FocusPolicy.TabFocus
    view = page.transcript.views[-1]
    assert line.height() >= line.heightForWidth(line.width())
    assert view.rect().contains(line.geometry())
    page.send("q")
    host.answer("as before")
    assert line_under(page) is None


def test_it_is_kept_and_read_in_another_language(page, host, store, qtbot):
    page.send("q")
    host.say("slowly")
    host.end(stepped_down=(SHORT,))
    again = ChatStore(store.path)
    message = again.messages(page.chat)[-1]
    assert (message.stats, message.stepped_down) == (STATS, (SHORT,))
    again.close()
    set_language("ko")
    view = AnswerView(message)
    qtbot.addWidget(view)
    assert view.findChild(SteppedDownLine).text() == (
        "답변 중 VRAM이 부족해져 전문가 12개만 남겼으며, 그만큼 답변이 느려집니다. 원래 속도로 되돌리려면 GPU를 "
        "쓰는 다른 프로그램을 닫고 모델을 다시 불러오세요."
    )


def test_an_answer_that_is_continued_keeps_what_its_beginning_did_without(page, host, store):
    page.send("q")
    host.say("half")
    host.end("length", stepped_down=(SHORT,))
    page.message_actions.continue_answer(store.messages(page.chat)[-1])
    host.say(" more")
    host.end("length", stepped_down=(SHORT, "Another."))
    assert store.messages(page.chat)[-1].stepped_down == (SHORT, "Another.")


def test_a_broken_device_leaves_the_answer_so_far_and_one_button_goes_on(page, host, store, qtbot):
    page.send("q")
    host.say("so far")
    host.end("error", STATS, BROKEN)
    host.set_state(HostState("loading", READY.model_name, READY.path, READY.plan))
    assert page.transcript.views[-1].body.text == "so far"
    assert page.notices.isHidden(), "nothing can be done before the model is back"
    host.set_state(READY)
    assert page.notices.text == "The answer was interrupted."
    assert [button.text() for button in page.notices.buttons] == ["Continue answer"]
    qtbot.mouseClick(page.notices.buttons[0], Qt.MouseButton.LeftButton)
    host.answer(", and on")
    message = store.messages(page.chat)[-1]
    assert (message.text, message.stop_reason, message.error) == ("so far, and on", "end", None)


def test_an_error_is_read_in_the_language_of_the_window(store):
    chat = store.create_chat("q")
    answer = store.add_message(chat, store.add_message(chat, None, "user", "q"), "assistant")
    store.finish(answer, "", None, "error", BROKEN)
    set_language("ko")
    view = AnswerView(ChatStore(store.path).messages(chat)[-1])
    name = view._error.accessibleName()
    assert name.startswith("답변이 중간에 끊겼습니다: cuda:0")
    assert "Greenroom이 모델을 자동으로 다시 불러옵니다." in name


@pytest.mark.parametrize(
    "text", ["plain", SHORT, say("{a} and {b:.1f}", a=SHORT, b=2.5), joined(", ", ["8", SHORT]), say("Nothing else.")]
)
def test_what_was_said_comes_back_with_its_parts(text):
    back = columns.unpacked(columns.packed(text))
    assert back == text
    assert getattr(back, "template", None) == getattr(text, "template", None)


@pytest.mark.parametrize(
    "damaged",
    [
        1,
        None,
        [],
        {},
        {"said": []},
        {"said": ["{x}", {"y": 1}]},
        {"said": ["{", {"a": 1}]},
        {"said": ["a", {}, 1, 2, 3, 4]},
    ],
)
def test_what_is_no_sentence_is_none(damaged):
    assert columns.unpacked(damaged) is None
