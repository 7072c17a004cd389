"""Markdown that grows costs its last block, and reads at its end as the whole. Counted, not timed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from long_answers import FRAME, SECTION

from app.chat.rendering import markdown, markdown_stream
from app.chat.rendering.markdown import LINE_BREAK, Text, parse
from app.chat.rendering.markdown_stream import LONGEST_PARAGRAPH, MOST_BLANKS, StreamParser

KINDS = {
    "mixed": "".join(SECTION.format(n=n) for n in range(60)),
    "table": "| a | b |\n|---|---|\n" + "".join(f"| {n} | **two** |\n" for n in range(1200)),
    "list": "".join(f"- item {n} with `code`\n" for n in range(1200)),
    "code": "```python\n" + "value = compute(a, b)  # a comment\n" * 800,
    "quote": "".join(f"> said {n} times; then he went on\n" for n in range(700)),
    "quoted list": "".join(f"> {n}. item {n} with `code`\n" for n in range(1000)),
    "loop": "They are going to find something evermore. " * 600,
}


def read(text, ends, references=None):
    """What a parser makes of a text that grows to these ends -> (the parser, leaves)."""
    parser, leaves = StreamParser(references), []
    for end in ends:
        keep, new = parser.update(text[:end])
        leaves[keep:] = new
    return parser, leaves


def streamed(text, ends):
    """The leaves at the end, when what was defined late has been found too."""
    parser, leaves = read(text, ends)
    return read(text, ends, parser.references)[1] if parser.needs_second_pass else leaves


def steps(text, step):
    return [*range(step, len(text), step), len(text)]


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


def without_marker(leaf):
    return replace(leaf, marker="") if isinstance(leaf, Text) else leaf


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
    assert list(map(without_marker, leaves)) == list(map(without_marker, whole))


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
    "items": "".join(f"- [name {n}]: https://example.org/{n}\n" for n in range(1000)),
}
DEFINED_WITHIN = {
    "item": "- a\n\n" + "".join(f"  [name {n}]: https://example.org/{n}\n" for n in range(400)),
    "item that begins with one": "-" + "".join(f" [name {n}]: https://example.org/{n}\n " for n in range(400)),
    "item of nothing else": "1.\n" + "".join(f"   [name {n}]: https://example.org/{n}\n" for n in range(400)),
    "item apart": "1. a\n\n" + "".join(f"   [name {n}]: https://example.org/{n}\n\n" for n in range(400)),
    "quoted item": "> - a\n>\n" + "".join(f">   [name {n}]: https://example.org/{n}\n" for n in range(400)),
    "quote in an item": "- a\n\n" + "".join(f"  > [name {n}]: https://example.org/{n}\n" for n in range(400)),
    "nested": "- a\n  - b\n\n" + "".join(f"    [name {n}]: https://example.org/{n}\n" for n in range(400)),
    "items of an item": "- a\n" + "".join(f"  - [name {n}]: https://example.org/{n}\n" for n in range(400)),
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


@pytest.mark.parametrize("kind", DEFINED_WITHIN)
def test_definitions_within_items_are_settled_there(kind, monkeypatch):
    """Below 2,500 characters an item is read as one, whatever stands in it."""
    text, parsed = DEFINED_WITHIN[kind] + "\n[name 7], [name 399]", []
    original = markdown.PARSER.parse
    monkeypatch.setattr(
        markdown.PARSER, "parse", lambda source, env: parsed.append(len(source)) or original(source, env)
    )
    parser, leaves = read(text, steps(text, 3 * FRAME))
    assert max(parsed) <= LONGEST_PARAGRAPH + 12 * FRAME
    assert sum(parsed) <= 1.5 * LONGEST_PARAGRAPH * len(text) / (3 * FRAME)
    monkeypatch.undo()
    if parser.needs_second_pass:
        leaves = read(text, steps(text, 3 * FRAME), parser.references)[1]
    assert leaves == parse(text)
    assert sum(bool(span.link) for span in leaves[-1].spans) == 2


@pytest.mark.parametrize(
    "text",
    [
        "a b\n[r]: https://example.org\n\nSee [r].",
        "```\n[r]: https://example.org\n```\n\nSee [r].",
        "# Head\n[r]: https://example.org\n[s]: https://example.org\n\nSee [r], [s].",
    ],
)
def test_what_only_looks_like_a_definition_is_none(text):
    assert streamed(text, [len(text)]) == parse(text)


@pytest.mark.parametrize("kind", ["mixed", "table", "list", "quoted list"])
def test_what_was_streamed_reads_as_the_whole(kind):
    text, parser, leaves = KINDS[kind], StreamParser(), []
    for end in [*range(FRAME, len(text), FRAME), len(text)]:
        keep, new = parser.update(text[:end])
        leaves = leaves[:keep] + new
    assert leaves == parse(text)


#: Lines of every kind, to stand below each other in any order.
LINES = [
    *("a b", "", "said[^1] so", "https://example.org and <br> a", "<div>", "</div>", "<think>", "</think>"),
    *("- x y", "  - deep er", "    1. one", "  more text", "1. n n", "7) seven", "- [x] t", "- ", "1.", "* star"),
    *("> q q", "> - l l", ">", "> > two", "  > in", "# head", "***", "---", "===", "    indented", "\ttab"),
    *("| a | b |", "|---|---|", "| 1 | 2 |", "  | a | b |", "  |---|---|", "| $x$ | [r] |", "| 1 |"),
    *("```py", "code()", "```", "  ```", "~~~", "```math"),
    *("$$", "x = 1", "\\[", "\\]", "\\begin{align}", "\\end{align}", "$$ x $$", "$$ z", "  $$", "> $$", " | $$ | a"),
    *(
        "**'a'**는 b",
        "> [!NOTE]",
        "> [!tip] b",
        "- > [!NOTE]",
        "| $|x|$ | 1 |",
        "| `a|b` | 1 |",
        "www.example.org/a_b,",
    ),
    *("H<sub>2</sub>O", "a<br>", "<br>", "<sup>", "- $$x$$ so", "- - $$x$$", "1. $$", "> - > a", "- a\n  - > b"),
    *("$$x$$", "  $$x$$", "- $$x$$", "$$ x $$ and", "- $y$", "\\[x\\]", "\\(x\\) is"),
    *("[r] and [t][r]", "![i][r]", "[r]: /x", "  [r]: /y", "> [r]: /q", "- [r]: /item", "[s]: /s", "[r]:", '"title"'),
    *('[r]: <a b> "t"', "[r]: /x 'half", "half'"),
    *("[^1]: note", "[^1]: note $x$", "  [^2]: in an item", "> [^1]: quoted"),
]


@given(st.lists(st.sampled_from(LINES), min_size=2, max_size=12), st.integers(1, 30))
@example(["```", "code()", "", ""], 5).via("empty lines at the end of a block that is not closed")
@example(["a b", "$$", "$$", "> q q", "a b", "$$"], 7).via("a formula that begins where an empty one ends")
@example(["| a | b |", "|---|---|", "$$", "- x y", "$$"], 1).via("a formula right below a table")
@example(["a b", "$$", "- x y", "$$ x $$"], 1).via("what looked like a formula's end is another's beginning")
@example(["$$ z", "$$ z", "$$ z"], 2).via("words behind a formula make it none")
@example(["> $$", "> q q", "$$", "a b", "> $$"], 8).via("a formula does not go on where its quote ends")
@example(["|---|---|", "|---|---|", "$$", " | $$ | a"], 2).via("a row that is a formula until its end")
@example(["```", "```", "- a", *[""] * 300, "  b"], 9).via("many empty lines within an item")
@example(["a b", "[r]: /x", "$$ x $$", "[r]: /y", "[r]"], 2).via("a definition right below a formula")
@example(["[r]", "- x y", "> [r]: /q"], 1).via("a definition right below a list")
@example(["[r]", "# head", "[r]: /x"], 17).via("half of a definition was known when what refers to it was settled")
@example(["[r]:", "# head", "[r]: /x 'half"], 13).via("what was a definition for a while is none")
@example(["[r]", "|---|---|", "|---|---|", "$$", "```", "```", "[r]: /x"], 2).via("a definition below an open table")
@example(["| a | b |", "|---|---|", "**'a'**는 b", "x = 1"], 1).via("a row that looks like a list when it begins")
@settings(max_examples=100, deadline=None)
def test_lines_of_any_kind_read_as_the_whole(lines, step):
    text = "\n".join([*lines, ""])
    assert streamed(text, steps(text, step)) == parse(text)


@given(st.lists(st.sampled_from(LINES), min_size=2, max_size=12), st.data())
@settings(max_examples=60, deadline=None)
def test_what_comes_in_pieces_of_any_size_reads_as_the_whole(lines, data):
    text = "\n".join([*lines, ""])
    ends = data.draw(st.lists(st.integers(1, len(text)), max_size=9))
    assert streamed(text, [*sorted(ends), len(text)]) == parse(text)


WITHIN_ITEMS = [
    *(
        "- x y",
        "  more words",
        "  [r]: /x",
        "  [s]: /s",
        "-",
        "1. n n",
        "1.",
        "   [t]: /t",
        "   three [t]",
        "",
        "- [w]: /w",
    ),
    *("  - deep", "    [u]: /u", "    deep words", "    - deeper", "      [v]: /v", "  | a | b |", "  |---|---|"),
    *("  | [r] | [u] |", "  $$x$$", "  $$", "  [^1]: note", "> - q", ">   [q]: /q", ">   words [q]", ">", "  # h"),
    *("  [r]", "  ```", "[z]: /z", "  > in a quote", "  > [v]: /v", "  1. in", "     [k]: /k"),
]


@given(st.lists(st.sampled_from(WITHIN_ITEMS), min_size=3, max_size=14), st.integers(1, 30))
@example(["-", "  # h", "   [t]: /t", "    - deeper"], 7).via("an item with nothing behind its sign")
@example(["- x y", "  [r]: /x", "", "  [r]", "", "  [r]"], 3).via("what was defined in the item is known further below")
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_items_that_are_taken_apart_read_as_the_whole(monkeypatch, lines, step):
    """As if each of them were a long one. A number in the text counts where a list is taken up again."""
    text = "\n".join([*lines, ""])
    with monkeypatch.context() as patch:
        patch.setattr(markdown_stream, "LONGEST_PARAGRAPH", 20)
        patch.setattr(StreamParser, "_cut_paragraph", lambda self, walker, tokens, tail, leaves: leaves)
        leaves = streamed(text, steps(text, step))
    assert list(map(without_marker, leaves)) == list(map(without_marker, parse(text)))


QUOTED = ["> a\n", ">\n", "> - x\n", "> 1. y\n", ">   more\n", "lazy\n", "\n", "> > z\n", ">> - q\n", ">   - below\n"]
QUOTED += ["> # h\n", "> $$\n", "> ```\n", "- l\n", "  > w\n", ">     code\n", "> |a|b|\n", "> |-|-|\n", "> ***\n"]


@given(st.lists(st.sampled_from(QUOTED), min_size=3, max_size=9), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_quotes_of_any_kind_read_as_the_whole(lines, step):
    text = "".join(lines)
    assert streamed(text, steps(text, step)) == parse(text)
