"""A host without an engine, whose answers the test writes itself."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

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

    def __init__(self) -> None:
        super().__init__()
        self.state = READY
        #: (messages, params) of every `generate`
        self.asked = []
        self.stops = 0
        self._text = ""

    def set_state(self, state):
        self.state = state
        self.stateChanged.emit(state)

    def generate(self, messages, params):
        assert self.state.kind == "ready"
        self.asked.append((messages, params))
        self._text = ""
        self.set_state(HostState("generating", self.state.model_name, self.state.path, self.state.plan))

    def stop(self):
        self.stops += 1

    def say(self, text, stats=STATS):
        self._text += text
        self.answerEvent.emit(AnswerDelta(text, stats))

    def end(self, reason="end", stats=STATS, error=None):
        self.set_state(HostState("ready", self.state.model_name, self.state.path, self.state.plan))
        self.answerFinished.emit(AnswerResult(self._text, stats, reason, error))

    def answer(self, text):
        self.say(text)
        self.end()


def fill(store, count, answer="An answer with **bold** text and `code`.\n\n- one\n- two"):
    """A chat of `count` questions and answers. Returns its id."""
    chat_id, parent = store.create_chat("Question 0"), None
    for number in range(count):
        parent = store.add_message(chat_id, parent, "user", f"Question {number}")
        parent = store.add_message(chat_id, parent, "assistant", model="demo")
        store.finish(parent, f"Answer {number}. {answer}", STATS, "end")
    return chat_id
