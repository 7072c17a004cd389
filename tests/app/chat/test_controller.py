"""Answers belong to their message, whatever is shown, and are saved while they are written."""

from __future__ import annotations

import pytest
from chat_fakes import PLAN, STATS

from app.chat.controller import SUMMARY_QUESTION, ChatController, to_prompt
from app.chat.storage.presets import DEMO_USUAL, USUAL, ChatSettings, Sampling, params_of
from app.chat.storage.records import Attachment
from app.chat.storage.store import ChatStore
from app.host import HostState
from app.settings.store import Settings
from engine.errors import GreenroomError
from engine.runtime.events import Begun, GenerationStats, Message


@pytest.fixture
def controller(host, store):
    made = ChatController(host, store)
    yield made
    made.shutdown()


def texts(store, chat_id):
    return [message.text for message in store.messages(chat_id)]


def test_a_question_is_asked_with_what_was_said_before(controller, host, store):
    chat_id = controller.ask(None, "Who are you?")
    host.answer("A model.")
    controller.ask(chat_id, "Which?")
    messages, params = host.asked[-1]
    assert messages == [Message("user", "Who are you?"), Message("assistant", "A model."), Message("user", "Which?")]
    assert params == params_of(DEMO_USUAL)
    assert store.title(chat_id) == "Who are you?"
    assert store.messages(chat_id)[1].model == "Greenroom demo"


def test_other_models_are_sampled_without_a_penalty(controller, host):
    host.set_state(HostState("ready", "Qwen3-30B-A3B", "/models/qwen.gguf", PLAN))
    controller.ask(None, "q")
    params = host.asked[-1][1]
    assert params == params_of(USUAL)
    assert (params.temperature, params.top_p, params.repetition_penalty) == (0.7, 0.95, 1.0)


def test_a_finished_answer_is_saved_with_its_figures(controller, host, store):
    chat_id = controller.ask(None, "q")
    assert controller.stream is not None
    assert not controller.can_ask
    host.say("two ")
    host.say("words")
    host.end()
    answer = store.messages(chat_id)[-1]
    assert (answer.text, answer.stats, answer.stop_reason) == ("two words", STATS, "end")
    assert controller.stream is None
    assert controller.can_ask


def test_text_is_saved_while_it_is_written(controller, host, store, qtbot):
    chat_id = controller.ask(None, "q")
    host.say("half")
    qtbot.waitUntil(lambda: texts(store, chat_id) == ["q", "half"])
    assert store.messages(chat_id)[-1].stop_reason is None


def test_shutdown_saves_the_last_words(controller, host, store):
    chat_id = controller.ask(None, "q")
    host.say("last words")
    controller.shutdown()
    assert texts(store, chat_id)[-1] == "last words"
    host.say("too late")
    host.end()
    assert texts(store, chat_id)[-1] == "last words"


def test_an_engine_that_ends_without_text_keeps_what_was_streamed(controller, host, store):
    chat_id = controller.ask(None, "q")
    host.say("streamed")
    host._text = ""
    host.end("cancelled", GenerationStats())
    answer = store.messages(chat_id)[-1]
    assert (answer.text, answer.stats, answer.stop_reason) == ("streamed", STATS, "cancelled")


def test_an_answer_goes_to_its_own_chat(controller, host, store):
    other = controller.ask(None, "other")
    host.answer("done")
    chat_id = controller.ask(None, "q")
    store.add_message(other, store.messages(other)[-1].id, "user", "written meanwhile")
    host.answer("mine")
    assert texts(store, chat_id) == ["q", "mine"]
    assert texts(store, other) == ["other", "done", "written meanwhile"]


def test_regenerating_asks_the_same_and_keeps_the_old_answer(controller, host, store):
    chat_id = controller.ask(None, "q")
    host.answer("one")
    controller.regenerate(store.messages(chat_id)[-1])
    assert host.asked[-1][0] == [Message("user", "q")]
    host.answer("two")
    shown = store.messages(chat_id)[-1]
    assert (shown.text, shown.version, shown.versions) == ("two", 2, 2)
    store.show_version(shown.id, -1)
    assert texts(store, chat_id) == ["q", "one"]


def test_editing_a_question_makes_a_branch(controller, host, store):
    chat_id = controller.ask(None, "q1")
    host.answer("a1")
    controller.ask(chat_id, "q2")
    host.answer("a2")
    controller.edit(store.messages(chat_id)[2], "q2, better")
    assert host.asked[-1][0] == [Message("user", "q1"), Message("assistant", "a1"), Message("user", "q2, better")]
    host.answer("a3")
    assert texts(store, chat_id) == ["q1", "a1", "q2, better", "a3"]
    store.show_version(store.messages(chat_id)[2].id, -1)
    assert texts(store, chat_id) == ["q1", "a1", "q2", "a2"]


