"""Formulas are set where they can be, and never hold anything up where they cannot."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QGuiApplication, QImage

from app import tasks
from app.chat.formulas import math_layout
from app.chat.formulas.math_layout import DEEPEST, LONGEST, FormulaError, lay_out
from app.chat.formulas.math_object import PLACE
from app.chat.formulas.math_store import KEPT, FormulaKey, FormulaStore, formulas
from app.chat.rendering.body_view import BodyView
from app.chat.rendering.flow_view import FlowView
from app.theme import theme


@pytest.fixture
def body(qtbot):
    view = BodyView()
    qtbot.addWidget(view)
    view.set_width(600)
    return view


def texts(body):
    return [view.toPlainText() for view in body.findChildren(FlowView) if not view.isHidden()]


def settle(body, text):
    """Show a text and wait for its formulas."""
    body.set_text(text)
    tasks.finish()


@pytest.mark.parametrize(
    "source",
    [
        r"\frac{-b\pm\sqrt{b^2-4ac}}{2a}",
        r"\int_0^\infty e^{-x^2}\,dx",
        r"\begin{aligned}a&=b+c\\&=d\end{aligned}",
        r"\begin{bmatrix}1&2\\3&4\end{bmatrix}^{-1}",
        r"\begin{align}a&=b\label{one}\end{align}",
        r"\left\{ x \middle| y \right\}",
        r"\bigl\{x\bigr\}\Big\|",
        r"\boxed{42}",
        r"\cancel{x}",
        r"P(A|B) \not= 5\%",
    ],
)
def test_what_models_write_is_set(qapp, source):
    formula = lay_out(source, 16, display=True)
    assert 0 < formula.width < 300
    assert 0 < formula.ascent + formula.descent < 90
    drawn = formula.path.boundingRect()
    assert drawn.right() <= formula.width + 1
    assert drawn.top() >= -formula.ascent - 2
    assert drawn.bottom() <= formula.descent + 2


def test_a_formula_grows_with_its_font(qapp):
    small, large = lay_out("x^2", 16, False), lay_out("x^2", 32, False)
    assert large.width == pytest.approx(2 * small.width, rel=0.02)


def test_limits_stand_beside_the_sum_within_a_line(qapp):
    inline, display = (lay_out(r"\sum_{i=1}^n i", 16, display) for display in (False, True))
    assert inline.ascent + inline.descent < display.ascent + display.descent


@pytest.mark.parametrize("source", [r"\int_0^1 f", r"\sum_{i=1}^n i", r"\iint_D f", r"\prod_i \int_a^b f"])
def test_a_large_sign_stays_small_within_a_line(qapp, source):
    """One that grew would push the lines of a paragraph apart."""
    inline, display = (lay_out(source, 16, display) for display in (False, True))
    assert inline.ascent + inline.descent < 24
    assert display.ascent + display.descent > 35


def test_letters_that_the_formula_font_lacks_come_from_the_window_font(qapp):
    plain, korean = lay_out(r"x", 16, False), lay_out(r"x \text{ 만약}", 16, False)
    assert korean.width > plain.width + 20
    assert lay_out("속도", 16, False).width > 16  # two signs, or the boxes of a machine without such letters


@pytest.mark.parametrize(
    "source",
    ["", "  ", "{", "}{", r"\frac{1}{", r"\left(", "^", "&", r"\begin{x}", r"\foo{x}", r"\def\a{\a\a}\a"],
)
def test_what_is_no_formula_is_said_to_be_none(qapp, source):
    with pytest.raises(FormulaError):
        lay_out(source, 16, True)


def test_length_and_depth_are_bounded(qapp):
    for source in ("x" * (LONGEST + 1), "{" * (DEEPEST + 1) + "}" * (DEEPEST + 1)):
        with pytest.raises(FormulaError, match="too long"):
            lay_out(source, 16, True)


def test_the_work_is_bounded(qapp, monkeypatch):
    """Each level of nesting doubles the library's work."""
    monkeypatch.setattr(math_layout, "MOST_CALLS", 300_000)
    lay_out(r"\frac{1}{2}", 16, True)
    with pytest.raises(FormulaError, match="too much work"):
        lay_out(r"\frac{1}{" * 12 + "x" + "}" * 12, 16, True)


