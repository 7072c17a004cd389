"""A host without an engine, whose answers the test writes itself."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from app.engine_worker import CountRequest, TokenCount
from app.host import DEMO, AnswerDelta, AnswerResult, HostState
from engine.placement.plan import OffloadPlan, PlanBytes, Prediction, Range
from engine.runtime.events import GenerationStats

PLAN = OffloadPlan(
    mode="cpu",
    label="On the CPU",
    device="cpu",
    context=8192,
    threads=2,
    dense_dtype="quantised",
    kv_type="f16",
    experts="stored",
    isa=None,
    bytes=PlanBytes({}, {}, 0, 0),
    prediction=Prediction(Range(1, 2, 3), Range(1, 2, 3), ""),
    explanation=[],
)
READY = HostState("ready", "Greenroom demo", DEMO, PLAN, kernel="int4")
STATS = GenerationStats(prompt_tokens=67, completion_tokens=245, first_token_s=0.8, prefill_tps=80.0, decode_tps=12.4)


class FakeHost(QObject):
    """Like EngineHost as far as the chat is concerned."""

    stateChanged = Signal(object)
    answerEvent = Signal(object)
    answerFinished = Signal(object)
    tokensCounted = Signal(object)
    contextPlanned = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.state = READY
        #: (messages, params) of every `generate`
        self.asked = []
        #: (thinking, begun) of every `generate`
        self.wished = []
        #: by key, what was last to be counted
        self.counts = {}
        self.planned = []
        self.loads = []
        self.stops = 0
        self._text = self._thought = ""

    def set_state(self, state):
        self.state = state
        self.stateChanged.emit(state)

    def generate(self, messages, params, thinking=None, begun=None):
        assert self.state.kind == "ready"
        self.asked.append((messages, params))
        self.wished.append((thinking, begun))
        self._text = self._thought = ""
        self.set_state(replace(self.state, kind="generating"))

    def count(self, key, prompt, thinking=None):
        self.counts[key] = CountRequest(key, prompt, thinking)

    def counted(self, key, tokens):
        """The engine has counted what was asked for last under that key."""
        self.tokensCounted.emit(TokenCount(self.counts.pop(key), tokens))

    def plan_context(self, context):
        self.planned.append(context)

    def load(self, path, force=False, context=None, **wishes):
        self.loads.append((path, context))

    def status(self):
        return None

    def stop(self):
        self.stops += 1

    def say(self, text, stats=STATS, thought=""):
        self._text += text
        self._thought += thought
        self.answerEvent.emit(AnswerDelta(text, stats, thought=thought))

    def end(self, reason="end", stats=STATS, error=None, stepped_down=()):
        self.set_state(replace(self.state, kind="ready"))
        self.answerFinished.emit(AnswerResult(self._text, stats, reason, error, self._thought, stepped_down))

    def answer(self, text, thought=""):
        self.say(text, thought=thought)
        self.end()


def ask(store, question, answer, chat_id=None, parent_id=None):
    """One finished exchange. Returns (chat, question, answer) ids."""
    chat_id = store.create_chat(question) if chat_id is None else chat_id
    question_id = store.add_message(chat_id, parent_id, "user", question)
    answer_id = store.add_message(chat_id, question_id, "assistant", model="demo")
    store.finish(answer_id, answer, GenerationStats(prompt_tokens=3, completion_tokens=5, decode_tps=12.5), "end")
    return chat_id, question_id, answer_id


def fill(store, count, answer="An answer with **bold** text and `code`.\n\n- one\n- two"):
    """A chat of `count` questions and answers. Returns its id."""
    chat_id, parent = store.create_chat("Question 0"), None
    for number in range(count):
        parent = store.add_message(chat_id, parent, "user", f"Question {number}")
        parent = store.add_message(chat_id, parent, "assistant", model="demo")
        store.finish(parent, f"Answer {number}. {answer}", STATS, "end")
    return chat_id
