"""Answers belong to their message, whatever is shown, and are saved while they are written."""

from __future__ import annotations

import pytest
from chat_fakes import PLAN, STATS

from app.chat.controller import DEMO_SAMPLING, SAMPLING, ChatController, sampling, to_prompt
from app.chat.store import ChatStore
from app.host import HostState
from app.settings.store import Settings
from engine.errors import GreenroomError
from engine.runtime.events import GenerationStats, Message


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
    assert params == DEMO_SAMPLING
    assert store.title(chat_id) == "Who are you?"
    assert store.messages(chat_id)[1].model == "Greenroom demo"


def test_other_models_are_sampled_without_a_penalty(controller, host):
    host.set_state(HostState("ready", "Qwen3-30B-A3B", "/models/qwen.gguf", PLAN))
    controller.ask(None, "q")
    params = host.asked[-1][1]
    assert params == SAMPLING
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
    qtbot.waitUntil(lambda: texts(store, chat_id) == ["q", "half"], timeout=5000)
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
    host.say("<think>hm")
    host.answer("</think>\n\nParis.")
    answer = store.messages(chat_id)[-1]
    assert answer.text == "<think>hm</think>\n\nParis."
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


def test_the_demo_keeps_its_own_sampling_but_for_what_the_user_chose():
    assert sampling(Settings(), demo=True) == DEMO_SAMPLING
    assert sampling(Settings(), demo=False) == SAMPLING
    warm = sampling(Settings(temperature=0.0, max_tokens=256), demo=True)
    assert (warm.temperature, warm.max_tokens) == (0.0, 256)
    assert warm.repetition_penalty == DEMO_SAMPLING.repetition_penalty


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
