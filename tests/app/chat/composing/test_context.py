"""Counting what a chat takes, and the ways out when it takes too much."""

from __future__ import annotations

from dataclasses import replace

import pytest
from chat_fakes import PLAN, READY, STATS, ask
from PySide6.QtCore import Qt

from app.chat.storage.presets import ChatSettings
from app.chat.storage.records import Attachment
from app.engine_worker import ContextPlan
from app.host import HostState
from engine.placement.plan import PlanBytes
from engine.runtime.events import Message

QWEN = HostState("ready", "Qwen3", "/m/q.gguf", PLAN, limit=32768)


@pytest.fixture
def host(host):
    host.set_state(QWEN)
    return host


def count(page, host, tokens):
    """The engine counts what is asked of it now."""
    page._meter.count()
    host.counted("chat", tokens)


def answer_counts(host, tokens_of, template=0):
    """The engine counts beginnings until one is good. Gives what each took."""
    sent = {}
    while "beginning" in host.counts:
        message = host.counts["beginning"].prompt[-1].content
        taken = round(tokens_of(message)) + template
        sent[message.partition(">\n")[2].rpartition("\n</file>")[0].rstrip()] = taken
        host.counted("beginning", taken)
    return sent


def choices(page):
    return [button.text() for button in page.notices.buttons]


def press(page, qtbot, text):
    button = next(button for button in page.notices.buttons if button.text() == text)
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def talk(page, host, *questions):
    for question in questions:
        page.send(question)
        host.answer(f"answer to {question}")


def test_what_is_written_is_counted_with_the_chat(page, host, qtbot):
    talk(page, host, "q1")
    page.composer.set_text("a question that goes on")
    assert page.composer.meter_text.startswith("~"), "an estimate at once"
    qtbot.waitUntil(lambda: "chat" in host.counts)
    assert host.counts["chat"].prompt[-1] == Message("user", "a question that goes on")
    host.counted("chat", 777)
    assert page.composer.meter_text == "777 of 8k tokens"
    page.composer.set_text("")
    page.new_chat()
    assert page.composer.meter_text == ""


def test_a_count_of_what_was_written_before_is_not_taken_for_exact(page, host):
    page.composer.set_text("one")
    page._meter.count()
    old = dict(host.counts)
    page.composer.set_text("one two three four")
    host.counts = old
    host.counted("chat", 50)
    assert not page._meter.exact
    assert 50 <= page._meter.used < 60


def test_what_may_be_too_long_is_counted_before_it_is_sent(page, host, qtbot):
    talk(page, host, "q1 " * 200, "q2 " * 200)
    page.composer.set_text("word " * 12_000)
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    assert len(host.asked) == 2
    host.counted("chat", 5600)
    assert len(host.asked) == 3, "it fits after all"
    host.answer("a")
    page.new_chat()
    page.composer.set_text("word " * 12_000)
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    host.counted("chat", 9000)
    assert len(host.asked) == 3
    assert "Too long" in page.notices.text
    page.composer.set_text("word " * 11_000)
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    host.counted("chat", None)
    assert len(host.asked) == 4, "what cannot be counted is left to the engine"
    host.answer("b")


def test_a_model_that_cannot_count_leaves_the_estimate(page, host):
    page.composer.set_text("one two three")
    count(page, host, None)
    assert page.composer.meter_text.startswith("~")


def test_a_full_context_offers_ways_out_instead_of_sending(page, host, qtbot):
    talk(page, host, "q1 " * 200, "q2 " * 200, "q3 " * 200)
    page.composer.set_text("one more")
    count(page, host, 8190)
    asked = len(host.asked)
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    assert len(host.asked) == asked
    assert page.composer.text == "one more"
    told = "Too long: 8.2k tokens plus at least 32 for an answer exceed the 8k-token context."
    assert page.notices.text == told
    assert choices(page) == ["Leave out the oldest 4 messages", "Increase context…", "Summarise earlier messages"]
    press(page, qtbot, "Leave out the oldest 4 messages")
    assert "The first 4 messages are not sent: “q1 q1" in page.notices.text, "what is left out is shown"
    count(page, host, 3000)
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    sent = [m.content for m in host.asked[-1][0]]
    assert len(sent) == 3
    assert sent[0].startswith("q3")
    assert sent[-1] == "one more"
    host.answer("done")
    press(page, qtbot, "Include them again")
    assert page.notices.isHidden()
    talk(page, host, "q5")
    assert host.asked[-1][0][0].content.startswith("q1")


