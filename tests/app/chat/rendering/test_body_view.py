"""Markdown on screen: nothing is lost, code can be copied, links and images do nothing by themselves."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetricsF, QGuiApplication, QTextCursor
from PySide6.QtWidgets import QFileDialog

from app import tasks
from app.chat.formulas.math_object import CODE_STEP, PLACE
from app.chat.rendering import late_links, markdown
from app.chat.rendering.body_view import LATE_ROWS, LATE_TEXTS, LONG_TEXT, BodyView
from app.chat.rendering.code_view import LONGEST_LINE, CodeView, _CodeText
from app.chat.rendering.flow_view import body_font
from app.chat.rendering.markdown import parse
from app.chat.rendering.rich_text import INDENT, MARKER, TextView
from app.chat.rendering.table_view import CHUNK, CHUNK_CELLS, TableView
from app.chat.style import chat_style
from app.theme import theme

MIXED = """Look at <b>this</b> & `that`:

```python
def f(x):
    return "👍🏽" + x
```

| a | b |
|---|--:|
| 1 | **2** |

1. one
2. two
   - inner

한국어 문단. שלום עולם. 🇰🇷
"""


@pytest.fixture
def body(qtbot):
    view = BodyView()
    qtbot.addWidget(view)
    view.set_width(600)
    return view


def parts(body, kind):
    return [part.widget for part in body._parts if isinstance(part.widget, kind)]


def all_text(body):
    return "\n".join(view.toPlainText() for view in parts(body, TextView))


def test_every_kind_of_block_is_shown(body):
    body.set_text(MIXED)
    text = all_text(body)
    assert "Look at <b>this</b> & that:" in text
    assert "한국어 문단. שלום עולם. 🇰🇷" in text
    (code,) = parts(body, CodeView)
    assert code.language == "python"
    assert code.code == 'def f(x):\n    return "👍🏽" + x'
    (table,) = parts(body, TableView)
    assert table.toPlainText().split() == ["a", "b", "1", "2"]


@pytest.mark.parametrize("step", [1, 7, 50])
def test_growing_ends_as_the_whole(body, qtbot, step):
    for end in [*range(1, len(MIXED), step), len(MIXED)]:
        body.grow(MIXED[:end])
    body.finish()
    whole = BodyView()
    qtbot.addWidget(whole)
    whole.set_width(600)
    whole.set_text(MIXED)
    assert body.leaves == whole.leaves
    assert all_text(body) == all_text(whole)
    assert [c.code for c in parts(body, CodeView)] == [c.code for c in parts(whole, CodeView)]
    assert body.height() == whole.height()


def test_settled_widgets_are_left_alone_while_the_end_grows(body):
    body.grow("one\n\n```py\nx\n```\n\ntwo")
    before = [part.widget for part in body._parts]
    body.grow("one\n\n```py\nx\n```\n\ntwo and more")
    assert [part.widget for part in body._parts] == before


def test_an_open_fence_grows_in_place(body):
    body.grow("```py\nx = 1")
    (code,) = parts(body, CodeView)
    body.grow("```py\nx = 1\ny = 2")
    body.grow("```py\nx = 1\ny = 2\n```\n")
    assert parts(body, CodeView) == [code]
    assert code.code == "x = 1\ny = 2"


def test_code_is_copied_without_its_colours(body, qtbot):
    body.set_text("```\n<tag>\n```")
    (code,) = parts(body, CodeView)
    qtbot.mouseClick(code.copy_button, Qt.MouseButton.LeftButton)
    assert QGuiApplication.clipboard().text() == "<tag>"
    assert code.copy_button.text() == "Copied"
    qtbot.waitUntil(lambda: code.copy_button.text() == "Copy")


def test_code_is_saved_under_a_name_of_its_language(body, qtbot, tmp_path):
    body.set_text("```python\nx = '한'\n```")
    (code,) = parts(body, CodeView)
    body.show()
    qtbot.mouseClick(code.save_button, Qt.MouseButton.LeftButton)
    dialog = code.findChild(QFileDialog)
    assert dialog.selectedFiles()[0].endswith("code.py")
    dialog.fileSelected.emit(str(tmp_path / "code.py"))
    dialog.reject()
    assert (tmp_path / "code.py").read_bytes() == "x = '한'\n".encode()


def colours_of(code, line):
    """(text, colour) of the coloured stretches of a line."""
    block = code.findChild(_CodeText).document().findBlockByNumber(line)
    raw = block.text().encode("utf-16-le")
    return [
        (raw[2 * f.start : 2 * (f.start + f.length)].decode("utf-16-le"), f.format.foreground().color().name().upper())
        for f in block.layout().formats()
    ]


def test_highlighting_counts_characters_as_qt_does(body, qtbot):
    body.set_text('```python\na = "👍🏽한" + 1  # 👍\n```')
    (code,) = parts(body, CodeView)
    qtbot.waitUntil(lambda: len(colours_of(code, 0)) >= 3)
    found = [text for text, _ in colours_of(code, 0)]
    assert "".join(found) == '"👍🏽한"1# 👍'


@pytest.mark.parametrize(
    ("language", "code", "comment"),
    [
        ("cpp", "int main() {\n  f();  // one\n} // c", "// c"),
        ("bash", "for a in b; do\n  echo $a\ndone # c", "# c"),
        ("swift", "guard let a = b else { return } // c", "// c"),
    ],
)
def test_a_comment_in_the_last_line_has_its_colour(body, qtbot, language, code, comment):
    body.set_text(f"```{language}\n{code}\n```")
    (view,) = parts(body, CodeView)
    last = code.count("\n")
    qtbot.waitUntil(lambda: "".join(text for text, _ in colours_of(view, last)).endswith(comment))


def test_guard_is_a_word_of_swift(body, qtbot):
    body.set_text("```swift\nguard let a = b else { return }\n```")
    (view,) = parts(body, CodeView)
    qtbot.waitUntil(lambda: any(text.strip() == "guard" for text, _ in colours_of(view, 0)))


def test_a_long_marker_is_shown_whole_beside_its_text(body):
    body.set_text("[^1]: short\n\n[^a-longer-note]: text " + "more words " * 30)
    (view,) = parts(body, TextView)
    view.document().size()
    short, long = (view.document().findBlockByNumber(n) for n in (0, 1))
    assert short.blockFormat().textIndent() == 0
    first, second = (long.layout().lineAt(n) for n in (0, 1))
    width = QFontMetricsF(view.document().defaultFont()).horizontalAdvance("a-longer-note")
    assert first.x() + long.layout().position().x() >= width
    assert second.x() + long.layout().position().x() == short.layout().lineAt(0).x() + short.layout().position().x()


def test_the_bar_of_a_quote_stands_within_its_list(body):
    body.set_text("- a\n  - b\n    > quoted\n    >\n    > ```\n    > code\n    > ```")
    body.show()
    picture = body.grab().toImage()
    ratio, line = picture.devicePixelRatio(), theme().colour("line").name()
    view, code = (part.widget for part in body._parts)
    for y in (view.geometry().bottom() + 5, code.geometry().center().y()):
        barred = [x for x in range(100) if picture.pixelColor(round(x * ratio), round(y * ratio)).name() == line]
        assert barred[:3] == [2 * INDENT, 2 * INDENT + 1, 2 * INDENT + 2]


def test_a_bullet_stands_beside_its_formula(body, qtbot):
    body.set_text("- $$a=b$$\n- so")
    (view,) = parts(body, TextView)
    qtbot.waitUntil(lambda: PLACE in view.toPlainText())
    assert view.document().blockCount() == 2
    assert view.document().firstBlock().blockFormat().property(MARKER) == "•"


def test_lowered_and_raised_words_and_broken_lines(body):
    body.set_text("H<sub>2</sub>O and m<sup>2</sup><br>end\n\n| a<br>b |\n|---|\n| x<sub>i</sub> |")
    (view,) = parts(body, TextView)
    assert view.document().firstBlock().text() == "H2O and m2\u2028end"
    cursor = view.textCursor()
    kinds = []
    for place in (1, 2, 3, 10):
        cursor.setPosition(place)
        kinds.append(cursor.charFormat().verticalAlignment().name)
    assert kinds == ["AlignNormal", "AlignSubScript", "AlignNormal", "AlignSuperScript"]
    (table,) = parts(body, TableView)
    assert table.toPlainText().split() == ["a", "b", "xi"]


def test_unknown_languages_stay_plain(body):
    body.set_text("```klingon\nqapla\n```")
    (code,) = parts(body, CodeView)
    assert code.language == "klingon"
    assert colours_of(code, 0) == []


def test_a_link_only_says_where_it_leads(body, qtbot):
    body.set_text("[here](https://example.org/x)")
    (text,) = parts(body, TextView)
    body.show()
    with qtbot.waitSignal(body.linkChosen) as chosen:
        qtbot.mouseClick(
            text.viewport(), Qt.MouseButton.LeftButton, pos=text.rect().topLeft() + text.rect().center() / 20
        )
    assert chosen.args == ["https://example.org/x"]
    assert text.toPlainText() == "here"


def test_images_are_never_fetched(body):
    body.set_text("![cat](http://127.0.0.1:9/cat.png)")
    (text,) = parts(body, TextView)
    assert text.toPlainText() == "cat"
    assert text.loadResource(2, "http://127.0.0.1:9/cat.png") is None


def test_selected_lists_are_copied_with_their_markers(body):
    body.set_text("Intro 👍🏽\n\n1. one\n2. **two**\n\n- [x] done")
    (text,) = parts(body, TextView)
    text.selectAll()
    assert text.createMimeDataFromSelection().text() == "Intro 👍🏽\n1. one\n2. two\n☑ done"
    cursor = text.textCursor()
    cursor.setPosition(cursor.selectionStart() + 2)
    cursor.movePosition(QTextCursor.MoveOperation.EndOfBlock, QTextCursor.MoveMode.KeepAnchor)
    text.setTextCursor(cursor)
    assert text.createMimeDataFromSelection().text() == "tro 👍🏽"


def test_right_to_left_lists_are_indented_on_the_right(body):
    body.set_text("- שלום\n- hello")
    (text,) = parts(body, TextView)
    first, second = (text.document().findBlockByNumber(n).blockFormat() for n in (0, 1))
    assert first.rightMargin() == second.leftMargin() > 0
    assert first.leftMargin() == second.rightMargin() == 0


def test_a_wide_table_scrolls_and_a_narrow_one_fits(body):
    wide = "|" + "|".join(f"column number {n}" for n in range(12)) + "|\n|" + "---|" * 12 + "\n|" + "cell|" * 12
    body.set_text(f"{wide}\n\nand\n\n|a|\n|-|\n|1|")
    body.show()
    first, second = parts(body, TableView)
    assert first.width() == second.width() == 600
    body.grab()
    assert first.horizontalScrollBar().maximum() > 0
    assert first.horizontalScrollBar().value() == 0, "it begins at its first column"
    assert second.horizontalScrollBar().maximum() == 0


def test_a_table_grows_row_by_row(body):
    text = "|a|b|\n|-|-|\n" + "".join(f"|{n}|x|\n" for n in range(20))
    body.grow(text[:40])
    (table,) = parts(body, TableView)
    body.grow(text)
    assert parts(body, TableView) == [table]
    assert table.toPlainText().split() == ["a", "b", *(word for n in range(20) for word in (str(n), "x"))]


def test_rows_of_a_long_table_leave_those_above_as_they_are(body, qtbot):
    head = "| a | b |\n|--:|---|\n"
    rows = [f"| {n} | some words |\n" for n in range(200)]
    body.grow(head + "".join(rows[:100]))
    qtbot.waitUntil(lambda: body.complete)
    (table,) = parts(body, TableView)
    changed = []
    table.document().contentsChange.connect(lambda place, removed, added: changed.append(place))
    held = table.document().characterCount()
    body.grow(head + "".join(rows))
    qtbot.waitUntil(lambda: body.complete)
    assert changed
    # Rows fill up the last of its parts, and begin new ones.
    assert min(changed) > held - 10
    assert parts(body, TableView) == [table]
    words = table.toPlainText().split()
    assert words == ["a", "b", *(word for n in range(200) for word in (str(n), "some", "words"))]


def test_a_table_of_many_columns_lays_few_cells_out_again(body, qtbot):
    """What is laid out whenever one of them changes are cells, not rows."""
    columns = 20
    text = "|" + "a|" * columns + "\n|" + "-|" * columns + "\n" + ("|" + "x|" * columns + "\n") * 60
    body.grow(text)
    qtbot.waitUntil(lambda: body.text == text)
    (table,) = parts(body, TableView)
    assert sum(part.rows() for part in table._tables) == 61
    assert max(part.rows() * columns for part in table._tables) <= CHUNK_CELLS
    body.grow("| a |\n|---|\n" + "| x |\n" * 60)
    assert [part.rows() for part in parts(body, TableView)[0]._tables] == [CHUNK, 61 - CHUNK]


def test_columns_of_a_long_table_stand_below_each_other(body, qtbot):
    text = "| a | b | c |\n|--:|---|---|\n" + "".join(f"| {n} | {'words ' * (n % 30)} | x |\n" for n in range(100))
    for width in (600, 400):
        body.set_width(width)
        body.grow(text)
        qtbot.waitUntil(lambda: body.complete)
        (table,) = parts(body, TableView)
        layout = table.document().documentLayout()
        block, lefts = table.document().begin(), set()
        while block.isValid():
            if block.text() == "x":
                lefts.add(layout.blockBoundingRect(block).left())
            block = block.next()
        assert len(lefts) == 1
        assert width / 2 < lefts.pop() < width


def test_a_long_text_is_laid_out_in_slices_and_whole(body, qtbot):
    text = "\n\n".join(f"Paragraph {n} with a [link][late] and `code`." for n in range(2000))
    body.set_text(text + "\n\n[late]: http://example.org\n")
    assert len(text) > LONG_TEXT
    assert not body.complete
    qtbot.waitUntil(lambda: body.complete)
    assert [leaf.spans[0].text for leaf in body.leaves] == [f"Paragraph {n} with a " for n in range(2000)]
    assert all(leaf.spans[1].link == "http://example.org" for leaf in body.leaves)
    assert body.height() >= 2000 * 20


def test_links_defined_at_the_end_are_found_when_the_answer_ends(body, qtbot):
    text = "See [it] **now**.\n\n- a\n- b\n\n|[it]|\n|-|\n\nand [it][] $x$\n\nend\n\n[it]: http://example.org\n"
    for end in range(1, len(text) + 1):
        body.grow(text[:end])
    tasks.finish()
    before, made = all_text(body), [part.widget for part in body._parts]
    body.finish()
    qtbot.waitUntil(lambda: body._links is None)
    assert body.leaves == parse(text)
    assert body.leaves[0].spans[1].link == "http://example.org"
    assert [part.widget for part in body._parts] == made, "nothing is made anew"
    tasks.finish()
    assert before.replace("[it][]", "it").replace("[it]", "it") == all_text(body)
    cursor = made[0].textCursor()
    cursor.setPosition(6)
    assert cursor.charFormat().anchorHref() == "http://example.org"
    body.grow(text)  # what follows finds its place
    body.grow(text + "\nmore")
    assert all_text(body).endswith("more")


def test_links_that_were_known_are_not_looked_for_again(body):
    text = "[it]: http://example.org\n\nSee [it].\n\nand [it]"
    for end in range(1, len(text) + 1):
        body.grow(text[:end])
    body.finish()
    assert body._links is None
    assert body.leaves[0].spans[1].link == "http://example.org"


def test_restyling_keeps_the_text(body):
    body.set_text(MIXED)
    before, height = all_text(body), body.height()
    body.restyle()
    assert all_text(body) == before
    assert body.height() == height


def test_no_line_of_code_is_hidden_by_a_scroll_bar(body):
    """Whatever the width, also where the longest line just fits."""
    body.setStyleSheet(chat_style(theme().tokens))
    body.show()
    body.set_text("```\n" + "x" * 70 + "\nlast\n```")
    (code,) = parts(body, CodeView)
    text = code.findChild(_CodeText)
    for width in range(text._widest + 10, text._widest + 40):
        body.set_width(width)
        body.grab()
        below = text.cursorRect(QTextCursor(text.document().lastBlock())).bottom()
        assert below <= text.viewport().height()
        assert text.horizontalScrollBar().maximum() == 0 or text.height() > below + text.horizontalScrollBar().height()


def test_a_larger_text_size_reaches_code_once(body):
    body.set_text("some `code`\n\n```\nx\n```")
    (code,) = parts(body, CodeView)
    usual = code.findChild(_CodeText).font().pixelSize()
    theme().set_look("light", 2.0, "comfortable", False)
    try:
        body.restyle()
        (code,) = parts(body, CodeView)
        assert code.findChild(_CodeText).font().pixelSize() == 2 * usual
        (text,) = parts(body, TextView)
        cursor = text.textCursor()
        cursor.movePosition(QTextCursor.MoveOperation.End)
        assert cursor.charFormat().font().pixelSize() == body_font().pixelSize() - CODE_STEP
    finally:
        theme().set_look("light", 1.0, "comfortable", False)


def test_a_line_without_end_is_laid_out_a_few_times(qtbot, monkeypatch):
    body = BodyView()
    qtbot.addWidget(body)
    grown = []
    real = BodyView.grow
    monkeypatch.setattr(BodyView, "grow", lambda self, text: grown.append(len(text)) or real(self, text))
    body.set_text("x" * 30_000)
    qtbot.waitUntil(lambda: body.text == "x" * 30_000)
    assert len(grown) < 12


def test_the_bar_of_a_quote_goes_on_beside_its_code(qtbot):
    body = BodyView()
    qtbot.addWidget(body)
    body.set_width(400)
    body.set_text("> before\n>\n> ```\n> code\n> ```\n>\n> after\n\n```\nno quote\n```")
    body.show()
    picture = body.grab().toImage()
    line = theme().colour("line").name()
    before, code, after, plain = (part.widget.geometry() for part in body._parts)

    def barred(y):
        ratio = picture.devicePixelRatio()
        return picture.pixelColor(round(ratio), round(y * ratio)).name() == line

    assert all(barred(y) for y in (before.bottom() + 5, code.center().y(), code.bottom() + 5))
    assert not any(barred(y) for y in (after.bottom() + 5, plain.center().y()))


def test_a_line_of_code_without_end_is_laid_out_in_pieces_and_copied_as_one(body, qtbot, monkeypatch):
    monkeypatch.setattr(_CodeText, "_highlight_slice", lambda self: None)
    line = "value = '👍🏽' + x; " * 400
    code = f"first = 1\n{line}\nlast = 2"
    for end in range(0, len(code), 97):
        body.grow("```python\n" + code[:end])
    body.grow("```python\n" + code)
    (view,) = parts(body, CodeView)
    text = view.findChild(_CodeText)
    block, lengths = text.document().firstBlock(), []
    while block.isValid():
        lengths.append(len(block.text()))
        block = block.next()
    assert max(lengths) == LONGEST_LINE
    assert len(lengths) == 2 + -(-len(line) // LONGEST_LINE)
    assert view.code == code
    text.selectAll()
    assert text.createMimeDataFromSelection().text() == code


def test_colours_go_on_in_the_next_piece_of_a_line(body, qtbot):
    code = "x = 1; " + "'" + "a" * LONGEST_LINE + "👍" * 9 + "'; y = 2"
    body.set_text(f"```python\n{code}\n```\n")
    (view,) = parts(body, CodeView)
    text = view.findChild(_CodeText)
    qtbot.waitUntil(lambda: bool(text.document().lastBlock().layout().formats()))
    first, last = text.document().firstBlock(), text.document().lastBlock()
    assert first.layout().formats()[-1].start == 8
    assert first.layout().formats()[-1].length == LONGEST_LINE - 8
    rest = code[LONGEST_LINE:]
    string, *_, number = last.layout().formats()
    assert (string.start, string.length) == (0, rest.index("'") + 9)
    assert (number.start, number.length) == (len(rest) - 1 + 9, 1)


def test_a_text_with_late_definitions_is_read_again_a_piece_at_a_time(qtbot, monkeypatch):
    text = "".join(f"[name {n}][r{n}]\n\n" for n in range(450)) + "".join(
        f"[r{n}]: https://example.org/{n}\n" for n in range(450)
    )
    body = BodyView()
    qtbot.addWidget(body)
    body.set_width(500)
    for end in range(500, len(text) + 500, 500):
        body.grow(text[:end])
    read = []
    original = markdown.PARSER.parse
    monkeypatch.setattr(markdown.PARSER, "parse", lambda source, env: read.append(len(source)) or original(source, env))
    body.finish()
    assert not body.complete
    qtbot.waitUntil(lambda: body.complete)
    monkeypatch.undo()
    assert max(read) <= 2 * late_links.PIECE
    assert list(body.leaves) == parse(text)
    assert body.leaves[440].spans[0].link == "https://example.org/440"


def test_late_links_of_a_long_table_and_a_long_list_are_written_a_few_at_a_time(body, qtbot, monkeypatch):
    table = "| a |\n|---|\n" + "".join(f"| {n} [name][r] |\n" for n in range(300))
    text = table + "\n" + "- [name][r]\n" * 300 + "\n[r]: https://example.org\n"
    for end in range(500, len(text) + 500, 500):
        body.grow(text[:end])
    read, rows, texts = [], [], []
    original, show, rewrite = markdown.PARSER.parse, TableView.show_leaf, TextView.rewrite
    monkeypatch.setattr(markdown.PARSER, "parse", lambda source, env: read.append(len(source)) or original(source, env))

    def show_leaf(view, leaf):
        rows.append(sum(old != new for old, new in zip(view._leaf.rows, leaf.rows, strict=True)))
        show(view, leaf)

    def rewrite_some(view, leaves):
        texts.append(sum(old != new for old, new in zip(view._leaves, leaves, strict=True)))
        rewrite(view, leaves)

    monkeypatch.setattr(TableView, "show_leaf", show_leaf)
    monkeypatch.setattr(TextView, "rewrite", rewrite_some)
    body.finish()
    qtbot.waitUntil(lambda: body.complete)
    monkeypatch.undo()
    assert max(read) <= 2 * late_links.PIECE
    assert sum(rows) == 300
    # The last items came together with the definition.
    assert 250 < sum(texts) <= 300
    assert max(rows) <= LATE_ROWS
    assert max(texts) <= LATE_TEXTS
    assert list(body.leaves) == parse(text)
    (view,) = parts(body, TableView)
    assert view.toPlainText().split()[1:] == [word for n in range(300) for word in (str(n), "name")]


def test_a_long_text_whose_parts_change_with_its_links_is_laid_out_once_more(qtbot, monkeypatch):
    """Where a paragraph without end is cut depends on the pieces in which it came."""
    text = "see [it] and " * 1500 + "\n\n[it]: https://example.org\n"
    body = BodyView()
    qtbot.addWidget(body)
    body.set_width(500)
    for end in range(130, len(text) + 130, 130):
        body.grow(text[:end])
    laid_out = []
    original = BodyView.set_text
    monkeypatch.setattr(BodyView, "set_text", lambda self, *args: laid_out.append(args) or original(self, *args))
    body.finish()
    qtbot.waitUntil(lambda: body.complete)
    assert len(laid_out) <= 1
    assert sum(bool(span.link) for leaf in body.leaves for span in leaf.spans) == 1500
