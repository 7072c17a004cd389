"""What the chat costs the UI thread: frames of a long answer, opening a long chat, memory over many answers.

    python tests/benchmarks/chat_window.py frames [--tokens 20000] [--rate 200] [--kinds table code]
    python tests/benchmarks/chat_window.py open [--messages 500]
    python tests/benchmarks/chat_window.py memory [--answers 1000] [--per-chat 20]
    python tests/benchmarks/chat_window.py typing [--tokens 20000] [--rate 200] [--kinds mixed] [--keys 400]

Runs without a screen. Times are CPU time of the UI thread, so a busy machine does not change them much.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, quantiles
from types import SimpleNamespace

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
# The engine of the chat's tests says what it is told.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "app" / "chat"))

import psutil
from answer_kinds import KINDS, THOUGHTS
from chat_fakes import FakeHost
from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QApplication, QPlainTextEdit

from app import tasks
from app.chat import message_view
from app.chat.page import ChatPage
from app.chat.rendering import body_view
from app.chat.storage.store import ChatStore
from app.garbage import collect_after
from app.theme import theme
from engine.runtime.events import GenerationStats

FRAME_S = 0.033
#: A frame that takes longer is told of, and what ran in it; but not more than so many.
GOAL_MS, MOST_TOLD = 50, 5
#: Characters of a token, near enough.
TOKEN = 4


def make_page(folder: str) -> tuple[ChatPage, FakeHost, ChatStore]:
    host, store = FakeHost(), ChatStore(Path(folder) / "chats.sqlite3")
    page = ChatPage(host, store)
    page.resize(900, 800)
    page.show()
    QApplication.processEvents()
    return page, host, store


class Answers(QObject):
    finished = Signal()


class Clock:
    """What the chat takes for the time: the waiting between two frames is left out of the benchmark, not out of it."""

    def __init__(self) -> None:
        self._real, self._skipped = time.perf_counter, 0.0

    def __call__(self) -> float:
        return self._real() + self._skipped

    def skip(self, seconds: float) -> None:
        self._skipped += max(0.0, seconds)


class Witness:
    """Knows what the UI thread did in a frame: looks at its stack every few ms, and at each run of the collector."""

    EVERY_S = 0.004

    def __init__(self) -> None:
        self._watched, self._over = threading.get_ident(), threading.Event()
        self._stacks: list[tuple[str, ...]] = []
        self._collected: list[str] = []
        self._begun = 0.0
        self._before = resource.getrusage(resource.RUSAGE_THREAD)
        gc.callbacks.append(self._collector)
        threading.Thread(target=self._look, daemon=True).start()

    def forget(self) -> None:
        self._stacks, self._collected = [], []
        self._before = resource.getrusage(resource.RUSAGE_THREAD)

    def tell(self, most: int = 6) -> str:
        """The lines of the program that were seen most often since `forget`, and what the system did."""
        lines = Counter(line for stack in self._stacks for line in set(stack))
        seen = [f"{line} {count}/{len(self._stacks)}" for line, count in lines.most_common(most)]
        before, now = self._before, resource.getrusage(resource.RUSAGE_THREAD)
        system = f"{(now.ru_stime - before.ru_stime) * 1e3:.0f} ms in the system"
        return "; ".join([system, f"{now.ru_minflt - before.ru_minflt} new pages", *self._collected, *seen])

    def stop(self) -> None:
        self._over.set()
        gc.callbacks.remove(self._collector)

    def _look(self) -> None:
        while not self._over.wait(self.EVERY_S):
            stack = traceback.StackSummary.extract(
                traceback.walk_stack(sys._current_frames()[self._watched]), limit=12, lookup_lines=False
            )
            self._stacks.append(tuple(f"{Path(line.filename).name}:{line.lineno} {line.name}" for line in stack))

    def _collector(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() != self._watched:
            return
        if phase == "start":
            self._begun = time.thread_time()
        else:
            took = (time.thread_time() - self._begun) * 1e3
            self._collected.append(f"garbage of generation {info['generation']}: {took:.0f} ms")


def stream(host: FakeHost, text: str, rate: float, clock: Clock, thought: bool = False) -> Iterator[float]:
    """Give the text away at that many tokens per second; yields the CPU seconds of each turn of the event loop."""
    step = max(1, round(rate * FRAME_S * TOKEN))
    for start in range(0, len(text) + step, step):
        begun = clock()
        count = (start + step) // TOKEN
        stats = GenerationStats(prompt_tokens=9, completion_tokens=count, first_token_s=0.1, decode_tps=rate)
        before = time.thread_time()
        if start < len(text):
            piece = text[start : start + step]
            host.say("" if thought else piece, stats, piece if thought else "")
        else:
            host.end(stats=stats)
        QApplication.processEvents()
        yield time.thread_time() - before
        # Timers that the frame has left behind, such as the colouring of code; at the end, all of them.
        for _ in range(3 if start < len(text) else 300):
            before = time.thread_time()
            QApplication.processEvents()
            seconds = time.thread_time() - before
            if seconds > 0.001:
                yield seconds
        clock.skip(FRAME_S - (clock() - begun))


def frames(tokens: int, rate: float, kinds: list[str], clock: Clock) -> None:
    print(f"{tokens} tokens at {rate:.0f} tok/s, ms of CPU per frame of {FRAME_S * 1e3:.0f} ms")
    print(f"{'kind':20} {'frames':>7} {'mean':>7} {'99 %':>7} {'most':>7} {'at':>7}")
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            page, host, _ = make_page(folder)
            page.send("Go on.")
            thought = kind in THOUGHTS
            if thought:
                host.say("", thought="So.\n\n")
                QApplication.processEvents()
                view = page.transcript.views[-1]
                view.thought.toggle.click()  # only an open one is laid out
            text = KINDS[kind](tokens * TOKEN)
            times, slow = [], []
            witness = Witness()
            for seconds in stream(host, text, rate, clock, thought):
                times.append(seconds * 1e3)
                if times[-1] > GOAL_MS:
                    slow.append(f"    frame {len(times) - 1}, {times[-1]:.0f} ms: {witness.tell()}")
                witness.forget()
            witness.stop()
            page.shutdown()
            page.deleteLater()
            QApplication.processEvents()
        print(
            f"{kind:20} {len(times):7d} {mean(times):7.2f} {quantiles(times, n=100)[98]:7.2f} {max(times):7.2f} "
            f"{times.index(max(times)):7d}",
            *slow[:MOST_TOLD],
            sep="\n",
            flush=True,
        )


def open_chat(messages: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        page, _, store = make_page(folder)
        chat, parent = store.create_chat("Long"), None
        answer = KINDS["mixed"](4000)
        for number in range(messages // 2):
            parent = store.add_message(chat, parent, "user", f"Question {number}?")
            parent = store.add_message(chat, parent, "assistant", model="x")
            store.finish(parent, answer, GenerationStats(prompt_tokens=9, completion_tokens=900), "end")
        for attempt in ("first", "again"):
            page.new_chat()
            before, wall = time.thread_time(), time.perf_counter()
            page.open_chat(chat)
            QApplication.processEvents()
            print(
                f"{messages} messages of {len(answer)} characters, {attempt}: "
                f"{(time.thread_time() - before) * 1e3:.0f} ms of CPU, {(time.perf_counter() - wall) * 1e3:.0f} ms"
            )
        page.shutdown()


def memory(answers: int, per_chat: int, clock: Clock) -> None:
    process = psutil.Process()
    with tempfile.TemporaryDirectory() as folder:
        page, host, _ = make_page(folder)
        for number in range(answers + 1):
            if number % max(1, answers // 10) == 0:
                print(
                    f"{number:6d} answers: {process.memory_info().rss / 1e6:7.1f} MB, "
                    f"{len(QApplication.allWidgets()):5d} widgets, {len(page.findChildren(QObject)):6d} objects"
                )
            page.send("Go on.")
            for _ in stream(host, KINDS["mixed"](2000), 800, clock):
                pass
            host.asked.clear()
            host.wished.clear()
            if number % per_chat == per_chat - 1:
                tasks.finish()
                page.new_chat()
                gc.collect()  # as the program does a second after an answer
            page.transcript.release_far()
            # Without a running event loop nobody else does this.
            QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
        page.shutdown()


class Typist(QObject):
    """Presses keys now and then, whatever the window does, and takes the time until each is to be seen."""

    EVERY_S = 0.083

    def __init__(self, field: QPlainTextEdit, keys: int) -> None:
        super().__init__()
        self._field = field
        # Qt makes them on the UI thread alone.
        self._events = [
            [
                QKeyEvent(kind, Qt.Key.Key_A, Qt.KeyboardModifier.NoModifier, "words in a line "[number % 16])
                for kind in (QEvent.Type.KeyPress, QEvent.Type.KeyRelease)
            ]
            for number in range(keys)
        ]
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        #: Wall and CPU seconds of the UI thread, at the press.
        self._pressed: list[tuple[float, float]] = []
        self._typed = self._painted = 0
        self.times: list[tuple[float, float]] = []
        field.textChanged.connect(self._type)
        field.viewport().installEventFilter(self)
        self._thread = threading.Thread(target=self._press_keys, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def finished(self) -> bool:
        return not self._thread.is_alive() and len(self.times) >= len(self._pressed)

    def _press_keys(self) -> None:
        for number, events in enumerate(self._events):
            time.sleep(self.EVERY_S * (0.5 + number * 7 % 11 / 11))
            self._pressed.append((time.perf_counter(), time.clock_gettime(self._clock)))
            for event in events:
                QApplication.postEvent(self._field, event)

    def _type(self) -> None:
        self._typed += 1

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: N802
        if event.type() == QEvent.Type.Paint:
            self._painted = self._typed
        return False

    def look(self) -> None:
        """After a turn of the event loop."""
        wall, cpu = time.perf_counter(), time.thread_time()
        for pressed in self._pressed[len(self.times) : self._painted]:
            self.times.append((wall - pressed[0], cpu - pressed[1]))


def typing(tokens: int, rate: float, kinds: list[str], keys: int) -> None:
    print(
        f"{keys} keys while {tokens} tokens are written at {rate:.0f} tok/s: ms from a key to its letter on the window"
    )
    print(
        f"{'kind':20} {'tokens':>7} {'CPU 50 %':>9} {'95 %':>7} {'most':>7} {'wall 50 %':>10} {'95 %':>7} {'most':>7}"
    )
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            page, host, _ = make_page(folder)
            page.send("Go on.")
            text, at = KINDS[kind](tokens * TOKEN), 0
            # Most of the answer is there, for the end of a long one is the hardest.
            first = max(0, len(text) - round(1.2 * keys * Typist.EVERY_S * rate * TOKEN))
            while at < first:
                host.say(text[at : at + 2000])
                at += 2000
                QApplication.processEvents()
            for _ in range(300):
                tasks.finish()
                QApplication.processEvents()
            view = page.transcript.views[-1]
            # What came faster than it can be drawn is drawn in slices.
            while sum(len(body.text) for body in view.findChildren(body_view.BodyView)) < at:
                QApplication.processEvents()
                time.sleep(0.001)
            begun, first = time.perf_counter(), at
            typist = Typist(page.composer.field, keys)
            typist.start()
            next_frame = begun
            while not typist.finished:
                now = time.perf_counter()
                if now >= next_frame and at < len(text):
                    # As the host gives it: what has come since the last frame.
                    until = min(len(text), first + int((now - begun) * rate * TOKEN))
                    count = until // TOKEN
                    stats = GenerationStats(
                        prompt_tokens=9, completion_tokens=count, first_token_s=0.1, decode_tps=rate
                    )
                    host.say(text[at:until], stats)
                    at, next_frame = until, now + FRAME_S
                QApplication.processEvents()
                typist.look()
                time.sleep(0.001)
            host.end()
            page.shutdown()
            page.deleteLater()
            QApplication.processEvents()
        columns = []
        for times in zip(*typist.times, strict=True):
            parts = quantiles((seconds * 1e3 for seconds in times), n=100)
            columns += [parts[49], parts[94], max(times) * 1e3]
        wall, cpu = columns[:3], columns[3:]
        print(
            f"{kind:20} {at // TOKEN:7d} {cpu[0]:9.1f} {cpu[1]:7.1f} {cpu[2]:7.1f} "
            f"{wall[0]:10.1f} {wall[1]:7.1f} {wall[2]:7.1f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("frames", "open", "memory", "typing"))
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS), help="of text")
    parser.add_argument("--messages", type=int, default=500)
    parser.add_argument("--answers", type=int, default=1000)
    parser.add_argument("--per-chat", type=int, default=20, help="answers until a new chat begins")
    parser.add_argument("--keys", type=int, default=400)
    options = parser.parse_args()
    app = QApplication(sys.argv[:1])
    clock = Clock()
    if options.what != "typing":
        message_view.time = body_view.time = SimpleNamespace(perf_counter=clock)
    theme().set_mode("dark")
    answers = Answers()
    collect_after(answers.finished, answers)  # as the program does when it has started
    if options.what == "frames":
        frames(options.tokens, options.rate, options.kinds, clock)
    elif options.what == "open":
        open_chat(options.messages)
    elif options.what == "typing":
        typing(options.tokens, options.rate, options.kinds, options.keys)
    else:
        memory(options.answers, options.per_chat, clock)
    tasks.shutdown()
    del app


if __name__ == "__main__":
    main()
