"""Answers that are much work for their length: every construct again and again, deep, long and unfinished."""

from __future__ import annotations

from collections.abc import Callable
from random import Random


def again(unit: str) -> Callable[[int], str]:
    """The unit again and again; "@" in it is a number that grows."""

    def make(size: int) -> str:
        pieces: list[str] = []
        length = 0
        while length < size:
            pieces.append(unit.replace("@", str(len(pieces))))
            length += len(pieces[-1])
        return "".join(pieces)

    return make


def after(head: str, unit: str) -> Callable[[int], str]:
    return lambda size: head + again(unit)(size)


def deeper(step: str, unit: str) -> Callable[[int], str]:
    """Each line stands a step deeper than the one above."""

    def make(size: int) -> str:
        depth = int((2 * size / len(step)) ** 0.5)
        return "".join(step * n + unit for n in range(depth))

    return make


def nested(opening: str, inner: str, closing: str) -> Callable[[int], str]:
    def make(size: int) -> str:
        depth = size // len(opening + closing)
        return opening * depth + inner + closing * depth

    return make


def table(columns: int, row: str) -> Callable[[int], str]:
    return after("|a" * columns + "|\n" + "|-" * columns + "|\n", row)


def square(size: int) -> str:
    side = int((size / 2) ** 0.5)
    return "\n".join(["|a" * side, "|-" * side, *["|b" * side] * side])


def growing_runs(size: int) -> str:
    return " a ".join("`" * n for n in range(1, int((2 * size) ** 0.5)))