@pytest.mark.parametrize(
    "work",
    [
        "any(x for x in (1, 2))",  # what is raised while the rest of a generator is thrown away is lost
        "caught()",
    ],
)
def test_the_bound_holds_wherever_it_is_reached(work):
    library = ModuleType("ziamath.fake")
    exec(
        "def one(): pass\n"
        "def caught():\n  try: one()\n  except Exception: pass\n"
        f"def run():\n  while True:\n    {work}\n    one()\n",
        library.__dict__,
    )
    for calls in range(1000, 1020):
        with pytest.raises(FormulaError, match="too much work"), math_layout._bounded(calls):
            library.run()


@pytest.mark.parametrize(
    "source",
    [
        *(r"\sqrt" * 600 + "a", r"\left(" * 600, r"\hat" * 900 + "a", "a_" * 1900, r"\frac" * 700, r"\def\a{\a\a}\a"),
        r"\begin{matrix}" + r"a\\" * 900 + r"\end{matrix}",
        "".join(rf"\def\{name}{{" + rf"\{before}" * 9 + "}" for before, name in pairwise("abcdefghij")) + r"\j",
        *("<" * 3900, "&" * 3900, "\0" * 3900, "\ud800", "가" * 3900, r"\rule{9999em}{9999em}", r"\Huge" * 600),
    ],
)
def test_hostile_formulas_are_said_to_be_none(qapp, source, monkeypatch):
    monkeypatch.setattr(math_layout, "MOST_CALLS", 300_000)
    with pytest.raises(FormulaError):
        lay_out(source[: math_layout.LONGEST], 16, True)


def test_the_store_lays_out_once_and_remembers(qapp, monkeypatch):
    asked = []
    monkeypatch.setattr("app.chat.formulas.math_store.lay_out", lambda *key: asked.append(key) or lay_out(*key))
    store = FormulaStore()
    good, bad = FormulaKey("x+y", 16.0), FormulaKey(r"\frac{", 16.0)
    assert store.get(good) is None
    assert store.get(bad) is None
    assert store.get(good) is None
    assert store.pending(good)
    tasks.finish()
    assert store.get(good) is not None
    assert store.get(bad) is None
    assert not store.pending(bad)
    assert sorted(key[0] for key in asked) == [r"\frac{", "x+y"]


def test_the_store_forgets_the_oldest(qapp):
    store = FormulaStore()
    store._take({FormulaKey(f"x_{number}", 16.0): None for number in range(KEPT + 10)})
    assert len(store._known) == KEPT
    store.get(FormulaKey("x_0", 16.0))
    assert store.pending(FormulaKey("x_0", 16.0))
    tasks.finish()


def test_the_source_gives_way_to_the_formula(body, qtbot):
    source = r"a_{77}+\frac{1}{q}"
    body.set_text(f"so ${source}$ is **it**\n\nnext")
    (text,) = texts(body)
    assert source in text
    tasks.finish()
    (text,) = texts(body)
    assert text == f"so {PLACE} is it\nnext"
    again = BodyView()
    qtbot.addWidget(again)
    again.set_text(f"${source}$")
    assert texts(again) == [PLACE], "what is known is shown at once"


def test_what_follows_a_formula_can_still_be_replaced(body):
    """The source is longer than the formula, so all positions behind it move."""
    body.grow("so $b_{78}+1$ is\n\nnext")
    tasks.finish()
    body.grow("so $b_{78}+1$ is\n\nnext one")
    body.grow("so $b_{78}+1$ is\n\nnext one\n\nlast")
    assert texts(body) == [f"so {PLACE} is\nnext one\nlast"]


