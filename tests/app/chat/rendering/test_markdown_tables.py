"""Tables as GitHub reads them, but for pipes within code and formulas."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from app.chat.rendering.markdown import PARSER, Span, Table, parse
from app.chat.rendering.markdown_rules import MOST_SIGNS


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


def test_signs_without_end_are_no_work():
    row = "| `" * (MOST_SIGNS + 1)
    assert rows(f"| a |\n|---|\n{row}")[1] == ["`"]
    assert rows("| a |\n|---|\n" + "| ` `` $ " * 300)[0] == ["a"]


def test_cells_that_are_left_out_are_bounded():
    head = "|" + "a|" * 1000 + "\n|" + "-|" * 1000 + "\n"
    leaves = parse(head + "| x |\n" * 100)
    assert isinstance(leaves[0], Table)
    assert len(leaves[0].rows) < 60