def test_thinking_is_timed_saved_and_not_sent_back(controller, host, store):
    chat_id = controller.ask(None, "q")
    host.say("", thought="h")
    assert controller.stream.text == "<think>\nh"
    host.say("", thought="m")
    host.answer("Paris.")
    answer = store.messages(chat_id)[-1]
    assert answer.text == "<think>\nhm\n</think>\n\nParis."
    assert answer.thought_s is not None
    controller.ask(chat_id, "sure?")
    assert host.asked[-1][0][1] == Message("assistant", "Paris.")


def test_an_answer_that_never_came_does_not_break_the_turns(controller, host, store):
    chat_id = controller.ask(None, "q1")
    host.end("error", GenerationStats(), GreenroomError("No", "because", "Try."))
    assert str(store.messages(chat_id)[-1].error) == "No: because. Try."
    controller.ask(chat_id, "q2")
    assert host.asked[-1][0] == [Message("user", "q1\n\nq2")]


def test_to_prompt_keeps_system_messages_and_order(store):
    chat_id = store.create_chat("x")
    system = store.add_message(chat_id, None, "system", "Be brief.")
    store.add_message(chat_id, system, "user", "q")
    assert to_prompt(store.messages(chat_id)) == [Message("system", "Be brief."), Message("user", "q")]


def test_deleting_the_chat_stops_its_answer(controller, host, store):
    chat_id = controller.ask(None, "q")
    store.delete(chat_id)
    assert host.stops == 1
    host.end("cancelled")
    store.restore(chat_id)
    assert len(store.messages(chat_id)) == 2


def test_a_busy_store_loses_no_text(host, tmp_path, monkeypatch, qtbot):
    store = ChatStore(tmp_path / "busy.sqlite3")
    controller = ChatController(host, store)
    chat_id = controller.ask(None, "q")

    def busy(*args):
        raise GreenroomError("The chat could not be saved", "busy", "Try again.")

    with monkeypatch.context() as context:
        context.setattr(store, "set_text", busy)
        host.say("one ")
        controller._flush()
    host.say("two")
    host.end()
    assert store.messages(chat_id)[-1].text == "one two"
    store.close()


def test_the_end_of_an_answer_is_saved_as_soon_as_the_file_is_free(controller, host, store, monkeypatch, qtbot):
    def busy(*args):
        raise GreenroomError("The chat could not be saved", "busy", "Try again.")

    controller._again.setInterval(1)
    chat = controller.ask(None, "q")
    with monkeypatch.context() as context:
        context.setattr(store, "_finish", busy)
        context.setattr(store, "set_text", busy)
        host.say("all of the words")
        with qtbot.waitSignal(controller.failed):
            host.end("length")
        controller._save_ends()
        assert store.messages(chat)[-1].stop_reason is None
        with pytest.raises(GreenroomError, match="busy"):
            controller.continue_answer(store.messages(chat)[-1])
    with qtbot.waitSignal(controller.streamEnded):
        pass
    message = store.messages(chat)[-1]
    assert (message.text, message.stop_reason) == ("all of the words", "length")
    assert not controller._again.isActive()


@pytest.mark.parametrize("by", ["shutdown", "continue"])
def test_what_waits_to_be_saved_is_saved_before_anything_is_made_of_it(controller, host, store, monkeypatch, by):
    def busy(*args):
        raise GreenroomError("The chat could not be saved", "busy", "Try again.")

    chat = controller.ask(None, "q")
    with monkeypatch.context() as context:
        context.setattr(store, "_finish", busy)
        host.say("half of")
        host.end("length")
    if by == "shutdown":
        controller.shutdown()
    else:
        controller.continue_answer(store.messages(chat)[-1])
        assert host.wished[-1] == (None, Begun("half of"))
        host.answer(" the words")
    assert store.messages(chat)[-1].text == ("half of" if by == "shutdown" else "half of the words")


def test_the_system_prompt_of_the_settings_comes_first(host, store):
    settings = [Settings()]
    controller = ChatController(host, store, lambda: settings[0])
    chat_id = controller.ask(None, "Who are you?")
    assert host.asked[-1][0] == [Message("user", "Who are you?")]
    host.answer("A model.")
    settings[0] = Settings(system_prompt="  Answer in Korean.\n", top_p=0.5)
    controller.ask(chat_id, "And now?")
    messages, params = host.asked[-1]
    assert messages[0] == Message("system", "Answer in Korean.")
    assert params.top_p == 0.5
    assert texts(store, chat_id)[0] == "Who are you?", "the system prompt is not a message of the chat"
    host.answer("예.")
    controller.shutdown()


def test_a_chat_has_settings_of_its_own(controller, host, store):
    host.set_state(HostState("ready", "Qwen3", "/m/q.gguf", PLAN, thinking=("off", "on")))
    controller.set_settings(None, ChatSettings(own=Sampling(seed=7, stop=("END",)), system="Be brief.", thinking="off"))
    chat_id = controller.ask(None, "q")
    messages, params = host.asked[-1]
    assert messages[0] == Message("system", "Be brief.")
    assert (params.seed, params.stop) == (7, ("END",))
    assert host.wished[-1] == ("off", Begun())
    host.answer("a")
    assert controller.settings_of(chat_id).own.seed == 7
    assert controller.settings_of(None) == ChatSettings(), "the next new chat starts afresh"
    controller.ask(None, "other")
    assert host.asked[-1][0] == [Message("user", "other")]
    host.answer("b")
    assert store.model_path(chat_id) == "/m/q.gguf"


