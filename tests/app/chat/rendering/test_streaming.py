"""A long answer costs the window little while it is written, and leaves nothing behind. Counted, not timed."""

from __future__ import annotations

import gc
import threading
from collections import Counter

from long_answers import FRAME, SECTION
from PySide6.QtCore import QCoreApplication, QEvent, QObject, QTimer
from PySide6.QtWidgets import QApplication

from app import tasks
from app.chat.formulas import math_store
from app.chat.formulas.math_object import FormulaObjects
from app.chat.page import ChatPage
from app.chat.rendering import body_view
from app.chat.rendering.body_view import SLICE, BodyView
from app.chat.rendering.markdown import parse
from app.chat.rendering.rich_text import PARAGRAPH_GAP, TextView

MIXED = "".join(SECTION.format(n=n) for n in range(60))


def test_a_part_that_grows_asks_no_other_part_for_its_place(qtbot, monkeypatch):
    """Thousands of formulas may stand above it."""
    body = BodyView()
    qtbot.addWidget(body)
    body.set_width(600)
    text = "".join(f"$$\nx_{{{n}}}\n$$\n\n" for n in range(60))
    body.grow(text)
    tasks.finish()
    moved = Counter()
    for part in body._parts:
        monkeypatch.setattr(part.widget, "move", lambda x, y, part=part: moved.update([part.first]))
    body.grow(text + "The end")
    body.grow(text + "The end of it.")
    assert sum(moved.values()) <= 4


def test_formulas_that_are_laid_out_together_move_what_is_below_once(qtbot, monkeypatch):
    body = BodyView()
    qtbot.addWidget(body)
    body.set_width(600)
    text = "".join(f"$$\n\\frac{{{n}}}{{z}} + w_{{{n}}}\n$$\n\n" for n in range(40))
    for end in range(0, len(text), 100):
        body.grow(text[:end])
    body.grow(text)
    placed, asked = [], Counter()
    original, show = BodyView._place, FormulaObjects._show_ready
    monkeypatch.setattr(BodyView, "_place", lambda self, first: placed.append(first) or original(self, first))
    monkeypatch.setattr(FormulaObjects, "_show_ready", lambda self: asked.update([id(self)]) or show(self))
    tasks.finish()
    assert len(placed) <= 40 / math_store.BATCH + 1
    # Nobody is asked for formulas that others wait for.
    assert set(asked.values()) <= {1}
    bottom = -PARAGRAPH_GAP
    for part in body._parts:
        assert part.widget.y() == bottom + PARAGRAPH_GAP
        bottom = part.widget.y() + part.widget.height()
    assert body.height() == bottom


def test_much_text_at_once_is_laid_out_in_slices_while_more_comes(qtbot, monkeypatch):
    """As when the chat is opened again in which an answer is being written."""
    body = BodyView()
    qtbot.addWidget(body)
    body.set_width(600)
    shown = []
    original = BodyView._show
    monkeypatch.setattr(
        BodyView, "_show", lambda self, text: shown.append(len(text) - len(self._text)) or original(self, text)
    )
    monkeypatch.setattr(body_view, "SLICE_SECONDS", 0)
    text = MIXED[:13_500] + "\n\n[late]: https://example.org/late\n"
    body.grow(text[:12_000])
    assert len(body.text) == SLICE
    body.grow(text[:13_000])
    qtbot.waitUntil(lambda: body.text == text[:13_000])
    assert body.complete
    body.grow(text[:13_026])
    body.grow(text)
    assert body.text == text, "a little is shown at once"
    body.grow(text)
    body.finish()
    qtbot.waitUntil(lambda: body.complete)
    assert list(body.leaves) == parse(text)
    assert max(shown[:-1]) <= SLICE
    assert shown[-2:] == [26, len(text) - 13_026]
    again = BodyView()
    qtbot.addWidget(again)
    again.set_width(600)
    again.grow("[late]\n\n" + text)
    again.finish()
    assert not again.complete
    qtbot.waitUntil(lambda: again.complete)
    assert list(again.leaves) == parse("[late]\n\n" + text)
    again.grow("Something else")
    assert list(again.leaves) == parse("Something else")


def test_parts_stand_one_below_the_other(qtbot):
    body = BodyView()
    qtbot.addWidget(body)
    body.set_width(600)
    text = MIXED[:1500]
    for end in range(FRAME, len(text) + FRAME, FRAME):
        body.grow(text[:end])
    tasks.finish()
    body.set_width(400)
    bottom = -PARAGRAPH_GAP
    for part in body._parts:
        assert part.widget.y() == bottom + PARAGRAPH_GAP
        assert part.widget.geometry().right() == 399
        bottom = part.widget.y() + part.widget.height()
    assert body.height() == bottom


def test_a_paragraph_that_grows_looks_like_one_written_at_once(qtbot):
    text = (
        "**One** 👩‍👩‍👧 $x_1$ and `two`\nthen $\\frac{1}{2}$ [three](https://example.org) and *four* עברית at the end."
    )
    grown, whole = TextView(), TextView()
    for view in (grown, whole):
        qtbot.addWidget(view)
        view.set_width(300)
    for end in range(1, len(text) + 1):
        grown.change(0, parse(text[:end]))
        if end % 20 == 0:
            tasks.finish()
    whole.change(0, parse(text))
    tasks.finish()
    for view in (grown, whole):
        view.selectAll()
    assert grown.createMimeDataFromSelection().text() == whole.createMimeDataFromSelection().text()
    assert grown.document().size() == whole.document().size()
    assert grown.toPlainText() == whole.toPlainText()


def test_an_empty_item_keeps_its_marker_while_the_next_one_grows(qtbot):
    view = TextView()
    qtbot.addWidget(view)
    view.set_width(300)
    for text in ("1. a\n2.\n3.", "1. a\n2.\n3. b", "1. a\n2.\n3. b **c**"):
        leaves = parse(text)
        view.change(min(view.count, 2), leaves[min(view.count, 2) :])
    view.selectAll()
    assert view.createMimeDataFromSelection().text() == "1. a\n2. \n3. b c"


def test_a_sign_that_ends_blocks_is_a_new_line_within_its_own(qtbot):
    view = TextView()
    qtbot.addWidget(view)
    view.set_width(300)
    view.change(0, parse("- a\u2029b\ufdd0c\ufffce $x\u2029y$\n- d"))
    assert view.document().blockCount() == 2
    view.selectAll()
    assert view.createMimeDataFromSelection().text() == "• a\nb\nc\ufffde x\ny\n• d"


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
    text = MIXED[: len(MIXED) // 6]
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
                host.say(MIXED[start : start + 150])
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