def test_broken_formulas_show_their_source(body):
    settle(body, r"so $\frac{1}{$ and" + "\n\n$$\n\\foo{x}\n$$")
    first, second = texts(body)
    assert first == r"so \frac{1}{ and"
    assert second == r"\foo{x}"


def test_formulas_are_copied_as_latex(body):
    settle(body, "so $c_1$ and\n\n- $d_2$\n\n$$\ne_3\n$$")
    first, second = body.findChildren(FlowView)
    first.selectAll()
    assert first.createMimeDataFromSelection().text() == "so $c_1$ and\n• $d_2$"
    second.selectAll()
    second.copy()
    assert QGuiApplication.clipboard().text() == "$$e_3$$"
    cursor = first.textCursor()
    cursor.setPosition(0)
    cursor.setPosition(3, cursor.MoveMode.KeepAnchor)
    first.setTextCursor(cursor)
    assert first.createMimeDataFromSelection().text() == "so "


def test_formulas_in_tables(body):
    settle(body, "| a |\n|---|\n| $f_4$ |")
    (table,) = texts(body)
    assert PLACE in table


def test_a_wide_formula_scrolls_and_a_long_inline_one_shrinks(body):
    long = "+".join(f"x_{{{n}}}" for n in range(30))
    settle(body, f"$$\n{long}\n$$\n\nand ${long}$")
    body.show()
    display, inline = body.findChildren(FlowView)
    assert display.width() == inline.width() == 600
    body.grab()
    assert display.horizontalScrollBar().maximum() > 0
    assert display.horizontalScrollBar().value() == 0, "it begins at its left end"
    assert PLACE in inline.toPlainText()
    assert inline.document().idealWidth() <= 600
    settle(body, f"${long}+{long}$")
    assert texts(body) == [f"{long}+{long}"], "the source wraps"


def inked(view, ink):
    """The lowest and highest row with much of a colour."""
    image = view.grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    near = [
        y
        for y in range(image.height())
        if any(
            sum(abs(a - b) for a, b in zip(QColor(image.pixel(x, y)).getRgb(), ink.getRgb(), strict=True)) < 60
            for x in range(image.width())
        )
    ]
    return near[0], near[-1]


def test_a_formula_stands_on_the_baseline_of_its_line(body):
    """An x of the formula font ends where an x of the text ends."""
    bottoms = []
    for text in ("xxx", "$xxx$"):
        settle(body, text)
        body.show()
        bottoms.append(inked(body, theme().colour("text"))[1])
    assert abs(bottoms[0] - bottoms[1]) <= 1


def test_formulas_take_the_colour_of_the_theme(body):
    settle(body, "$M$")
    body.show()
    assert inked(body, theme().colour("text"))
    theme().set_mode("dark")
    body.restyle()
    assert inked(body, theme().colour("text"))


def test_a_growing_text_does_not_gather_formulas(body):
    settle(body, "$g_5$")
    for length in range(300):
        body.grow("$g_5$ and " + "word " * length)
    (view,) = body.findChildren(FlowView)
    assert len(view._formulas._keys) <= 64


def test_a_view_that_dies_while_its_formulas_are_laid_out(qtbot):
    view = BodyView()
    view.set_width(300)
    view.set_text("$h_6 + i_7$")
    view.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    view.show()
    with qtbot.waitSignal(view.destroyed):
        view.close()
    tasks.finish()
    assert formulas().get(FormulaKey("h_6 + i_7", 16.8)) is not None


def test_a_focused_view_that_is_destroyed(qtbot, qapp):
    """Losing the focus lays its text out once more, when half of it is gone."""
    view = BodyView()
    view.set_width(300)
    settle(view, "see [the link](http://example.org) and $j_8$\n\n$$\nj_9\n$$")
    view.show()
    text = view.findChildren(FlowView)[0]
    text.setFocus()
    qapp.processEvents()
    with qtbot.waitSignal(view.destroyed):
        view.deleteLater()
