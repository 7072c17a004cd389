"""A long answer costs the window little while it is written, and leaves nothing behind. Counted, not timed."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QCoreApplication, QEvent, QObject, QTimer
from PySide6.QtWidgets import QApplication

from app import tasks
from app.chat import markdown, math_store
from app.chat.body_view import BodyView
from app.chat.markdown import LINE_BREAK, Text, parse
from app.chat.markdown_stream import LONGEST_PARAGRAPH, MOST_BLANKS, StreamParser
from app.chat.math_object import FormulaObjects
from app.chat.page import ChatPage
from app.chat.rich_text import PARAGRAPH_GAP, TextView

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
    "quote": "".join(f"> said {n} times; then he went on\n" for n in range(700)),
    "quoted list": "".join(f"> {n}. item {n} with `code`\n" for n in range(1000)),
    "loop": "They are going to find something evermore. " * 600,
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_is_being_written_is_parsed_again(kind, monkeypatch):
    text, parsed = KINDS[kind], []
    original = markdown.PARSER.parse

    def count(source, env):
        parsed.append(len(source))
        return original(source, env)

    monkeypatch.setattr(markdown.PARSER, "parse", count)
    parser = StreamParser()
    for end in range(FRAME, len(text) + FRAME, FRAME):
        parser.update(text[:end])
    longest_block = LONGEST_PARAGRAPH if kind in ("loop", "quote") else 400
    assert max(parsed) <= 2 * longest_block + FRAME
    assert len(parsed) <= 1.5 * len(text) / FRAME
    # A block is parsed again for each frame in which it grows, and no more often.
    assert sum(parsed) <= (2 + longest_block / FRAME) * len(text)


ENDLESS = {
    "word": "abcdefghijklmnopqrstuvwxyz",
    "Chinese": "每一个字都可以换行，所以这一段没有空格。",
    "emoji": "👩‍👩‍👧‍👦🏳️‍🌈👍🏽",
    "marks": "e" + "\u0301" * 300,
    "brackets": "[",
    "tags": "<tag> & </tag> ",
    "less": "<",
    "autolinks": "<https://example.org/1>\n",
    "images": "![picture](https://example.org/1.png) ",
    "joiners": "\u200d",
    "surrogates": "\ud83d \udc4d",
}
WITHIN = {
    "nothing": "",
    "item": "- ",
    "second item": "3. a\n7. ",
    "nested": "- a\n  - ",
    "quote": "> ",
    "item in quote": "> - a\n>\n>   ",
}


@pytest.mark.parametrize("within", WITHIN)
@pytest.mark.parametrize("kind", ENDLESS)
def test_a_paragraph_without_end_is_cut_wherever_it_stands(kind, within, monkeypatch):
    text, parsed = WITHIN[within] + ENDLESS[kind] * (15_000 // len(ENDLESS[kind])), []
    original = markdown.PARSER.parse
    monkeypatch.setattr(
        markdown.PARSER, "parse", lambda source, env: parsed.append(len(source)) or original(source, env)
    )
    parser, leaves = StreamParser(), []
    for end in [*range(150, len(text), 150), len(text)]:
        keep, new = parser.update(text[:end])
        leaves[keep:] = new
    assert max(parsed) <= LONGEST_PARAGRAPH + 400
    first = next(n for n, leaf in enumerate(leaves) if len(leaf.spans) > 1 or len(leaf.spans[0].text) > 1)
    # What follows a cut stands in the same place, without a marker of its own.
    assert len({(leaf.indent, leaf.quote) for leaf in leaves[first:]}) == 1
    assert not any(leaf.marker for leaf in leaves[first + 1 :])

    def signs(spans):
        return "".join(span.text for span in spans).replace(LINE_BREAK, "").replace(" ", "")

    whole = original(text, {})
    assert len(leaves) - first > 3
    if kind not in ("tags", "autolinks", "images"):
        assert whole
        assert "".join(signs(leaf.spans) for leaf in leaves[first:]) == text[len(WITHIN[within]) :].replace(" ", "")
    else:
        words = {word for leaf in leaves[first:] for span in leaf.spans for word in span.text.split()}
        assert words <= {"<tag>", "&", "</tag>", "https://example.org/1", "picture", LINE_BREAK}


@pytest.mark.parametrize(
    ("first", "more"),
    [
        ("- so:\n\n  | a | b |\n  |---|---|\n", "  | 1 | two |\n"),
        ("> | a | b |\n> |---|---|\n", "> | 1 | two |\n"),
        ("2. so\n7. so:\n\n", "   A paragraph of the item that goes on.\n\n"),
        ("- a\n", "  - below\n"),
        ("> - a\n", ">   - below\n"),
        ("1. a\n", "   1. below\n"),
        ("7. a\n\n", "   3. below\n"),
    ],
)
def test_what_grows_within_an_item_or_a_quote_is_settled_there(first, more, monkeypatch):
    text, parsed = first + more * (9_000 // len(more)) + "\n8. the next\n\nThe end.", []
    original = markdown.PARSER.parse
    monkeypatch.setattr(
        markdown.PARSER, "parse", lambda source, env: parsed.append(len(source)) or original(source, env)
    )
    parser, leaves = StreamParser(), []
    for end in [*range(3 * FRAME, len(text), 3 * FRAME), len(text)]:
        keep, new = parser.update(text[:end])
        leaves[keep:] = new
    assert max(parsed) <= LONGEST_PARAGRAPH + 12 * FRAME
    monkeypatch.undo()
    whole = parse(text)
    # A number in the text counts where a list was taken up again.
    assert [replace(leaf, marker="") if isinstance(leaf, Text) else leaf for leaf in leaves] == [
        replace(leaf, marker="") if isinstance(leaf, Text) else leaf for leaf in whole
    ]


def test_items_of_an_item_keep_their_numbers_when_they_are_settled():
    text = "4. a\n" + "   1. below\n" * 400
    parser, leaves = StreamParser(), []
    for end in [*range(3 * FRAME, len(text), 3 * FRAME), len(text)]:
        keep, new = parser.update(text[:end])
        leaves[keep:] = new
    assert [leaf.marker for leaf in leaves] == ["4.", *(f"{n}." for n in range(1, 401))]


DEFINITIONS = {
    "different": "".join(f"[name {n}]: https://example.org/{n}\n" for n in range(1500)),
    "apart": "".join(f"[name {n}]: https://example.org/{n}\n\n" for n in range(1500)),
    "the same": "[name]: https://example.org\n" * 1500,
    "quoted": "".join(f"> [name {n}]: https://example.org/{n}\n" for n in range(1500)),
}


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_definitions_of_links_are_settled_though_they_show_nothing(kind, monkeypatch):
    text, parsed = DEFINITIONS[kind] + "\n[name 7], [name]", []
    original = markdown.PARSER.parse
    monkeypatch.setattr(
        markdown.PARSER, "parse", lambda source, env: parsed.append(len(source)) or original(source, env)
    )
    parser, leaves = StreamParser(), []
    for end in [*range(FRAME, len(text), FRAME), len(text)]:
        keep, new = parser.update(text[:end])
        leaves[keep:] = new
    assert max(parsed) <= 8 * FRAME
    monkeypatch.undo()
    assert leaves == parse(text)
    assert any(span.link for span in leaves[-1].spans)


def test_lines_that_end_without_end_are_not_read_again(monkeypatch):
    parsed = []
    original = markdown.PARSER.parse
    monkeypatch.setattr(
        markdown.PARSER, "parse", lambda source, env: parsed.append(len(source)) or original(source, env)
    )
    parser = StreamParser()
    for end in range(0, 9000, FRAME):
        parser.update("- words\n" + "\n" * end)
    assert max(parsed) <= MOST_BLANKS + 2 * FRAME


def test_definitions_in_an_item_are_no_part_of_its_text():
    text = "- a\n\n" + "".join(f"  [name {n}]: https://example.org/{n}\n" for n in range(100))
    parser, leaves = StreamParser(), []
    for end in [*range(3 * FRAME, len(text), 3 * FRAME), len(text)]:
        keep, new = parser.update(text[:end])
        leaves[keep:] = new
    assert leaves == parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "a b\n[r]: https://example.org\n\nSee [r].",
        "```\n[r]: https://example.org\n```\n\nSee [r].",
        "# Head\n[r]: https://example.org\n[s]: https://example.org\n\nSee [r], [s].",
    ],
)
def test_what_only_looks_like_a_definition_is_none(text):
    assert StreamParser(text).update(text)[1] == parse(text)


@pytest.mark.parametrize("kind", ["mixed", "table", "list", "quoted list"])
def test_what_was_streamed_reads_as_the_whole(kind):
    text, parser, leaves = KINDS[kind], StreamParser(), []
    for end in [*range(FRAME, len(text), FRAME), len(text)]:
        keep, new = parser.update(text[:end])
        leaves = leaves[:keep] + new
    assert leaves == parse(text)


BLOCKS = [
    "a b\n",
    "\n",
    "- x y\n",
    "  - deep er\n",
    "    1. one\n",
    "  more text\n",
    "> q q\n",
    "> - l l\n",
    "1. n n\n",
]
BLOCKS += [
    "| a | b |\n",
    "|---|---|\n",
    "| 1 | 2 |\n",
    "  | a | b |\n",
    "  |---|---|\n",
    "```py\n",
    "code()\n",
    "```\n",
    "  ```\n",
]
BLOCKS += ["# head\n", "- [x] t\n", "***\n"]
BLOCKS += ["$$\n", "x = 1\n", "\\[\n", "\\]\n", "\\begin{align}\n", "\\end{align}\n", "$$ x $$\n", "$$ z\n", "  $$\n"]
BLOCKS += ["> $$\n", " | $$ | a\n"]


@given(st.lists(st.sampled_from(BLOCKS), min_size=3, max_size=12), st.integers(1, 30))
@example(["```\n", "code()\n", "\n", "\n"], 5).via("empty lines at the end of a block that is not closed")
@example(["a b\n", "$$\n", "$$\n", "> q q\n", "a b\n", "$$\n"], 7).via("a formula that begins where an empty one ends")
@example(["| a | b |\n", "|---|---|\n", "$$\n", "- x y\n", "$$\n"], 1).via("a formula right below a table")
@example(["a b\n", "$$\n", "- x y\n", "$$ x $$\n"], 1).via("what looked like a formula's end is another's beginning")
@example(["$$ z\n", "$$ z\n", "$$ z\n"], 2).via("words behind a formula make it none")
@example(["> $$\n", "> q q\n", "$$\n", "a b\n", "> $$\n"], 8).via("a formula does not go on where its quote ends")
@example(["|---|---|\n", "|---|---|\n", "$$\n", " | $$ | a\n"], 2).via("a row that is a formula until its end")
@example(["\n", "  more text\n", "| 1 |", "\n", "  |---|---|\n"], 26).via("what looked like a table's head")
@example(["```\n", "```\n", "- a\n", "\n" * 300, "  b\n"], 9).via("many empty lines within an item")
@settings(max_examples=60, deadline=None)
def test_blocks_of_any_kind_read_as_the_whole(blocks, step):
    text, leaves = "".join(blocks), []
    parser = StreamParser(text)
    for end in [*range(step, len(text), step), len(text)]:
        keep, new = parser.update(text[:end])
        leaves[keep:] = new
    assert leaves == parse(text)


QUOTED = ["> a\n", ">\n", "> - x\n", "> 1. y\n", ">   more\n", "lazy\n", "\n", "> > z\n", ">> - q\n", ">   - below\n"]
QUOTED += ["> # h\n", "> $$\n", "> ```\n", "- l\n", "  > w\n", ">     code\n", "> |a|b|\n", "> |-|-|\n", "> ***\n"]


@given(st.lists(st.sampled_from(QUOTED), min_size=3, max_size=9), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_quotes_of_any_kind_read_as_the_whole(lines, step):
    text, parser, leaves = "".join(lines), StreamParser(), []
    for end in [*range(step, len(text), step), len(text)]:
        keep, new = parser.update(text[:end])
        leaves = leaves[:keep] + new
    assert leaves == parse(text)


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
    body.grow("".join(f"$$\n\\frac{{{n}}}{{z}} + w_{{{n}}}\n$$\n\n" for n in range(40)))
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


def test_parts_stand_one_below_the_other(qtbot):
    body = BodyView()
    qtbot.addWidget(body)
    body.set_width(600)
    text = KINDS["mixed"][:1500]
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
