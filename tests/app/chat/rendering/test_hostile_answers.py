"""No answer freezes the window, whatever it is made of. Work is counted; times are bounds for what never ends."""

from __future__ import annotations

import time
from functools import partial

import pytest
from hostile_markdown import HOSTILE, composition
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QApplication, QScrollArea, QWidget

from app import tasks
from app.chat.rendering import markdown
from app.chat.rendering.body_view import MOST_BLOCKS, MOST_SMALL, SMALL, BodyView
from app.chat.rendering.code_view import CodeView
from app.chat.rendering.flow_view import FlowView
from app.chat.rendering.markdown import Table, Text
from app.chat.rendering.markdown_stream import LONGEST_PARAGRAPH
from app.chat.rendering.markdown_tables import COSTLIEST_ROW

#: Characters of each answer, and seconds of this thread that one update may take: twenty times the goal.
SIZE, SECONDS = 6000, 1.0
#: Of one code block.
WIDGETS = 16
#: A table in a list, a table in a quote: they are read row by row. Code in a list or quote is not.
READ_AGAIN = {"code in a list", "code in a quote", "fences in one item"}


class Shown:
    """A body in a window, and how long each of its steps took."""

    def __init__(self) -> None:
        self.area, self.body, self.slowest = QScrollArea(), BodyView(), 0.0
        self.area.resize(700, 600)
        self.body.set_width(640)
        self.area.setWidget(self.body)
        self.area.show()

    def step(self, work) -> None:
        begun = time.thread_time()
        work()
        self.slowest = max(self.slowest, time.thread_time() - begun)
        bar = self.area.verticalScrollBar()
        bar.setValue(bar.maximum())
        begun = time.thread_time()
        QApplication.processEvents()
        self.slowest = max(self.slowest, time.thread_time() - begun)

    def finish(self) -> None:
        self.body.finish()
        while not self.body.complete:
            self.step(lambda: None)

    def close(self) -> None:
        self.area.close()
        self.area.deleteLater()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


@pytest.fixture
def shown(qtbot, monkeypatch):
    # Formulas are laid out on another thread, and tested elsewhere.
    monkeypatch.setattr("app.chat.formulas.math_store.FormulaStore._work", lambda store: None)
    made = Shown()
    yield made
    made.close()
    tasks.finish()


def letters(text):
    return "".join(letter for letter in text if letter.isalnum())


def on_screen(part):
    """What can be selected and copied in a part."""
    if isinstance(part.widget, CodeView):
        return part.widget.code
    if not isinstance(part.widget, FlowView):
        return ""
    part.widget.selectAll()
    return part.widget.createMimeDataFromSelection().text()


def meant(leaf):
    if isinstance(leaf, Table):
        return "".join(span.text for row in leaf.rows for cell in row for span in cell)
    return (
        leaf.marker + "".join(span.text for span in leaf.spans) if isinstance(leaf, Text) else getattr(leaf, "text", "")
    )


def assert_shown(body):
    """Every part shows its leaves, and all leaves are shown."""
    assert sum(part.count for part in body._parts) == len(body.leaves)
    for part in body._parts:
        leaves = body.leaves[part.first : part.first + part.count]
        assert letters(on_screen(part)) == letters("".join(map(meant, leaves)))


@pytest.mark.parametrize("kind", HOSTILE)
def test_an_update_is_little_work(kind, shown, monkeypatch):
    text = HOSTILE[kind](SIZE)[:SIZE]
    read, made = [], []
    parse = markdown.PARSER.parse
    monkeypatch.setattr(markdown.PARSER, "parse", lambda source, env: read.append(len(source)) or parse(source, env))
    add = BodyView._add
    monkeypatch.setattr(BodyView, "_add", lambda body, widget: made.append(widget) or add(body, widget))
    step = 60
    for end in [*range(step, len(text), step), len(text)]:
        before = len(read), len(made)
        shown.step(partial(shown.body.grow, text[:end]))
        if kind not in READ_AGAIN:
            # The end of the text twice, and what of it is settled, for as many slices as an update may be.
            assert sum(read[before[0] :]) <= 8 * max(LONGEST_PARAGRAPH, COSTLIEST_ROW)
        assert len(made) - before[1] <= step
    shown.finish()
    assert shown.body.text == text
    assert_shown(shown.body)
    assert len(shown.body.findChildren(QWidget)) <= WIDGETS * (MOST_SMALL + len(text) / SMALL)
    assert sum(read) <= len(text) / step * 2 * LONGEST_PARAGRAPH
    assert shown.slowest < SECONDS