_ALIGNED = "\\begin{align}\n" + "a&=b\\\\\n" * 100 + "\\end{align}\n\n"
HOSTILE: dict[str, Callable[[int], str]] = {
    # Tables.
    "rows of a wide table with one cell": table(130, "a\n"),
    "rows of a table with one cell": table(20, "a\n"),
    "empty rows": table(2, "||\n"),
    "a square table": square,
    "very many columns": lambda size: "|a" * (size // 4) + "|\n" + "|-" * (size // 4) + "|\n",
    "a cell of many lines": after("|a|\n|-|\n|", "a<br>"),
    "a cell of many words": after("|a|b|\n|-|-|\n|", "word "),
    "a cell of one word": after("|a|b|\n|-|-|\n|", "w"),
    "a head of many words": lambda size: "|a " + "word " * (size // 5) + "|b|\n|-|-|\n|c|d|",
    "rows with signs": table(2, "|" + "*a_ " * 20 + "|b|\n"),
    "rows with formulas": table(2, "|$a$|$x_@$|\n"),
    "many tables": again("|a|\n|-|\n\n"),
    "tables without an outer line": again("a|b\n-|-\n\n"),
    "heads below heads": again("|a|\n|-|\n"),
    "a table in a quote": after("> |a|b|\n> |-|-|\n", "> |c|d|\n"),
    "a table in a list": after("- |a|b|\n  |-|-|\n", "  |c|d|\n"),
    "a wide table in a list": after("- x\n\n  " + "|a" * 30 + "|\n  " + "|-" * 30 + "|\n", "  |c\n"),
    # Code, rules and formulas with widgets of their own.
    "empty fences": again("```\n```\n"),
    "short fences": again("~~~\na\n~~~\n\n"),
    "fences in lists": again("- ```\n  a\n  ```\n"),
    "fences in quotes": again("> ```\n> a\n> ```\n"),
    "fences in one item": after("- a\n", "\n  ```\n  b\n  ```\n"),
    "indented code": again("    a\n\nb\n\n"),
    "code in short items": again("-     x\n"),
    "code in short quotes": again(">     x\n\n"),
    "code below headings": again("# a\n    x\n"),
    "code below blanks": again("a\n \n    x\n \n"),
    "code below definitions": again("[a]: b\n    x\n"),
    "fences of an old computer": again("~~~\ra\r~~~\r"),
    "words, then code in short items": lambda size: "word " * (size // 10) + "\n\n" + again("-     x\n")(size // 2),
    "an endless line of code": after("```python\n", "x = "),
    "code of short lines": after("```python\n", "a\n"),
    "code of blank lines": after("```markdown\n", "\n"),
    "code of blanks": after("```ini\n[", " "),
    "code of quotation marks": after("```python\n", "'"),
    "code of combining signs": after("```\na", "\u0301"),
    "a language without end": after("```", "x"),
    "code in a list": after("- a\n\n  ```\n", "  x\n"),
    "code in a quote": after("> ```\n", "> x\n"),
    "rules": again("---\n"),
    "formulas on lines of their own": again("$$\nx_@\n$$\n\n"),
    "formulas among words that want their own lines": again("a $$x$$ b "),
    "the same formula": again("\\[x\\]\n\n"),
    "formulas that stay open": again("$$\na\n"),
    "environments that stay open": again("\\begin{align}\n"),
    "a long block of a formula": after("$$\n", "a\n"),
    "equations": again(_ALIGNED),
    # Quotes and lists.
    "quotes deeper and deeper": deeper(">", " a\n"),
    "quotes in one line": again("> "),
    "a long quote": again("> a\n"),
    "a quote that goes on without its sign": after("> a\n", "b\n"),
    "a deep quote that goes on without its signs": after(">" * 10 + " a\n", "b\n"),
    "quotes with blank lines": again("> a\n>\n"),
    "lists in one line": again("- "),
    "numbered lists in one line": again("1. "),
    "lists deeper and deeper": deeper("  ", "- a\n"),
    "lists in quotes in lists": again("- > "),
    "short items": again("- a\n"),
    "empty items": again("-\n"),
    "items of other lists": again("- a\n* b\n+ c\n"),
    "numbered items": again("@. a\n"),
    "tasks": again("- [ ] a\n"),
    "an item of many paragraphs": after("- a\n", "\n  b\n"),
    "an item of many lines": after("- a\n", "  b\n"),
    # Text.
    "short paragraphs": again("a@\n\n"),
    "short lines": again("a\n"),
    "lines of an old computer": again("a\r"),
    "headings": again("# a\n"),
    "underlined headings": again("a\n=\n"),
    "a heading without end": after("# ", "**a** "),
    "a word without end": again("a"),
    "Hangul without end": again("가"),
    "joined emoji": again("👩‍👩‍👧"),
    "combining signs": after("a", "\u0301"),
    "letters with many signs": again("a\u0301\u0302\u0303\u0304\u0305\u0306 "),
    "directions": again("\u2067a\u202eb "),
    "both directions": again("aא"),
    "zeros": again("\0"),
    "blank lines": again("\n"),
    "blanks": again(" "),
    "tabs": again("\ta"),
    "line separators": again("a\u2028b\u2029"),
    "half characters": again("\ud800"),
    "places of objects": again("\ufffc\ufdd0"),
    # Within lines.
    "stars": again("*a_b"),
    "open stars": again("**a*b"),
    "bold words in Hangul": again("**'가'**는"),
    "strikes": again("~~a"),
    "runs of backticks": growing_runs,
    "code in a line": again("`a` "),
    "open brackets": again("["),
    "open links": again("[a]("),
    "nested links": nested("[", "a", "](b)"),
    "links": again("[a](http://b.c/d) "),
    "pictures": again("![a](http://b.c/d)"),
    "definitions": again("[a@]: http://b.c\n"),
    "half a definition": after('[a]: b "', "c\n"),
    "links before their definitions": lambda size: again("[a@] ")(size // 2) + "\n\n" + again("[a@]: c\n")(size // 2),
    "links to one definition": after("[a]: http://b.c\n\n", "[a] "),
    "tags": again("<div><img src='http://a/b'>"),
    "lowered in raised": nested("<sub><sup>", "a", "</sup></sub>"),
    "open comments": again("<!--"),
    "addresses": again("http://a.b/c "),
    "an address without end": after("http://a.b/", "a.("),
    "footnotes": again("[^@]: a\n"),
    "a footnote without end": after("[^a]: ", "**a** "),
    "formulas in a line": again("$x_@$ "),
    "open formulas": again("$a \\("),
    "entities": again("&amp;&#x1F600;&a"),
    "backslashes": again("\\*\\"),
    "remarks": again("> [!NOTE]\n> a\n\n"),
    "all kinds of blocks": again("# a\n---\n```\n```\n|a|\n|-|\n\n- b\n\n$$x_@$$\n\n> c\n\n"),
}

_AROUND = (
    "",
    "",
    "> ",
    "- ",
    "1. ",
    "    ",
    "> - ",
    "- > ",
    "| ",
    "# ",
    "[^1]: ",
    "$$\n",
    "```python\n",
    "<sub>",
    "**",
)


def composition(rng: Random, size: int) -> str:
    """Constructs in one another and behind one another, some of them broken off."""
    text = ""
    while len(text) < size:
        piece = rng.choice(list(HOSTILE.values()))(rng.choice((1, 10, 100, 1000)))
        around = rng.choice(_AROUND)
        if rng.random() < 0.5:
            piece = "\n".join(around + line for line in piece.split("\n"))
        if rng.random() < 0.3:
            piece = piece[: rng.randrange(len(piece) + 1)]
        text += piece + rng.choice(("", " ", "\n", "\n\n", "word ", "|", "```\n"))
    return text[:size]
