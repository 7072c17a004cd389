"""Tables as GitHub reads them, but for pipes within code and formulas."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from app.chat.rendering.cost import SIGN
from app.chat.rendering.markdown import LINE_BREAK, PARSER, Span, Table, parse
from app.chat.rendering.markdown_stream import StreamParser
from app.chat.rendering.markdown_tables import COSTLIEST_ROW, MOST_CELLS, MOST_COLUMNS, MOST_LEFT_OUT


def rows(text):
    (table,) = parse(text)
    assert isinstance(table, Table)
    return [["".join(span.text for span in cell) for cell in row] for row in table.rows]


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        ("| $|x|$ | one |", ["|x|", "one"]),
        ("| `x|y` | one |", ["x|y", "one"]),
        ("| ``a|`b`` | \\(|y|\\) |", ["a|`b", "|y|"]),
        ("| $$|x|$$ | `|` |", ["|x|", "|"]),
        ("`a|b`|c", ["a|b", "c"]),
        # As GitHub has it where the row has as many cells as the head.
        ("| `a | b` |", ["`a", "b`"]),
        ("| a \\| b | c |", ["a | b", "c"]),
        ("| $5 | $6 | 7 |", ["$5", "$6"]),
        ("| a | b | c |", ["a", "b"]),
        ("| a |", ["a", ""]),
    ],
)
def test_code_and_formulas_keep_their_pipes_where_there_would_be_too_many_cells(row, cells):
    assert rows(f"| a | b |\n|---|---|\n{row}") == [["a", "b"], cells]


def test_a_head_keeps_them_too():
    (table,) = parse("| $|x|$ | `a|b` |\n|:-:|--:|\n| 1 | 2 |")
    assert [cell[0] for cell in table.rows[0]] == [Span("|x|", math="inline"), Span("a|b", code=True)]
    assert table.aligns == ("center", "right")


@given(
    st.lists(
        st.sampled_from(["|", "-", ":", " ", "a", "\\", "---", "| a ", "|--", "\n", "\n|", "> ", "- ", "    ", "\t"]),
        max_size=24,
    )
)
def test_without_code_and_formulas_tables_are_what_they_were(pieces):
    """Read by the library's own rule."""
    text = "".join(["| a | b |\n", *pieces])
    # What stands deeper in quotes and lists is text in the window.
    assume(text.count(">") + text.count("- ") < 8)
    plain = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    seen = [
        [(t.type, t.tag, t.content, t.map, t.attrs, t.level) for t in parser.parse(text) if t.type != "definition"]
        for parser in (plain, PARSER)
    ]
    assert seen[0] == seen[1]


def text_of(leaf):
    return "".join(span.text for span in leaf.spans).replace(LINE_BREAK, "\n")


def test_a_head_with_too_many_columns_is_text():
    text = "|a" * (MOST_COLUMNS + 1) + "|\n" + "|-" * (MOST_COLUMNS + 1) + "|\n" + "|b" * (MOST_COLUMNS + 1)
    (leaf,) = parse(text)
    assert text_of(leaf) == text
    assert isinstance(parse(text.replace("|a|a", "|a", 1).replace("|-|-", "|-", 1))[0], Table)


@pytest.mark.parametrize(
    ("columns", "row", "count"),
    [
        (MOST_COLUMNS, "x", MOST_LEFT_OUT // (MOST_COLUMNS - 1)),
        (2, "x", MOST_LEFT_OUT),
        (3, "|a|b|c|", MOST_CELLS // 3),
    ],
)
@pytest.mark.parametrize("around", ["", "> ", "- "])
@pytest.mark.parametrize("step", [None, 26])
def test_a_table_ends_where_it_becomes_too_large(columns, row, count, around, step):
    """Whether it is read at once or bit by bit; the rows below are text."""
    lines = ["|a" * columns + "|", "|-" * columns + "|", *[row] * (count + 30)]
    text = "\n".join(("  " if n and around == "- " else around) + line for n, line in enumerate(lines))
    leaves, parser = parse(text) if step is None else [], StreamParser()
    for end in [] if step is None else [*range(step, len(text), step), len(text)]:
        keep, new = parser.update(text[:end])
        leaves[keep:] = new
    table, *rest = leaves[1:] if around == "- " else leaves
    assert isinstance(table, Table)
    assert len(table.rows) == 1 + count
    assert "\n".join(map(text_of, rest)) == "\n".join([row] * 30)


def test_a_row_that_costs_too_much_is_text():
    row = "|" + "< &" * (COSTLIEST_ROW // SIGN) + "|"
    table, rest = parse(f"| a |\n|---|\n| b |\n{row}")
    assert len(table.rows) == 2
    assert text_of(rest) == row
    (alone,) = parse(f"{row}\n|---|")
    assert text_of(alone) == f"{row}\n|---|"