def test_an_answer_that_was_cut_off_goes_on_where_it_ended(controller, host, store, qtbot):
    chat_id = controller.ask(None, "count")
    host.say("one two", thought="hm")
    host.end("length")
    cut = store.messages(chat_id)[-1]
    assert cut.cut_off
    controller.continue_answer(cut)
    assert host.asked[-1][0] == [Message("user", "count")]
    assert host.wished[-1] == (None, Begun("one two", "hm"))
    host.say(" three")
    assert controller.stream.text.endswith("one two three")
    controller._flush()
    assert store.messages(chat_id)[-1].text.endswith("one two three")
    assert store.unfinished() == (chat_id, cut.id), "a crash now would be noticed"
    host.end()
    whole = store.messages(chat_id)[-1]
    assert (whole.id, whole.versions, whole.stop_reason) == (cut.id, 1, "end")
    assert whole.text == "<think>\nhm\n</think>\n\none two three"
    assert whole.stats.completion_tokens == 2 * STATS.completion_tokens
    assert whole.thought_s == cut.thought_s


def test_a_thought_that_was_cut_off_goes_on_too(controller, host, store):
    chat_id = controller.ask(None, "count")
    host.say("", thought="one, ")
    host.end("length")
    cut = store.messages(chat_id)[-1]
    controller.continue_answer(cut)
    assert host.wished[-1] == (None, Begun("", "one,"))
    host.answer("Two.", " two")
    whole = store.messages(chat_id)[-1]
    assert whole.text == "<think>\none, two\n</think>\n\nTwo."
    assert whole.thought_s >= cut.thought_s


def test_files_go_before_their_question(controller, host, store):
    files = [Attachment('a"b.py', "print(1)\n", 9), Attachment("long.txt", "the beginning", 9000)]
    chat_id = controller.ask(None, "What is this?", files)
    assert host.asked[-1][0] == [
        Message(
            "user",
            '<file name="a\'b.py">\nprint(1)\n</file>\n\n'
            '<file name="long.txt" part="beginning">\nthe beginning\n</file>\n\nWhat is this?',
        )
    ]
    host.answer("a")
    question = store.messages(chat_id)[0]
    assert question.text == "What is this?"
    controller.edit(question, "And this?")
    host.answer("b")
    assert store.messages(chat_id)[0].attachments == tuple(files), "an edited question keeps its files"
    only = controller.ask(None, "", [files[0]])
    assert store.title(only) == 'a"b.py'
    host.answer("c")


def test_what_a_chat_has_left_behind_is_not_sent(controller, host, store):
    chat_id = controller.ask(None, "q1")
    host.answer("a1")
    controller.ask(chat_id, "q2")
    host.answer("a2")
    third = store.messages(chat_id)[2]
    controller.set_settings(chat_id, ChatSettings(start=third.id))
    controller.ask(chat_id, "q3")
    assert [m.content for m in host.asked[-1][0]] == ["q2", "a2", "q3"]
    host.answer("a3")
    controller.set_settings(chat_id, ChatSettings(start=third.id, summary="We spoke of q1."))
    controller.ask(chat_id, "q4")
    assert host.asked[-1][0][0] == Message("user", "(What was said before, in short: We spoke of q1.)\n\nq2")
    host.answer("a4")
    controller.set_settings(chat_id, ChatSettings(start=99_999, summary="of another version"))
    controller.ask(chat_id, "q5")
    assert host.asked[-1][0][0] == Message("user", "q1"), "that message is not on this path"
    host.answer("a5")


def test_the_beginning_of_a_chat_is_summarised(controller, host, store, qtbot):
    host.set_state(HostState("ready", "Qwen3", "/m/q.gguf", PLAN, thinking=("off", "on")))
    chat_id = controller.ask(None, "q1")
    host.answer("a1")
    controller.ask(chat_id, "q2")
    host.answer("a2")
    before = store.messages(chat_id)
    controller.summarise(chat_id, before[2].id)
    messages, params = host.asked[-1]
    assert [m.content for m in messages] == ["q1", "a1", SUMMARY_QUESTION]
    assert host.wished[-1] == ("off", None)
    assert params.max_tokens
    host.say("They spoke")
    controller._flush()
    with qtbot.waitSignal(controller.summarised):
        host.answer(" of one.")
    assert store.messages(chat_id) == before, "a summary is no message"
    chat = controller.settings_of(chat_id)
    assert (chat.start, chat.summary) == (before[2].id, "They spoke of one.")
    controller.summarise(chat_id, before[2].id)
    host.say("half")
    host.end("cancelled")
    assert controller.settings_of(chat_id) == chat
    with qtbot.waitSignal(controller.failed):
        controller.summarise(chat_id, before[2].id)
        host.end("error", error=GreenroomError("No", "because", "Try."))