def test_the_beginning_is_kept_as_a_summary(page, host, qtbot):
    talk(page, host, "q1 " * 200, "q2 " * 200, "q3 " * 200)
    page.composer.set_text("one more")
    count(page, host, 8190)
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    press(page, qtbot, "Summarise earlier messages")
    assert "Stop" in page.composer.action_button.text()
    assert page.notices.text == "The model is summarising earlier messages…"
    host.answer("They spoke of q1 and q2.")
    assert "A summary is sent instead of the first 4 messages: They spoke of q1 and q2." in page.notices.text
    assert page.composer.text == "one more"
    count(page, host, 2000)
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    assert "They spoke of q1 and q2." in host.asked[-1][0][0].content
    host.answer("a")


def test_more_context_says_what_it_costs(page, host, qtbot):
    talk(page, host, "q1")
    page.composer.set_text("long")
    count(page, host, 9000)
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    assert choices(page) == ["Increase context…"], "a single question cannot be left out"
    press(page, qtbot, "Increase context…")
    assert host.planned == [16384]
    larger = replace(PLAN, context=16384, bytes=PlanBytes({}, {}, 18_900_000_000, 0))
    host.set_state(replace(QWEN, plan=replace(PLAN, bytes=PlanBytes({}, {}, 17_800_000_000, 0))))
    host.contextPlanned.emit(ContextPlan(16384, larger))
    assert page.notices.text == (
        "A context of 16k tokens needs 1.1 GB more memory (18.9 GB of RAM in total). The model will be loaded again."
    )
    press(page, qtbot, "Load with 16k tokens")
    assert host.loads == [("/m/q.gguf", 16384)]
    assert page.composer.text == "long"


def test_more_context_that_is_too_much_or_cannot_be_had(page, host, qtbot):
    page.composer.set_text("long")
    count(page, host, 9000)
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    press(page, qtbot, "Increase context…")
    host.contextPlanned.emit(ContextPlan(16384, replace(PLAN, mode="tight", label="Tight: needs 3 GB more free RAM")))
    assert "Tight: needs 3 GB more free RAM." in page.notices.text
    assert choices(page) == ["Load anyway"]
    page._advice.close("context")
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    press(page, qtbot, "Increase context…")
    host.contextPlanned.emit(ContextPlan(16384, None))
    assert "does not support" in page.notices.text
    host.set_state(replace(QWEN, limit=8192))
    page._advice.close("context")
    page.composer.set_text("long again")
    count(page, host, 9000)
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    assert choices(page) == [], "the model was made for no more"


def test_a_file_that_is_too_large_can_be_cut_or_left_out(page, host, qtbot):
    book = Attachment("book.txt", "a line of words\n" * 6000, 96_000)
    page._drafting.add([Attachment("small.txt", "few words", 9), book])
    host.counted("file small.txt", 3)
    host.counted("file book.txt", 24_000)
    assert [chip.size_text for chip in page.composer.chips.chips] == ["3 tokens", "24.0k tokens"]
    count(page, host, 24_100)
    assert page.notices.text == "book.txt has 24.0k tokens, but only 8.1k are free in this chat."
    assert choices(page) == ["Send only the beginning", "Increase context…", "Remove file"]
    assert not page.composer.action_button.isEnabled()
    press(page, qtbot, "Send only the beginning")
    assert page.notices.text == "Calculating…"
    answer_counts(host, lambda text: len(text) / 4)
    small, part = page.composer.attachments
    assert small.name == "small.txt"
    assert not part.whole
    assert 31_800 < len(part.text) < 32_700
    assert part.text.endswith("a line of words")
    count(page, host, 7800)
    assert page.notices.isHidden()
    assert page.composer.action_button.isEnabled()
    page.composer.set_attachments([book])
    count(page, host, 24_100)
    press(page, qtbot, "Remove file")
    assert page.composer.attachments == ()


def in_scripts(text):
    """Tokens as models have them: few for Latin letters, more than one for others."""
    return sum(0.2 if character < "\u0100" else 1.3 for character in text)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("template", [20, 2500])
def test_the_beginning_goes_up_to_where_the_context_ends(page, host, qtbot, order, template):
    """Whatever the chat's template takes, and where the file goes on in another script."""
    parts = ["plain words\n" * 2000, "다른 문자로 된 긴 문장이 이어진다\n" * 1600][::order]
    book = Attachment("book.txt", "".join(parts), sum(map(len, parts)))
    page.composer.set_text("What is it about?")
    page._drafting.add([book])
    size = round(in_scripts(book.text))
    host.counted("file book.txt", size)
    count(page, host, template + size + 12)
    press(page, qtbot, "Send only the beginning")
    sent = answer_counts(host, in_scripts, template)
    (part,) = page.composer.attachments
    assert not part.whole
    assert book.text.startswith(part.text)
    count(page, host, sent[part.text.rstrip()])
    assert page.notices.isHidden()
    assert page.composer.action_button.isEnabled()
    assert page._meter.room < 80, "characters are not all of one size, but nothing worth mentioning is left"
    assert len(sent) <= 10


