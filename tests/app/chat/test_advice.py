"""What a chat has to say about itself: after a crash, without its model, while another one is loaded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from chat_fakes import PLAN, READY
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QPushButton

from app.chat.composing.attachment_view import AttachmentView
from app.chat.page import ChatPage
from app.chat.storage.messages import CLOSED
from app.chat.storage.presets import ChatSettings
from app.host import HostState
from app.settings.store import Settings
from engine.placement.plan import PlanBytes
from engine.runtime.events import Begun

QWEN = HostState("ready", "Qwen3", "/m/q.gguf", replace(PLAN, bytes=PlanBytes({}, {}, 17_500_000_000, 0)))


@pytest.fixture
def make_page(qtbot, host, store):
    made = []

    def make(settings=Settings):
        page = ChatPage(host, store, settings)
        qtbot.addWidget(page)
        page.resize(900, 700)
        page.show()
        made.append(page)
        return page

    yield make
    for page in made:
        page.shutdown()


def choices(page):
    return [button.text() for button in page.notices.buttons]


def press(qtbot, page, place=0):
    qtbot.mouseClick(page.notices.buttons[place], Qt.MouseButton.LeftButton)


def cut_off(store, text="half an ans"):
    chat = store.create_chat("Count to a million")
    question = store.add_message(chat, None, "user", "Count to a million")
    answer = store.add_message(chat, question, "assistant", model="Qwen3")
    if text:
        store.set_text(answer, text)
    store.set_model_path(chat, "demo")
    return chat, answer


def test_after_a_crash_the_answer_can_be_continued(make_page, host, store, qtbot):
    chat, _ = cut_off(store)
    page = make_page()
    assert page.notices.text == "Greenroom closed while answering in “Count to a million”."
    press(qtbot, page)
    assert page.chat == chat
    assert page.notices.text == "This answer was cut off when Greenroom closed."
    assert choices(page) == ["Continue answer"]
    press(qtbot, page)
    assert host.wished[-1] == (None, Begun("half an ans"))
    assert page.notices.isHidden()
    host.answer("wer.")
    assert store.messages(chat)[-1].text == "half an answer."
    assert page.notices.isHidden()


def test_who_does_not_want_to_continue_is_asked_once(make_page, host, store, qtbot):
    chat, _ = cut_off(store)
    page = make_page()
    page._advice.close("crash")
    assert page.notices.isHidden()
    assert store.messages(chat)[-1].stop_reason == CLOSED
    again = make_page()
    assert again.notices.isHidden()
    again.open_chat(chat)
    assert again.notices.text == "This answer was cut off when Greenroom closed.", "the chat itself still offers it"
    assert choices(again) == ["Continue answer"]


def test_a_crash_without_a_loaded_model_offers_to_load_it(make_page, host, store, qtbot):
    chat, _ = cut_off(store)
    host.set_state(HostState())
    page = make_page()
    page.open_chat(chat)
    assert choices(page) == ["Load Demo model"]
    with qtbot.waitSignal(page.modelWanted) as wanted:
        press(qtbot, page)
    assert wanted.args == ["demo"]


def test_an_answer_before_its_first_word_offers_nothing_to_continue(make_page, store, qtbot):
    chat, _ = cut_off(store, "")
    page = make_page()
    press(qtbot, page)
    assert page.chat == chat
    assert choices(page) == []


def test_an_answer_being_written_is_no_crash(make_page, host, store):
    page = make_page()
    page.send("q")
    host.say("half")
    page._advice.refresh()
    assert page.notices.isHidden()
    host.end("cancelled")
    assert page.notices.isHidden(), "who stopped it knows"


def test_the_token_limit_offers_to_go_on(make_page, host, qtbot):
    page = make_page()
    page.send("q")
    host.say("half")
    host.end("length")
    assert page.notices.text == "The answer reached its token limit."
    press(qtbot, page)
    assert host.wished[-1] == (None, Begun("half"))
    host.answer(" more")
    assert page.notices.isHidden()


def test_all_there_is_to_say_is_said_in_order(make_page, host, qtbot, tmp_path):
    page = make_page()
    page.send("q")
    host.say("half")
    host.end("length")
    model = tmp_path / "Gemma-4.gguf"
    model.write_bytes(b"")
    page._store.set_model_path(page.chat, str(model))
    settings = ChatSettings(start=page._messages[1].id)
    page._controller.set_settings(page.chat, settings)
    assert page.notices.text.splitlines() == [
        "The answer reached its token limit.",
        "This chat was answered by Gemma-4. Loading it unloads Greenroom demo and frees 0 MB of RAM.",
        "The first message is not sent: “q” to “q”.",
    ]
    assert choices(page) == ["Continue answer", "Load Gemma-4", "Include them again"]
    qtbot.waitUntil(lambda: [bar.isVisible() for bar in page.notices.bars] == [True] * 3)
    first, second, third = page.notices.bars
    assert first.y() < second.y() < third.y()
    with qtbot.waitSignal(page.modelWanted) as wanted:
        press(qtbot, page, 1)
    assert wanted.args == [str(model)]
    assert page.notices.bars == [first, third], "the others stay as they are"
    qtbot.keyClick(third, Qt.Key.Key_Escape)
    assert page.notices.bars == [first]
    # What the user asks for comes first, and goes first.
    page._advice.full_context()
    assert page.notices.text.splitlines()[1:] == ["The answer reached its token limit."]
    assert page.notices.bars[0].text.startswith("Too long: 312 tokens")
    page._advice.fits_again()
    assert page.notices.bars == [first]


def test_notices_leave_the_conversation_room_and_the_first_is_seen_whole(make_page, host, qtbot, tmp_path):
    page = make_page()
    page.send("q")
    host.say("half")
    host.end("length")
    model = tmp_path / "Gemma-4.gguf"
    model.write_bytes(b"")
    page._store.set_model_path(page.chat, str(model))
    page.open_chat(page.chat)
    first, second = page.notices.bars
    qtbot.waitUntil(lambda: page.notices.height() >= first.height() + second.height())
    page.resize(700, 300)
    qtbot.waitUntil(lambda: page.notices.height() == max(page.height() // 3, first.height()))
    assert page.notices.verticalScrollBar().maximum() > 0
    # By keyboard they come one after the other, then the composer; what has the focus is in sight.
    page.activateWindow()
    first.buttons[0].setFocus()
    stops = [first.buttons[0]]
    for _ in range(3):
        qtbot.keyClick(stops[-1], Qt.Key.Key_Tab)
        stops.append(page.focusWidget())
        assert not stops[-1].visibleRegion().isEmpty()
    owners = [next((bar for bar in (first, second, page.composer) if bar.isAncestorOf(stop)), None) for stop in stops]
    assert owners == [first, second, second, page.composer]


def test_a_notice_that_offers_nothing_new_is_left_out(make_page, host, store):
    chat, _ = cut_off(store)
    host.set_state(HostState())
    page = make_page()
    page.open_chat(chat)
    assert page.notices.text == "This answer was cut off when Greenroom closed."
    page._advice.close(page.notices.bars[0].notice.key)
    assert page.notices.text == "This chat was answered by Demo model.", "unless the other is closed"


def test_a_chat_whose_model_file_is_gone(make_page, host, store, qtbot, tmp_path):
    page = make_page()
    page.send("q")
    host.answer("a")
    missing = tmp_path / "gone" / "Mixtral-8x7B.gguf"
    store.set_model_path(page.chat, str(missing))
    page.open_chat(page.chat)
    assert page.notices.text == f"This chat was answered by Mixtral-8x7B, but the model file is missing: {missing}"
    assert choices(page) == ["Continue with Greenroom demo"]
    press(qtbot, page)
    assert page.notices.isHidden()
    host.set_state(HostState())
    page._advice._closed.clear()
    page.open_chat(page.chat)
    assert choices(page) == ["Choose another model"]
    with qtbot.waitSignal(page.modelsWanted):
        press(qtbot, page)


def test_a_chat_of_another_model_says_what_loading_it_unloads(make_page, host, store, qtbot, tmp_path):
    file = tmp_path / "Gemma-4.gguf"
    file.write_bytes(b"x")
    host.set_state(QWEN)
    page = make_page()
    page.send("q")
    host.answer("a")
    store.set_model_path(page.chat, str(file))
    page.open_chat(page.chat)
    assert page.notices.text == (
        "This chat was answered by Gemma-4. Loading it unloads Qwen3 and frees 17.5 GB of RAM."
    )
    with qtbot.waitSignal(page.modelWanted) as wanted:
        press(qtbot, page)
    assert wanted.args == [str(file)]


def test_from_the_demo_to_a_real_model_nothing_is_said(make_page, host, store):
    page = make_page()
    page.send("q")
    host.answer("a")
    host.set_state(QWEN)
    assert page.notices.isHidden()
    host.set_state(HostState())
    assert choices(page) == ["Load Demo model"]


def test_while_a_model_makes_room_for_another_the_sum_is_shown(make_page, host):
    page = make_page()
    taken = replace(PLAN, bytes=PlanBytes({}, {"experts": 1}, 22_100_000_000, 4_000_000_000))
    host.set_state(HostState("loading", "Gemma-4", "/m/g.gguf", taken, unloads=("Qwen3", QWEN.plan)))
    assert page.notices.text == (
        "Unloading Qwen3 to free 17.5 GB of RAM. Gemma-4 takes 22.1 GB of RAM and 4.0 GB of VRAM."
    )
    host.set_state(READY)
    assert page.notices.isHidden()


def test_a_notice_about_one_chat_does_not_follow_to_the_next(make_page, host, store):
    page = make_page()
    page.send("q")
    host.say("half")
    host.end("length")
    assert not page.notices.isHidden()
    page.new_chat()
    assert page.notices.isHidden()


@pytest.mark.parametrize(
    ("offline", "said"),
    [
        (False, "Choose a model to begin."),
        (True, "Greenroom is set to work offline. Choose a model on this PC to begin"),
    ],
)
def test_without_a_model_there_is_a_button(make_page, host, qtbot, offline, said):
    host.set_state(HostState())
    page = make_page(lambda: Settings(offline=offline))
    assert said in page.welcome.detail
    with qtbot.waitSignal(page.modelsWanted):
        qtbot.mouseClick(page.welcome.models, Qt.MouseButton.LeftButton)
    with qtbot.waitSignal(page.fileWanted):
        qtbot.mouseClick(page.welcome.file, Qt.MouseButton.LeftButton)
    host.set_state(QWEN)
    assert page.welcome.models.isHidden()


def test_the_demo_leads_on_to_other_models(make_page, qtbot):
    page = make_page()
    bigger = page.welcome.findChildren(QPushButton)
    assert page.welcome.bigger in bigger
    with qtbot.waitSignal(page.modelsWanted):
        qtbot.mouseClick(page.welcome.bigger, Qt.MouseButton.LeftButton)


def test_a_long_summary_takes_little_room_and_can_be_read_whole(make_page, host, store, qtbot):
    page = make_page()
    page.send("q")
    host.answer("a")
    summary = "They spoke of the sea.\n\n" * 40
    page._controller.set_settings(page.chat, ChatSettings(start=store.messages(page.chat)[-1].id, summary=summary))
    page._advice.refresh()
    assert len(page.notices.text) < 260
    assert choices(page) == ["Include them again", "Read full summary"]
    press(qtbot, page, 1)
    shown = QApplication.activeModalWidget() or next(w for w in page.window().findChildren(AttachmentView))
    assert shown.text.toPlainText() == summary
    shown.close()
    assert choices(page) == ["Include them again", "Read full summary"]
