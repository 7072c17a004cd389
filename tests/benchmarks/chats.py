"""Ten thousand chats: how long the list, a search and a long chat take, in CPU time of the window's thread.

    python tests/benchmarks/chats.py [--file FILE] [--chats N]

Writes the chats into a file of its own (142 MB for 10,000; kept with --file, and used again), with made-up words whose
frequencies fall as those of a language do, and Korean in a third of them. No window is shown. The best of three.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
# The engine of the chat's tests says what it is told.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "app" / "chat"))

from chat_fakes import STATS, FakeHost
from PySide6.QtWidgets import QApplication

from app.chat.page import ChatPage
from app.chat.sidebar import ChatList
from app.chat.storage.portable import PortableChat, PortableMessage
from app.chat.storage.store import ChatStore

KOREAN = ["여행", "일정", "정리", "서울", "부산", "기차", "모델", "메모리", "질문", "대답", "예산", "계획"]
PARAGRAPH = "Paragraph {n} with **bold** words, `code`, and a list:\n\n- one\n- two\n\n```python\nprint({n})\n```"
#: Messages of the long chat, and paragraphs of each of its answers.
LONG, PARAGRAPHS = 500, 25


class Writer:
    """Texts that are the same in every run."""

    def __init__(self) -> None:
        self._random = random.Random(1)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self.words = ["".join(self._random.choices(letters, k=self._random.randint(2, 9))) for _ in range(20_000)]
        self._weights = [1 / (rank + 1) for rank in range(len(self.words))]

    def text(self, words: int) -> str:
        text = " ".join(self._random.choices(self.words, self._weights, k=words))
        if self._random.random() < 0.3:
            text += " " + " ".join(word + self._random.choice("을이은") for word in self._random.choices(KOREAN, k=8))
        return text

    def chat(self, number: int) -> PortableChat:
        when = 1.7e9 + 600 * number
        roles = ("user", "assistant") * 3
        messages = tuple(
            PortableMessage(role, self.text(30 if role == "user" else 120), place - 1 if place else None, when)
            for place, role in enumerate(roles)
        )
        return PortableChat(self.text(5)[:60], when, when, messages)


def fill(path: Path, count: int) -> None:
    writer, store = Writer(), ChatStore(path)
    missing = count - len(store.chats())
    for start in range(0, missing, 500):
        store.add_portable([writer.chat(number) for number in range(start, min(missing, start + 500))])
        sys.stderr.write(f"\r{start} of {missing} chats written")
    sys.stderr.write("\n")
    store.close()


def best(run: Callable[[], object]) -> float:
    """Milliseconds of CPU time."""
    times = []
    for _ in range(3):
        start = time.thread_time()
        run()
        QApplication.processEvents()
        times.append(time.thread_time() - start)
    return min(times) * 1e3


def measure(path: Path) -> None:
    store = ChatStore(path)
    common, rare = Writer().words[0], Writer().words[9_000]
    count = len(store.chats())

    def say(what: str, milliseconds: float) -> None:
        sys.stdout.write(f"{what:52}{milliseconds:8.1f} ms\n")

    start = time.thread_time()
    chats = ChatList(store)
    chats.resize(248, 700)
    chats.show()
    chats.grab()
    say(f"list of {count} chats, made and drawn", (time.thread_time() - start) * 1e3)

    def search(query: str) -> None:
        chats._query = query
        chats.refresh()
        chats.grab()

    for query in (common, f"{common} {rare}", rare, "여행", "여행 일정", "nowhere"):
        found = len(store.chats(query))
        say(f"search for {query!r}, found in {found}, drawn", best(lambda query=query: search(query)))

    answer = "\n\n".join(PARAGRAPH.format(n=n) for n in range(PARAGRAPHS))
    chat, parent = store.create_chat("long"), None
    for number in range(LONG // 2):
        parent = store.add_message(chat, parent, "user", f"Question {number} " + "words " * 80)
        parent = store.add_message(chat, parent, "assistant", model="m")
        store.finish(parent, answer, STATS, "end")
    page = ChatPage(FakeHost(), store)
    page.resize(900, 700)
    page.show()

    def open_it() -> None:
        page.new_chat()
        page.open_chat(chat)
        page.grab()

    say(f"chat of {LONG} messages ({len(answer)} characters an answer), drawn", best(open_it))
    say("a key in the composer of that chat", best(lambda: page.composer.field.insertPlainText("x")))
    page.find()
    page.find_bar.field.setText("paragraph")
    say("a word found and marked in that chat", best(page.find_bar.search))
    store.delete(chat)
    page.shutdown()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--file", type=Path)
    options.add_argument("--chats", type=int, default=10_000)
    given = options.parse_args()
    application = QApplication([])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GREENROOM_DATA"] = folder
        path = given.file or Path(folder) / "chats.sqlite"
        fill(path, given.chats)
        measure(path)
    del application


if __name__ == "__main__":
    main()
