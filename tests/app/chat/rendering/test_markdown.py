"""Markdown leaves: what is kept visible, and that a growing text ends as the same text parsed whole."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it.parser_inline import ParserInline

from app.chat.rendering.markdown import LINE_BREAK, Code, Math, Rule, Span, Table, Text, parse
from app.chat.rendering.markdown_stream import LONGEST_PARAGRAPH, StreamParser


def words(leaf):
    return "".join(span.text for span in leaf.spans)


def stream(text, step):
    """The leaves after feeding `text` in pieces of `step` characters."""
    parser, leaves = StreamParser(), []
    for end in [*range(1, len(text), step), len(text)]:
        keep, new = parser.update(text[:end])
        assert keep <= len(leaves)
        leaves = leaves[:keep] + new
    return leaves


def test_tags_stay_visible():
    text = "Use <b>bold</b>, <script>alert(1)</script> and\n\n<div>\nhello\n</div>"
    assert [words(leaf) for leaf in parse(text)] == [
        "Use <b>bold</b>, <script>alert(1)</script> and",
        LINE_BREAK.join(["<div>", "hello", "</div>"]),
    ]


def test_inline_styles():
    (leaf,) = parse("a **b _c_** ~~d~~ `e*` [f](http://g)")
    assert leaf.spans == (
        Span("a "),
        Span("b ", bold=True),
        Span("c", bold=True, italic=True),
        Span(" "),
        Span("d", strike=True),
        Span(" "),
        Span("e*", code=True),
        Span(" "),
        Span("f", link="http://g"),
    )


def test_an_image_is_only_a_link():
    (leaf,) = parse("![a cat](http://example.org/cat.png)")
    assert leaf.spans == (Span("a cat", link="http://example.org/cat.png"),)


def test_script_links_are_no_links():
    (leaf,) = parse("[click](javascript:alert(1))")
    assert all(not span.link for span in leaf.spans)


def test_lists_carry_markers_depth_and_numbers():
    leaves = parse("3. three\n4. four\n   - inner\n\n- [x] done\n- [ ] open\n-\n")
    assert [(leaf.marker, words(leaf), leaf.indent) for leaf in leaves] == [
        ("3.", "three", 1),
        ("4.", "four", 1),
        ("◦", "inner", 2),
        ("☑", "done", 1),
        ("☐", "open", 1),
        ("•", "", 1),
    ]


def test_a_list_may_start_at_zero():
    assert [leaf.marker for leaf in parse("0. zero\n1. one")] == ["0.", "1."]
    assert [leaf.marker for leaf in stream("0. zero\n1. one\n2. two", 3)] == ["0.", "1.", "2."]


def test_code_inside_a_list_is_a_code_block():
    leaves = parse("1. run\n   ```sh\n   make\n   ```\n2. done")
    assert leaves[1] == Code("make", "sh", indent=1)
    assert (leaves[2].marker, words(leaves[2])) == ("2.", "done")


def test_quotes_and_rules():
    leaves = parse("> a\n> > b\n\n---")
    assert [(words(leaf), leaf.quote) for leaf in leaves[:2]] == [("a", 1), ("b", 2)]
    assert leaves[2] == Rule()


def test_tables_have_full_rows():
    (table,) = parse("| a | b |\n|--:|:-:|\n| 1 |\n| 2 | **3** | 4 |")
    assert isinstance(table, Table)
    assert table.aligns == ("right", "center")
    assert table.rows == (
        ((Span("a"),), (Span("b"),)),
        ((Span("1"),), ()),
        ((Span("2"),), (Span("3", bold=True),)),
    )


@pytest.mark.parametrize("text", ["so $a_1 + b_1$ is", r"so \(a_1 + b_1\) is"])
def test_formulas_are_kept_as_written(text):
    (leaf,) = parse(text)
    assert leaf.spans == (Span("so "), Span("a_1 + b_1", math="inline"), Span(" is"))


@pytest.mark.parametrize("text", ["\\[\na_1\n\\]", "$$\na_1\n$$", "$$a_1$$", "\\[a_1\\]"])
def test_display_formulas_are_blocks(text):
    assert parse(text) == [Math("a_1")]
    before, math, after = parse(f"where\n{text}\nis")
    assert (words(before), math, words(after)) == ("where", Math("a_1"), "is")
    before, math, after = parse(f"where {text} is")
    assert (words(before), math, words(after)) == ("where", Math("a_1"), "is")


def test_a_display_formula_takes_its_punctuation_along():
    assert parse("\\[ a \\].")[-1] == parse("so \\[ a \\].")[-1] == Math("a.")


def test_environments_are_formulas():
    text = "\\begin{align}\na &= b \\\\\nc &= d\n\\end{align}"
    assert parse(f"{text}\nthen")[0] == Math(text)


def test_a_fence_of_math_is_a_formula_once_it_is_closed():
    assert parse("```math\nx_1\n```") == stream("```math\nx_1\n```\n", 1) == [Math("x_1")]
    assert parse("- so\n  ```math\n  x_1\n  ```")[1] == Math("x_1", indent=1)
    assert parse("```math\nx_1") == [Code("x_1", "math", closed=False)]
    assert parse("```math\n```") == [Code("", "math")]
    (leaf,) = parse("so $`a_1`$ is")
    assert leaf.spans == (Span("so "), Span("a_1", math="inline"), Span(" is"))


def test_formulas_in_lists_and_quotes_keep_their_place():
    assert parse("1. so\n   $$\n   a\n   $$\n   is")[1] == Math("a", indent=1)
    assert parse("> \\[\n> a\n> \\]")[0] == Math("a", quote=1)


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5, not $10.",
        "$5-$10, US$5 or A$6; $100 million against $2",
        "It costs $5 for one and then some 6$ more",
        "$HOME/$USER",
        "$ a $ b",
        "half of $a_1",
        "$$ half",
        "$",
        "$$$$",
    ],
)
def test_money_and_halves_are_no_formulas(text):
    (leaf,) = parse(text)
    assert leaf.spans == (Span(text),)


@pytest.mark.parametrize(("text", "after"), [("$x$는", "는"), ("$n$th", "th"), ("$x$-axis", "-axis")])
def test_a_formula_may_be_part_of_a_word(text, after):
    (leaf,) = parse(text)
    assert [span.text for span in leaf.spans] == [text[1], after]


def test_footnotes_stay_where_they_were_written():
    leaves = parse("Said[^1] so.\n\n[^1]: one *day*\n[^n]: single\nand more")
    assert leaves[0].spans[1] == Span("1", raised=True)
    assert [(leaf.marker, words(leaf)) for leaf in leaves[1:]] == [
        ("1", "one day"),
        ("n", f"single{LINE_BREAK}and more"),
    ]
    assert [leaf.marker for leaf in stream("Said[^1].\n\n[^1]: one\n[^2]: two\n", 3)] == ["", "1", "2"]


@pytest.mark.parametrize(
    "text", ["안녕하세요 **세계**", "שלום **עולם**", "👩‍👩‍👧‍👦 **🇰🇷**", "\ud800".encode("utf-8", "replace").decode()]
)
def test_any_script(text):
    (leaf,) = parse(text)
    assert words(leaf) == text.replace("**", "")


def test_an_open_fence_is_code_already():
    assert parse("```python\nx = 1\n``") == [Code("x = 1", "python", closed=False)]
    assert parse("```python\nx = 1\n```") == [Code("x = 1", "python")]
    assert stream("```python\nx = 1\n\ny", 1) == [Code("x = 1\n\ny", "python", closed=False)]
    assert stream("````\n```\n````\nafter", 1) == [Code("```"), *parse("after")]


BLOCKS = st.sampled_from(
    [
        "A paragraph with **bold**, `code` and <tags>.\nSecond line.",
        "# Heading",
        "Setext\n===",
        "> [!WARNING]\n> **주의:**https://example.org/a 를",
        "a<br>b<sub>1</sub>\n| a | b |\n|---|---|\n| $|x|$ | `y|z` |",
        "- $$a=b$$\n- > quoted\n  - > deeper",
        "- one\n- two\n  - inner\n\n  more of two\n- three",
        "* star\n\n* loose",
        "1. a\n1. b\n1. c",
        "7) seven\n8) eight\n   ```c\n   int x;\n   ```\n9) nine",
        "- [ ] open\n- [x] done",
        "> quoted\n> - in a list\n\n> again",
        "```python\ndef f():\n\n    return '```'\n```",
        "~~~\ntildes\n~~~",
        "    indented code\n\n    goes on",
        "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 |",
        "---",
        "\\[\nx_1\n\\]",
        "\\[\nx_1\n\\]",
        "so\n$$\nx_1\n$$\nand $y$ too",
        "\\begin{align}\na\n\\end{align}",
        "$$\nhalf of a formula",
        "Said[^1].\n\n[^1]: a footnote\n[^2]: another\nof two lines",
        "\r\nwindows\r\nlines",
    ]
)


@settings(deadline=None)
@given(st.lists(BLOCKS, max_size=6), st.integers(1, 40), st.booleans())
def test_a_growing_text_ends_as_the_whole(blocks, step, spaced):
    text = ("\n\n" if spaced else "\n").join(blocks)
    assert stream(text, step) == parse(text)


@settings(deadline=None)
@given(st.text(alphabet="ab *_`~[]()<>#-1.\n|>$\\", max_size=80), st.integers(1, 9))
def test_a_growing_text_never_fails(text, step):
    stream(text, step)
    parse(text)


def test_only_the_last_block_is_parsed_again():
    parser = StreamParser()
    text = "one\n\n- a\n- b\n- c\nstill c"
    parser.update(text)
    keep, new = parser.update(text + "!")
    assert keep == 3
    assert [words(leaf) for leaf in new] == [f"c{LINE_BREAK}still c!"]


def test_an_endless_paragraph_is_cut_and_nothing_is_lost():
    text = "word " * 5000
    leaves = stream(text, 500)
    assert " ".join(words(leaf).strip() for leaf in leaves) == text.strip()
    assert all(len(words(leaf)) <= LONGEST_PARAGRAPH + 500 for leaf in leaves)
    assert all(isinstance(leaf, Text) for leaf in leaves)


def test_an_endless_paragraph_of_lines_is_cut_between_lines():
    line = "They are going to find something evermore."
    leaves = stream((line + "\n") * 400, 130)
    assert len(leaves) > 3
    assert {part for leaf in leaves for part in words(leaf).strip(LINE_BREAK).split(LINE_BREAK)} == {line}


def test_late_link_definitions_ask_for_a_second_pass():
    parser = StreamParser()
    text = "see [1]\n\nmore\n\n[1]: http://example.org"
    for end in range(len(text) + 1):
        parser.update(text[:end])
    assert parser.needs_second_pass
    assert parse(text)[0].spans[-1].link == "http://example.org"


@pytest.mark.parametrize("sign", ["[", "*a ", "_a", "`a", "$", "~~a", "[a](", "![", "$x$ "])
def test_signs_repeated_endlessly_are_shown_as_written(sign, monkeypatch):
    """Looking for what each of them might open would take minutes."""
    looked = []
    real = ParserInline.parse
    monkeypatch.setattr(
        ParserInline, "parse", lambda self, src, *rest: looked.append(len(src)) or real(self, src, *rest)
    )
    text = sign * 20_000
    assert "".join(words(leaf) for leaf in parse(text)).replace(" ", "") == text.replace(" ", "")
    assert not looked or max(looked) <= 2 * LONGEST_PARAGRAPH
    assert parse("*a* " * 900)[0].spans[0].italic, "as many as people write are looked at"


@pytest.mark.parametrize("sign", [">", "> ", "- ", "1. ", "> - "])
def test_nothing_is_left_out_however_deep_it_stands(sign):
    *_, deepest = parse(sign * 200 + "words")
    assert "words" in "".join(span.text for span in deepest.spans)


def test_each_line_of_a_very_deep_list_is_shown():
    leaves = parse("".join("  " * depth + f"- item {depth}\n" for depth in range(60)))
    text = "\n".join(span.text for leaf in leaves for span in leaf.spans)
    assert all(f"item {depth}" in text for depth in range(60))
