"""What the chat page has to say about the open chat, as notices: the most pressing one first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot

from app.chat.composing.context import ROOM, ContextMeter, dropped
from app.chat.composing.cutting import Cutting
from app.chat.controller import ChatController
from app.chat.notice import Choice, Notice
from app.chat.speed.figures import tokens
from app.chat.storage.messages import CLOSED
from app.chat.storage.records import Attachment, StoredMessage
from app.chat.storage.store import ChatStore
from app.host import DEMO, ContextPlan, EngineHost
from app.language import told, tr
from app.paths import is_gone
from app.settings.store import Settings
from app.words import file_name
from engine.placement.plan import OffloadPlan
from engine.units import size_up

QUOTE_LENGTH = 40
CUTTING = "cutting"
#: Two lines or three.
SUMMARY_LENGTH = 160


class Advice(QObject):
    """Looks at the open chat whenever something changes."""

    #: list[Notice]
    changed = Signal(list)
    #: str: a path or "demo" that is to be loaded
    modelWanted = Signal(str)
    modelsWanted = Signal()
    #: int: a chat to open; 0 for a new one
    chatWanted = Signal(int)
    #: StoredMessage
    continueWanted = Signal(object)
    #: StoredMessage: a question
    answerWanted = Signal(object)
    #: str: a summary that is to be read whole
    summaryWanted = Signal(str)
    #: list[Attachment]: what the draft is to have instead
    attachmentsWanted = Signal(list)

    def __init__(
        self,
        host: EngineHost,
        store: ChatStore,
        controller: ChatController,
        meter: ContextMeter,
        settings: Callable[[], Settings],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._host, self._store, self._controller, self._meter = host, store, controller, meter
        self._settings = settings
        self._chat: int | None = None
        self._messages: Sequence[StoredMessage] = ()
        self._asked: Notice | None = None
        #: Keys of notices that were closed, with the chat they were about.
        self._closed: set[tuple[str, int | None]] = set()
        self._crashed = store.unfinished() if controller.stream is None else None
        self._wanted_context = 0
        self._cutting = Cutting(host, meter, self)
        self._cutting.found.connect(self.attachmentsWanted)
        host.contextPlanned.connect(self._offer_context)

    def look(self, chat_id: int | None, messages: Sequence[StoredMessage]) -> None:
        """The chat that is open now, and its visible path."""
        if chat_id != self._chat:
            self._asked = None
            self._cutting.stop()
        if self._crashed is not None and self._crashed[0] == chat_id:
            self._settle()  # the chat itself says it from now on
        self._chat, self._messages = chat_id, messages
        self.refresh()

    def refresh(self) -> None:
        self.changed.emit(self.notices)

    @property
    def notices(self) -> list[Notice]:
        """What there is to say: what the user has just asked for, what is in the way, what is worth knowing."""
        found: list[Notice] = []
        offered: set[str] = set()
        for notice in (self._asked, *self._notices()):
            if notice is None or (notice is not self._asked and (notice.key, self._chat) in self._closed):
                continue
            choices = {text for text, _ in notice.choices}
            if choices and choices <= offered and not notice.warns:
                continue  # all that it is for stands above
            offered |= choices
            found.append(notice)
        return found

    @Slot(str)
    def close(self, key: str) -> None:
        """The user has closed the notice of that key, or taken a choice."""
        if self._asked is not None and self._asked.key == key:
            self._asked = None
            if key == CUTTING:
                self._cutting.stop()
        else:
            self._closed.add((key, self._chat))
            if key == "crash":
                self._settle()
        self.refresh()

    def _ask(self, notice: Notice) -> None:
        self._asked = notice
        self.refresh()

    def _settle(self) -> None:
        if self._crashed is not None:
            self._store.settle_unfinished(self._crashed[1])
            self._crashed = None

    def _notices(self) -> list[Notice | None]:
        return [
            self._summarising(),
            self._switching(),
            self._crash(),
            self._cut_off(),
            self._unanswered(),
            self._other_model(),
            self._left_out(),
        ]

    def _summarising(self) -> Notice | None:
        stream = self._controller.stream
        if stream is None or stream.start is None or stream.chat_id != self._chat:
            return None
        return Notice("summary", tr("The model is summarising earlier messages…"))

    # A model makes room for another

    def _switching(self) -> Notice | None:
        state = self._host.state
        if state.kind != "loading" or state.unloads is None or state.plan is None:
            return None
        name, old = state.unloads
        text = tr(
            "Unloading {old} to free {freed}. {new} takes {taken}.",
            old=name,
            freed=_memory(old),
            new=state.model_name,
            taken=_memory(state.plan),
        )
        return Notice(f"switch {state.path}", text)

    # After a crash

    def _crash(self) -> Notice | None:
        if self._crashed is None:
            return None
        chat_id, _ = self._crashed
        title = self._store.title(chat_id)
        if title is None:
            return None
        text = tr("Greenroom closed while answering in “{title}”.", title=title)
        return Notice("crash", text, ((tr("Open chat"), lambda: self.chatWanted.emit(chat_id)),))

    def _continuing(self, message: StoredMessage) -> tuple[Choice, ...]:
        if not message.text.strip():
            return ()
        return self._going_on(message, (tr("Continue answer"), lambda: self.continueWanted.emit(message)))

    def _going_on(self, message: StoredMessage, choice: Choice) -> tuple[Choice, ...]:
        """The choice, where a model is there to do it, or else the model that answered last."""
        if self._controller.stream is not None:
            return ()
        if self._controller.can_ask:
            return (choice,)
        path = self._store.model_path(message.chat_id)
        if self._host.state.kind == "empty" and _is_there(path):
            name = _model_name(path)
            return ((tr("Load {model}", model=name), lambda: self.modelWanted.emit(path)),)
        return ()

    def _cut_off(self) -> Notice | None:
        last = self._messages[-1] if self._messages else None
        if last is None or self._controller.stream is not None or not last.cut_off:
            return None
        key = f"cut {last.id} {len(last.text)}"
        if last.stop_reason == "length":
            return Notice(key, tr("The answer reached its token limit."), self._continuing(last))
        if last.stop_reason == "context":
            if self._asked is not None:
                return None  # that is about the same, with the same choices
            text = tr("The context is full: {size} tokens.", size=tokens(self._meter.size or self._meter.used))
            return Notice(key, text, self._making_room(), warns=True)
        if last.stop_reason == "error" and (choices := self._continuing(last)):
            return Notice(key, tr("The answer was interrupted."), choices)
        if last.stop_reason in (None, CLOSED) and last.text.strip():
            return Notice(key, tr("This answer was cut off when Greenroom closed."), self._continuing(last))
        return None

    def _unanswered(self) -> Notice | None:
        last = self._messages[-1] if self._messages else None
        if last is None or last.role != "user" or self._controller.stream is not None:
            return None
        key = f"unanswered {last.id}"

        def answer() -> None:
            # It is so again when the answer is deleted.
            self._closed.discard((key, last.chat_id))
            self.answerWanted.emit(last)

        choices = self._going_on(last, (tr("Answer this message"), answer))
        return Notice(key, tr("This message has no answer yet."), choices)

    # The model that answered is another one

    def _other_model(self) -> Notice | None:
        state = self._host.state
        path = self._store.model_path(self._chat) if self._chat is not None else ""
        if not path or state.busy or (path == state.path and state.kind != "failed"):
            return None
        name = _model_name(path)
        loaded = state.model_name if state.kind in ("ready", "generating") else ""
        if path == DEMO and loaded:
            return None  # nobody goes back to it
        if not _is_there(path):
            text = tr("This chat was answered by {model}, but the model file is missing: {path}", model=name, path=path)
            if loaded:
                return Notice(f"gone {path}", text, ((tr("Continue with {model}", model=loaded), lambda: None),))
            return Notice(f"gone {path}", text, ((tr("Choose another model"), self.modelsWanted.emit),), warns=True)
        text = tr("This chat was answered by {model}.", model=name)
        if loaded and state.plan is not None:
            freed = _memory(state.plan)
            text += " " + tr("Loading it unloads {model} and frees {freed}.", model=loaded, freed=freed)
        return Notice(f"other {path}", text, ((tr("Load {model}", model=name), lambda: self.modelWanted.emit(path)),))

    # What is not sent any more

    def _left_out(self) -> Notice | None:
        settings = self._controller.settings_of(self._chat)
        gone = dropped(self._messages, settings)
        if not gone:
            return None
        first, last = _quote(gone[0].text), _quote(gone[-1].text)
        choices: list[Choice] = [(tr("Include them again"), self._send_all)]
        if settings.summary:
            begins = _quote(settings.summary, SUMMARY_LENGTH)
            text = tr("A summary is sent instead of the first %n messages: {text}", n=len(gone), text=begins)
            if begins != settings.summary:
                choices.append((tr("Read full summary"), lambda: self._show_summary(settings.summary, settings.start)))
        else:
            text = tr("The first %n messages are not sent: “{first}” to “{last}”.", n=len(gone), first=first, last=last)
        return Notice(f"left out {settings.start}", text, tuple(choices))

    def _show_summary(self, summary: str, start: int | None) -> None:
        self.summaryWanted.emit(summary)
        self._closed.discard((f"left out {start}", self._chat))
        self.refresh()

    def _send_all(self) -> None:
        self._change_start(None, "")

    def _change_start(self, start: int | None, summary: str) -> None:
        settings = self._controller.settings_of(self._chat)
        self._controller.set_settings(self._chat, replace(settings, start=start, summary=summary))
        self._meter.take_next()
        self.refresh()

    # A full context

    def full_context(self) -> None:
        """What is written does not fit."""
        text = tr(
            "Too long: {used} tokens plus at least {room} for an answer exceed the {size}-token context.",
            used=tokens(self._meter.used),
            room=tokens(ROOM),
            size=tokens(self._meter.size),
        )
        self._ask(Notice("full", text, self._making_room(), warns=True))

    def _making_room(self) -> tuple[Choice, ...]:
        choices: list[Choice] = []
        leaving = self._meter.droppable()
        if leaving is not None:
            count = len(leaving.messages)
            choices.append(
                (tr("Leave out the oldest %n messages", n=count), lambda: self._change_start(leaving.start, ""))
            )
        choices += self._more_context()
        if leaving is not None and self._chat is not None and self._controller.can_ask:
            chat = self._chat
            choices.append((tr("Summarise earlier messages"), lambda: self._controller.summarise(chat, leaving.start)))
        if not choices and self._messages:
            choices.append((tr("New chat"), lambda: self.chatWanted.emit(0)))
        return tuple(choices)

    def _more_context(self) -> list[Choice]:
        state, size = self._host.state, self._meter.size
        if size == 0:
            return []  # no model is loaded
        wanted = size * 2
        while wanted < self._meter.used * 1.25:
            wanted *= 2
        if state.limit:
            wanted = min(wanted, state.limit)
        if wanted <= size:
            return []
        return [(tr("Increase context…"), lambda: self._plan_context(wanted))]

    def _plan_context(self, wanted: int) -> None:
        self._wanted_context = wanted
        self._ask(Notice("context", tr("Calculating memory for a context of {count} tokens…", count=tokens(wanted))))
        self._host.plan_context(wanted)

    @Slot(object)
    def _offer_context(self, planned: ContextPlan) -> None:
        if planned.context != self._wanted_context:
            return
        self._wanted_context = 0
        now, plan, size = self._host.state.plan, planned.plan, tokens(planned.context)
        if plan is None or now is None:
            self._ask(
                Notice(
                    "context", tr("This model does not support a context of {count} tokens.", count=size), warns=True
                )
            )
            return
        more = plan.bytes.ram_total + plan.bytes.vram_total - now.bytes.ram_total - now.bytes.vram_total
        text = tr(
            "A context of {count} tokens needs {more} more memory ({all} in total). The model will be loaded again.",
            count=size,
            more=size_up(max(0, more)),
            all=_memory(plan),
        )
        choice = tr("Load with {count} tokens", count=size)
        if not plan.runnable:
            text += f" {told(plan.label)}."
            choice = tr("Load anyway")
        self._ask(Notice("context", text, ((choice, lambda: self._load_with(planned.context, not plan.runnable)),)))

    def _load_with(self, context: int, force: bool) -> None:
        path = self._host.state.path
        if path is not None:
            self._host.load(path, force=force, context=context, **self._settings().wishes)

    # Files that are too large

    def large_file(self, attachments: Sequence[Attachment], counts: Sequence[int | None]) -> None:
        """The draft with its files does not fit. counts: tokens of each file, None where they are not known."""
        if self._cutting.cuts(attachments):
            return
        self._cutting.stop()
        ratio = self._meter.ratio
        known = zip(attachments, counts, strict=True)
        sizes = [round(len(a.text) * ratio) if count is None else count for a, count in known]
        place = max(range(len(attachments)), key=lambda n: sizes[n])
        largest, size = attachments[place], sizes[place]
        # An estimate of all has one of the file in it.
        taken = self._meter.used - (size if self._meter.exact else self._meter.estimate(largest.text))
        free = self._meter.size - ROOM - max(0, taken)
        about = "~" if counts[place] is None else ""
        name = tr("{name} has %n tokens", n=size, written=about + tokens(size), name=largest.name)
        left = max(0, free)
        text = tr("{file}, but only %n are free in this chat.", n=left, written=tokens(left), file=name)
        others = [a for n, a in enumerate(attachments) if n != place]
        choices: list[Choice] = []
        if free > ROOM:
            choices.append((tr("Send only the beginning"), lambda: self._cut(attachments, place, size, free)))
        choices += self._more_context()
        choices.append((tr("Remove file"), lambda: self.attachmentsWanted.emit(others)))
        self._ask(Notice("large", text, tuple(choices), warns=True))

    def _cut(self, attachments: Sequence[Attachment], place: int, size: int, free: int) -> None:
        self._ask(Notice(CUTTING, tr("Calculating…")))
        self._cutting.begin(attachments, place, size, free)

    def fits_again(self) -> None:
        """What did not fit does."""
        if self._meter.size and self._cutting.cuts(self._meter.files):
            return  # by an estimate, while it is written on
        self._cutting.stop()
        if self._asked is not None and self._asked.key in ("full", "large", CUTTING):
            self._asked = None
            self.refresh()


def _is_there(path: str) -> bool:
    return path == DEMO or (bool(path) and not is_gone(path))


def _model_name(path: str) -> str:
    return tr("Demo model") if path == DEMO else file_name(Path(path))


def _memory(plan: OffloadPlan) -> str:
    """ "17.5 GB of RAM", "3.1 GB of RAM and 4.2 GB of VRAM"."""
    ram = tr("{size} of RAM", size=size_up(plan.bytes.ram_total))
    if not plan.bytes.vram_total:
        return ram
    return tr("{ram} and {size} of VRAM", ram=ram, size=size_up(plan.bytes.vram_total))


def _quote(text: str, length: int = QUOTE_LENGTH) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else line[:length].rstrip() + "…"