@pytest.mark.parametrize("size", [SIZE, SIZE // 2])
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_whole_answer_is_shown_a_little_at_a_time(kind, size, shown, monkeypatch):
    text = HOSTILE[kind](size)[:size]
    made, made_at_once = [], []
    add, change = BodyView._add, BodyView._change
    monkeypatch.setattr(BodyView, "_add", lambda body, widget: made.append(widget) or add(body, widget))

    def count(body, keep, leaves):
        before = len(made)
        change(body, keep, leaves)
        made_at_once.append(len(made) - before)

    monkeypatch.setattr(BodyView, "_change", count)
    shown.step(lambda: shown.body.set_text(text))
    while not shown.body.complete:
        shown.step(lambda: None)
    # Each has text above it, and what was half a block is made anew.
    assert max(made_at_once) <= 3 * MOST_BLOCKS
    assert shown.body.text == text
    assert shown.slowest < SECONDS
    shown.step(lambda: shown.body.set_width(400))
    assert shown.slowest < SECONDS


@pytest.mark.parametrize("kind", ["empty fences", "rules", "many tables", "the same formula", "indented code"])
def test_beyond_a_number_of_small_blocks_they_are_text(kind, shown):
    text = HOSTILE[kind](4 * MOST_SMALL * 12)
    shown.body.set_text(text)
    while not shown.body.complete:
        shown.step(lambda: None)
    kinds = [type(part.widget).__name__ for part in shown.body._parts]
    assert sum(name != "TextView" for name in kinds) == MOST_SMALL
    assert len(kinds) <= 2 * MOST_SMALL + 40
    assert len(shown.body.leaves) > 1.5 * MOST_SMALL


def test_many_blocks_that_come_at_once_are_shown_a_little_at_a_time(shown, monkeypatch):
    made = []
    add = BodyView._add
    monkeypatch.setattr(BodyView, "_add", lambda body, widget: made.append(widget) or add(body, widget))
    monkeypatch.setattr("app.chat.rendering.body_view.SLICE_SECONDS", 0)
    text = "-     x\n" * 200
    shown.body.grow(text[:8])
    shown.body.grow(text)
    assert len(made) <= 3 * MOST_BLOCKS
    while shown.body.text != text:
        before = len(made)
        shown.step(lambda: None)
        assert len(made) - before <= 3 * MOST_BLOCKS
    assert_shown(shown.body)


def test_a_large_block_behind_many_small_ones_has_a_widget(shown):
    code = "x = 1\n" * 40
    text = "```\n```\n\n" * (MOST_SMALL + 20) + "| a | b |\n|---|---|\n| one | two |\n\n```python\n" + code
    for end in range(0, len(text), 100):
        shown.step(partial(shown.body.grow, text[:end]))
    shown.body.grow(text)
    shown.finish()
    assert isinstance(shown.body._parts[-1].widget, CodeView)
    assert shown.body._parts[-1].widget.code == code.rstrip("\n")
    assert "a | b\none | two" in on_screen(shown.body._parts[-2])


def test_any_composition_in_any_pieces(fuzzer, shown):
    for rng in fuzzer.rounds():
        text = composition(rng, rng.choice((200, 1500, 5000)))
        end = 0
        shown.body.set_text("")
        while end < len(text):
            end = min(len(text), end + rng.choice((1, 7, 26, 200, 1500)))
            shown.step(partial(shown.body.grow, text[:end]))
        shown.finish()
        assert shown.body.text == text
        assert_shown(shown.body)
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        assert len(shown.body.findChildren(QWidget)) <= WIDGETS * (MOST_SMALL + len(text) / SMALL)
        shown.step(partial(shown.body.set_text, text))
        while not shown.body.complete:
            shown.step(lambda: None)
        assert_shown(shown.body)
        assert shown.slowest < SECONDS, f"seed {fuzzer.seed}"