def test_of_what_is_hopelessly_long_the_beginning_is_sent(page, host, qtbot):
    page._drafting.add([Attachment("library.txt", "words " * 100_000, 600_000)])
    page._meter.count()
    press(page, qtbot, "Send only the beginning")
    sent = answer_counts(host, lambda text: len(text) / 6)
    (part,) = page.composer.attachments
    assert PLAN.context - 100 < sent[part.text.rstrip()] <= PLAN.context - 32


def test_a_file_is_cut_by_estimate_where_nobody_can_count(page, host, qtbot):
    book = Attachment("book.txt", "a line of words\n" * 6000, 96_000)
    page._drafting.add([book])
    host.counted("file book.txt", 24_000)
    count(page, host, 24_100)
    press(page, qtbot, "Send only the beginning")
    host.counted("beginning", None)
    (part,) = page.composer.attachments
    assert 29_000 < len(part.text) < 32_000


def test_a_file_that_was_taken_away_meanwhile_stays_away(page, host, qtbot):
    book = Attachment("book.txt", "a line of words\n" * 6000, 96_000)
    page._drafting.add([book])
    host.counted("file book.txt", 24_000)
    count(page, host, 24_100)
    press(page, qtbot, "Send only the beginning")
    count(page, host, 24_100)
    assert page.notices.text == "Calculating…"
    page.composer.set_attachments([])
    assert page.notices.isHidden()
    host.counted("beginning", 8000)
    assert page.composer.attachments == ()


def test_what_is_hopelessly_long_is_not_counted(page, host, qtbot):
    page._drafting.add([Attachment("library.txt", "words " * 100_000, 600_000)])
    page._meter.count()
    assert host.counts == {}
    assert "library.txt has ~180.0k tokens" in page.notices.text
    qtbot.keyClick(page.composer.field, Qt.Key.Key_Return)
    assert host.asked == []


def test_a_full_answer_offers_room(page, host, qtbot):
    talk(page, host, "q1", "q2")
    page.send("q3")
    host.say("and so on", replace(STATS, prompt_tokens=8000, completion_tokens=192))
    host.end("context", replace(STATS, prompt_tokens=8000, completion_tokens=192))
    assert page.notices.text == "The context is full: 8k tokens."
    assert choices(page)[0] == "Leave out the oldest 4 messages"


def test_a_full_answer_is_opened_while_no_model_is_loaded(page, host, store):
    chat, _, answer = ask(store, "q", "a")
    store.finish(answer, "and so on", replace(STATS, prompt_tokens=8000, completion_tokens=192), "context")
    for kind in ("empty", "loading"):
        host.set_state(HostState(kind, "Qwen", "/m/q.gguf"))
        page.open_chat(chat)
        assert "The context is full" in page.notices.text
        assert "Increase context…" not in choices(page)
    assert "New chat" in choices(page), "there is always a way on"
    next(button for button in page.notices.buttons if button.text() == "New chat").click()
    assert page.chat is None


def test_settings_of_another_branch_leave_nothing_out(page, host, store):
    talk(page, host, "q1", "q2")
    page._controller.set_settings(page.chat, ChatSettings(start=99_999))
    assert page.notices.isHidden()


def test_without_a_model_nothing_is_counted(page, host):
    host.set_state(HostState())
    page.composer.set_text("hello")
    page._meter.count()
    assert host.counts == {}
    assert page.composer.meter_text == ""
    host.set_state(READY)
    page._meter.count()
    assert "chat" in host.counts


def test_a_file_that_is_far_too_large_says_its_tokens_all_the_same(page, host):
    """By estimate: nobody knows what a number of characters is to a model."""
    text = "word " * 40_000
    page.composer.set_attachments([Attachment("long.txt", text, len(text))])
    assert page.composer.chips.chips[0].size_text == "~60.0k tokens"
    assert not any(key.startswith("file") for key in host.counts), "and keeps nobody busy"
    host.set_state(HostState("empty"))
    page._drafting.count_anew()
    assert page.composer.chips.chips[0].size_text.endswith(" characters")


def test_a_long_paste_takes_away_what_was_wrong_before(page):
    page.composer.pictureGiven.emit()
    assert page.banners.banners
    page.composer.pasteWanted.emit("word " * 3000)
    assert not page.banners.banners
