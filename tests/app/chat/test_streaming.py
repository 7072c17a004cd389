"""A long answer costs the window little while it is written, and leaves nothing behind. Counted, not timed."""

from __future__ import annotations

import gc
import threading
from collections import Counter

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QObject, QTimer
from PySide6.QtWidgets import QApplication

from app import tasks
from app.chat import markdown
from app.chat.body_view import BodyView
from app.chat.markdown import StreamParser, parse
from app.chat.page import ChatPage

#: Characters of one frame at 200 tokens per second.
FRAME = 26
SECTION = r"""## Section {n}

Words with **emphasis**, `code`, a [link](https://example.org/{n}) and $x_{{{n}}}$ that go on for a line or two, as the
paragraphs of answers do.

$$
y_{{{n}}} = \frac{{a}}{{b}}
$$

- first point
- second point
  - a deeper one

| a | b |
|---|--:|
| 1 | {n} |
| 2 | 3 |

```python
def function_{n}(value: float) -> float:
    return value * {n}
```

"""
KINDS = {
    "mixed": "".join(SECTION.format(n=n) for n in range(60)),
    "table": "| a | b |\n|---|---|\n" + "".join(f"| {n} | **two** |\n" for n in range(1200)),
    "list": "".join(f"- item {n} with `code`\n" for n in range(1200)),
    "code": "```python\n" + "value = compute(a, b)  # a comment\n" * 800,
    "loop": "They are going to find something evermore. " * 600,
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_is_being_written_is_parsed_again(kind, monkeypatch):
    text, parsed = KINDS[kind], []
    original = markdown._PARSER.parse

    def count(source, env):
        parsed.append(len(source))
        return original(source, env)

    monkeypatch.setattr(markdown._PARSER, "parse", count)
    parser = StreamParser()
    for end in range(FRAME, len(text) + FRAME, FRAME):
        parser.update(text[:end])
    longest_block = markdown.LONGEST_PARAGRAPH if kind == "loop" else 400
    assert max(parsed) <= 2 * longest_block + FRAME
    assert len(parsed) <= 1.5 * len(text) / FRAME
    # A block is parsed again for each frame in which it grows, and no more often.
    assert sum(parsed) <= (2 + longest_block / FRAME) * len(text)


@pytest.mark.parametrize("kind", ["mixed", "table", "list"])
def test_what_was_streamed_reads_as_the_whole(kind):
    text, parser, leaves = KINDS[kind], StreamParser(), []
    for end in [*range(FRAME, len(text), FRAME), len(text)]:
        keep, new = parser.update(text[:end])
        leaves = leaves[:keep] + new
    assert leaves == parse(text)


def test_settled_parts_are_never_made_again(qtbot, monkeypatch):
    made = Counter()
    original = BodyView._add

    def count(self, widget):
        made[type(widget).__name__] += 1
        return original(self, widget)

    monkeypatch.setattr(BodyView, "_add", count)
    body = BodyView()
    qtbot.addWidget(body)
    body.set_width(600)
    text = KINDS["mixed"][: 10 * len(KINDS["mixed"]) // 60]
    for end in range(FRAME, len(text) + FRAME, FRAME):
        body.grow(text[:end])
    tasks.finish()
    parts = Counter(type(part.widget).__name__ for part in body._parts)
    # What begins a block may look like another one for a frame or two.
    assert all(made[kind] <= 2 * parts[kind] + 2 for kind in made), (made, parts)


def settle(app):
    """Let everything end that was to end."""
    tasks.finish()
    app.processEvents()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    gc.collect()


def test_streamed_answers_leave_nothing_behind(qtbot, qapp, host, store):
    page = ChatPage(host, store)
    qtbot.addWidget(page)
    page.resize(800, 600)
    page.show()

    def write_answers(count):
        for _ in range(count):
            page.new_chat()
            page.send("q")
            for start in range(0, 1500, 150):
                host.say(KINDS["mixed"][start : start + 150])
            host.end()
        page.new_chat()
        settle(qapp)

    def alive():
        return (
            Counter(type(widget).__name__ for widget in QApplication.allWidgets()),
            len(page.findChildren(QObject)),
            sum(timer.isActive() for timer in page.findChildren(QTimer)),
            threading.active_count(),
        )

    write_answers(3)
    before = alive()
    write_answers(8)
    assert alive() == before
    page.shutdown()
    page.close()


def test_views_that_are_given_back_are_freed(qtbot, qapp):
    """Nothing of Python keeps a view alive: no signal of the theme or the store, no formula."""

    def write():
        body = BodyView()
        body.set_width(500)
        body.set_text(SECTION.format(n=1))
        tasks.finish()
        body.deleteLater()

    def kinds():
        settle(qapp)
        return Counter(type(thing).__name__ for thing in gc.get_objects() if issubclass(type(thing), QObject))

    write()
    before = kinds()
    for _ in range(5):
        write()
    assert kinds() == before
