"""Bold beside Korean, bare addresses, three tags, and alerts: what models write beyond CommonMark, within lines."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from app.chat.rendering.markdown import LINE_BREAK, PARSER, Span, parse
from app.chat.rendering.markdown_inline import LONGEST_ADDRESS

WORDS = st.text(st.sampled_from("가나다결론강조漢字かなカナ"), min_size=1, max_size=4)
QUOTED = st.builds(
    "{0[0]}{1}{0[1]}".format,
    st.sampled_from(["''", '""', "()", "[]", "“”", "‘’", "「」", "《》", "（）", "<>"]),
    WORDS | st.sampled_from(["so", "100"]),
)


def spans(text):
    (leaf,) = parse(text)
    return leaf.spans


def links(text):
    return [(span.text, span.link) for leaf in parse(text) for span in leaf.spans if span.link]


@pytest.mark.parametrize(
    ("text", "bold", "after"),
    [
        ("**결론:**이것은", "결론:", "이것은"),
        ("**'강조'**는", "'강조'", "는"),
        ("**(괄호)**를", "(괄호)", "를"),
        ("**100%**로", "100%", "로"),
        ("**“강조”**라고", "“강조”", "라고"),
        ("**「強調」**は", "「強調」", "は"),
        ("**重点：**这是", "重点：", "这是"),
        ("**`코드`**를", "코드", "를"),
    ],
)
def test_bold_ends_between_punctuation_and_a_letter_without_a_blank(text, bold, after):
    assert [(span.text, span.bold) for span in spans(text)] == [(bold, True), (after, False)]


def test_bold_begins_between_a_letter_and_punctuation():
    assert [(s.text, s.bold) for s in spans("이것은**“강조”**라고")] == [
        ("이것은", False),
        ("“강조”", True),
        ("라고", False),
    ]
    assert spans("그는*'x'*와 ~~(y)~~를")[1::2] == (Span("'x'", italic=True), Span("(y)", strike=True))


@given(WORDS, QUOTED, WORDS, st.sampled_from(["*", "**", "***", "~~"]))
def test_signs_around_a_quotation_are_never_shown(before, quoted, after, sign):
    styled = spans(f"{before}{sign}{quoted}{sign}{after}")
    assert "".join(span.text for span in styled) == before + quoted + after
    marked = [span for span in styled if span.bold or span.italic or span.strike]
    assert "".join(span.text for span in marked) == quoted


@given(st.text(string.ascii_letters[:4] + "  **__~'\"(),.:%", max_size=40))
def test_beside_english_letters_everything_is_as_it_was(text):
    plain = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    kinds = [[(t.type, t.content) for t in p.parseInline(text)[0].children] for p in (plain, PARSER)]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("text", ["2 ** 3 ** 4가", "가 ** 나 ** 다", "가_(나)_다", "**가 나", "가:** 나"])
def test_signs_that_are_no_emphasis_stay(text):
    assert spans(text) == (Span(text),)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("see https://example.org/path.", "https://example.org/path"),
        ("(https://en.wikipedia.org/wiki/Foo_(bar)_baz)", "https://en.wikipedia.org/wiki/Foo_(bar)_baz"),
        ("(see https://example.org/a_b_c?x=1&y=2#z), so", "https://example.org/a_b_c?x=1&y=2#z"),
        ("**https://example.org**는", "https://example.org"),
        ("_https://example.org/_", "https://example.org/"),
        ("주소는https://example.org/path에서", "https://example.org/path"),
        ("(https://example.org)은", "https://example.org"),
        ("http://localhost:8080/x!", "http://localhost:8080/x"),
        ('<a href="https://example.org/x">', "https://example.org/x"),
        ("https://example.org/x。", "https://example.org/x"),
        ("HTTPS://Example.org", "HTTPS://Example.org"),
    ],
)
def test_a_bare_address_is_a_link(text, address):
    ((shown, target),) = links(text)
    assert shown == address
    assert target.lower() == address.lower()


def test_other_letters_may_be_words_of_an_address():
    ((shown, target),) = links("https://ko.wikipedia.org/wiki/서울_(한국) 참고")
    assert shown == "https://ko.wikipedia.org/wiki/서울_(한국)"
    assert target.isascii()


def test_www_is_an_address_too():
    assert links("www.example.org, or www.example.org/a?") == [
        ("www.example.org", "http://www.example.org"),
        ("www.example.org/a", "http://www.example.org/a"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "`https://example.org`",
        "www.",
        "https://",
        "xhttps://a.b",
        "awww.a.b",
        "www.a",
        "http:/a",
    ],
)
def test_what_is_code_or_no_address_is_no_link(text):
    assert links(text) == []


def test_a_link_keeps_its_own_target():
    assert links("[https://a.example](https://b.example)") == [("https://a.example", "https://b.example")]
    assert links("[to www.a.example now](/b) <https://c.example>") == [
        ("to www.a.example now", "/b"),
        ("https://c.example", "https://c.example"),
    ]


def test_an_address_without_end_is_bounded():
    ((shown, _),) = links("https://" + "a" * 5000)
    assert len(shown) <= LONGEST_ADDRESS + 8
    (leaf,) = parse("https://" * 500)
    assert "".join(span.text for span in leaf.spans) == "https://" * 500


def test_three_tags_are_shown_and_no_other():
    assert spans("H<sub>2</sub>O, m<sup>2</sup>") == (
        Span("H"),
        Span("2", script="sub"),
        Span("O, m"),
        Span("2", script="sup"),
    )
    assert spans("**x<sub>*i*</sub>**")[1] == Span("i", bold=True, italic=True, script="sub")
    for line_break in ("<br>", "<br/>", "<BR />", "<br>\n"):
        assert spans(f"a{line_break}b") == (Span("a"), Span(LINE_BREAK), Span("b"))
    assert spans("a<br><br>") == (Span("a"),)
    for text in (
        "<b>x</b>",
        "<sub onclick=a>x</sub>",
        "half of <sub>x",
        "x</sup>",
        "<br onload=a>",
        "<script>a</script>",
    ):
        assert spans(text) == (Span(text),)
    assert spans("`<br>`") == (Span("<br>", code=True),)


@pytest.mark.parametrize("piece", ["<sub>", "<sub>a", "<sub><sup>", "<br>", "<br", "www.", "www.a.b", "https://a", "h"])
def test_pieces_repeated_endlessly_lose_nothing(piece):
    text = piece * 400
    shown = "".join(span.text for leaf in parse(text) for span in leaf.spans)
    if piece != "<br>":
        assert shown == text


@pytest.mark.parametrize("kind", ["Note", "Tip", "Important", "Warning", "Caution"])
def test_a_quote_says_what_kind_of_remark_it_is(kind):
    (leaf,) = parse(f"> [!{kind.upper()}]\n> so *it* is")
    assert leaf.quote == 1
    assert leaf.spans[:3] == (Span(kind, bold=True), Span(LINE_BREAK), Span("so "))
    alone, after = parse(f"> [!{kind}]\n>\n> so")
    assert alone.spans == (Span(kind, bold=True),)
    assert after.spans == (Span("so"),)


@pytest.mark.parametrize(
    "text", ["[!NOTE]\nso", "> [!NOTE] so", "> [!OTHER]\n> so", "> - [!NOTE]\n>   so", "> so\n> [!NOTE]"]
)
def test_what_is_no_alert_stays(text):
    assert "[!" in "".join(span.text for leaf in parse(text) for span in leaf.spans)
