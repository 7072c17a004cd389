"""Commands that the library does not know become what they stand for, and what cannot be drawn stays readable."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.chat.formulas.math_layout import LONGEST, FormulaError, lay_out
from app.chat.formulas.math_macros import prepared
from app.chat.formulas.math_units import chemistry, number, physical_unit, quantity, units

#: What models write, by subject.
CONSTRUCTS = {
    "lines": [
        r"\begin{align} a &= b \tag{1} \\ c &= d \nonumber \end{align}",
        r"\begin{alignat}{2} a &= b & c &= d \end{alignat}",
        r"\begin{eqnarray} a &=& b \\ c &=& d \end{eqnarray}",
        r"\begin{aligned}[t] a &= b \\ &= \text{so } d \end{aligned}",
        r"\begin{flalign} a &= b & c &= d \end{flalign} \begin{displaymath} x \end{displaymath}",
        r"\begin{gather} a \\ b \end{gather}",
        r"\begin{gathered} a \\ b \end{gathered}",
        r"\begin{multline} a + b \\ + c \end{multline}",
        r"\begin{split} a &= b \\ &= c \end{split}",
        r"\begin{equation} a = b \label{eq:one} \end{equation}",
    ],
    "cases": [
        r"\begin{cases} 1 & \text{if } x > 0 \\ 0 & \text{otherwise} \end{cases}",
        r"\begin{dcases} \frac{a}{b} & x \\ c & y \end{dcases}",
        r"\begin{rcases} a \\ b \end{rcases} = c",
        r"\left\{ \begin{array}{ll} 1 & x > 0 \\ 0 & x \le 0 \end{array} \right.",
    ],
    "matrices": [
        *(rf"\begin{{{kind}matrix}} a & b \\ c & d \end{{{kind}matrix}}^{{-1}}" for kind in ("", *"pbBvV")),
        r"\left(\begin{smallmatrix} a & b \\ c & d \end{smallmatrix}\right)",
        r"\left[\begin{array}{cc|c} 1 & 0 & 3 \\ 0 & 1 & 4 \end{array}\right]",
        r"\begin{array}{|c|c|} \hline a & b \\ \hline c & d \\ \hline \end{array}",
    ],
    "text": [
        r"\text{speed (m/s)} = \frac{\text{distance}}{\text{time}}",
        r"\text{a $x^2$ b} + \text{cost: \$5} + \text{50\% of} + \text{a\_b}",
        r"\text{\textbf{bold} words} + \textbf{bold} + \textit{slanted} + \mbox{a} + \texttt{code}",
        r"\text{한국어} + \text{速度} + \text{قيمة}",
    ],
    "operators": [
        r"\operatorname{softmax}(x)_i",
        r"\operatorname*{arg\,max}_{x \in X} f(x)",
        r"\mathop{\mathrm{argmin}}_x f + \mathop{\sum\sum}_i",
        r"\argmax_\theta + \Var(X) + \tr(A) + \KL(p \| q)",
        r"\lim_{x \to 0} \sup \max_i \log_2 \sin^{-1} \bmod \pmod{n}",
        r"\sum_{\substack{i=1 \\ j=2}}^{n} \prod_{i} \int\limits_0^1 \oint \iint",
    ],
    "fences": [
        r"\left. \frac{dy}{dx} \right|_{x=0} + \left\| x \right\|_2 + \left\lfloor x \right\rfloor",
        r"\left\{ a \,\middle|\, b \right\} + \bigl[ a \bigr] + \Big\| b \Big\| + \biggl( c \biggr)",
        r"\langle \psi | \phi \rangle + \bra{a}\ket{b} + \lvert x \rvert + \abs{x} + \norm{\frac{a}{b}}",
    ],
    "above and below": [
        r"\underbrace{a + b}_{\text{sum}} + \overbrace{a}^{n} + \overset{!}{=} + \underset{x}{\min} + \stackrel{a}{=}",
        r"A \xrightarrow{f} B \xleftarrow[below]{above} C",
        r"\hat{a} \tilde{a} \bar{a} \vec{a} \dot{a} \ddot{a} \widehat{abc} \overline{AB} \overrightarrow{AB}",
        r"\cancel{x} + \bcancel{y} + \cancelto{0}{z} + \boxed{x = 42} + \fbox{so} + \colorbox{red}{$x$}",
    ],
    "fractions": [
        r"\dfrac{a}{b} + \tfrac12 + \cfrac{1}{1 + \cfrac{1}{2}} + \nicefrac{1}{2} + \binom{n}{k} + {n \choose k}",
        r"\genfrac{(}{)}{0pt}{}{n}{k} + \sqrt[3]{x} + \dv{y}{x} + \pdv{f}{x}",
    ],
    "letters": [
        r"\mathbb{R}^n \mathcal{L} \mathfrak{g} \mathscr{F} \mathbf{v} \boldsymbol{\beta} \bm{x} \mathsf{S}",
        r"\alpha \varepsilon \vartheta \Omega \hbar \ell \Re \aleph \infty \partial \nabla \R \N \E",
        r"\S 5 \copyright \pounds \qed \checkmark \therefore \because",
    ],
    "signs": [
        r"90^\circ + 30\degree + 20\,\textdegree + 25\celsius + 50\% + \$5 + \# + \& + \_ + \{ + \}",
        r"\le \geqslant \neq \not= \approx \equiv \propto \ll",
        r"\in \notin \subseteq \cup \setminus \emptyset \forall \nexists \perp \parallel \mid \angle \triangle",
        r"\Rightarrow \iff \mapsto \rightleftharpoons \hookrightarrow \leadsto \implies \to \uparrow \nearrow",
        r"\pm \times \div \cdot \oplus \otimes \ldots \cdots \vdots \ddots \dagger",
        r"a := b \quad x \coloneqq y \triangleq z \, \: \; \! \enspace \hspace{1em} \phantom{x} \allowbreak",
    ],
    "chemistry": [r"\ce{2H2 + O2 -> 2H2O}", r"\ce{A <=>[k_1][k_2] B}", r"\ce{^{14}_{6}C}", r"\ce{Ca(OH)2 v}"],
    "units": [
        r"\SI{5}{\meter\per\second}",
        r"\qty{1e-3}{kg}",
        r"\unit{\kilo\watt\hour}",
        r"\pu{5 m/s^2}",
        r"\num{3e8}",
    ],
    "own": [r"\def\a{x} \a", r"\newcommand{\tr}{y} \tr", r"\DeclareMathOperator{\argmax}{arg} \argmax"],
}


@pytest.mark.parametrize("subject", CONSTRUCTS)
def test_what_models_write_is_drawn(qapp, subject):
    for source in CONSTRUCTS[subject]:
        for display in (True, False):
            formula = lay_out(source, 16, display)
            assert formula.width > 8, source
            assert not formula.path.isEmpty(), source


@pytest.mark.parametrize(
    ("source", "plain"),
    [
        (r"\operatorname*{argmax}_{x} f", r"\underset{x}{\operatorname{argmax}}\, f"),
        (r"\operatorname{arg\,max}", r"\operatorname{arg}\,\operatorname{max}"),
        (r"\cancelto{0}{w}", r"{\cancel{w}}^{0}"),
        (r"\abs{\norm{x}}", r"\left|\left\|x\right\|\right|"),
        (r"\dv yx", r"\frac{d y}{dx}"),
        (r"\dv[2]{y}{x}", r"\frac{d^{2} y}{dx^{2}}"),
        (r"\pdv{f}{x}", r"\frac{\partial f}{\partial x}"),
        (r"\pdv{f}{x}{y}", r"\frac{\partial^{2} f}{\partial x\,\partial y}"),
        (r"\text{a $x$ b}", r"{\text{a }{x}\text{ b}}"),
        (r"\text{50\% of}", r"{\text{50}\%\text{ of}}"),
        (r"\text{plain}", r"\text{plain}"),
        (r"\mathopen( x \mathclose)", "( x )"),
        (r"\R\\\R", r"\mathbb{R}\\\mathbb{R}"),
        (r"\def\R{x} \R", r"\def\R{x} \R"),
        (r"\absurd{x} \abs", r"\absurd{x} \abs"),
        (r"\begin{alignat*}{2} a &= b \end{alignat*}", r"\begin{align*} a &= b \end{align*}"),
    ],
)
def test_commands_become_what_they_stand_for(source, plain):
    assert prepared(source) == plain


def test_tags_stand_behind_their_equations(qapp):
    assert prepared(r"\tag{1.2} a = b").split() == ["a", "=", "b", r"\qquad", r"\text{(1.2)}"]
    assert prepared(r"a \tag*{*}").split() == ["a", r"\qquad", r"\text{*}"]
    lines = prepared(r"\begin{align} a &= b \tag{1} \\ c &= d \tag{2} \end{align}")
    assert lines.index("(1)") < lines.index(r"\\") < lines.index("(2)")
    assert lay_out(r"a \tag{*}", 16, True).width > lay_out("a", 16, True).width + 16


def test_states_are_close_to_their_brackets(qapp):
    def width(source):
        return lay_out(source, 16, True).width

    assert width(r"\ket{0}") < width("0") + 20
    assert width(r"\bra{\psi}\ket{\phi}") < width(r"\psi\phi") + 36
    assert prepared(r"\braket{a|b}") == prepared(r"\braket{a}{b}") == r"{\left\langle a\middle| b\right\rangle}"


def test_fractions_that_go_on_without_end_keep_their_size(qapp):
    def height(source):
        formula = lay_out(source, 16, True)
        return formula.ascent + formula.descent

    heights = [height(r"\cfrac{1}{2+" * n + "x" + "}" * n) for n in (1, 2, 3, 4)]
    steps = [after - before for before, after in pairwise(heights)]
    assert min(steps) > 0.9 * max(steps)


@pytest.mark.parametrize("kind", ["gather", "gather*", "gathered", "multline"])
def test_lines_stand_below_each_other_within_a_line_of_text_too(qapp, kind):
    formula = lay_out(rf"\begin{{{kind}}} a \\ b \end{{{kind}}}", 16, False)
    assert formula.ascent + formula.descent > 1.6 * (lay_out("ab", 16, False).ascent + 4)


def test_what_refers_to_an_equation_shows_its_name(qapp):
    assert prepared(r"\eqref{a} \ref{b}") == r"\text{(a)} \text{b}"
    assert lay_out(r"\eqref{eq:one_a} \ref{b}", 16, True).width > 40
    assert lay_out(r"\textcolor{red}{x}", 16, True).width == pytest.approx(lay_out("x", 16, True).width, abs=1)


def test_an_index_stands_below_an_operator_only_in_a_formula_of_its_own():
    assert prepared(r"\operatorname*{argmax}_x", display=False) == r"\operatorname{argmax}_x"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("H2O", r"{\mathrm{H}_{2}\mathrm{O}}"),
        ("2H2", r"{2\,\mathrm{H}_{2}}"),
        ("Fe^{3+}", r"{\mathrm{Fe}^{3+}}"),
        ("SO4^2-", r"{\mathrm{S}\mathrm{O}_{4}^{2-}}"),
        ("Na+", r"{\mathrm{Na}^{+}}"),
        ("A + B", r"{\mathrm{A}  +  \mathrm{B}}"),
        ("A -> B", r"{\mathrm{A}  \rightarrow  \mathrm{B}}"),
        ("A ->[heat] B", r"{\mathrm{A}  \xrightarrow{{\mathrm{heat}}}  \mathrm{B}}"),
        ("^{14}_{6}C", r"{{}^{14}_{6}\mathrm{C}}"),
        ("CH2=CH2", r"{\mathrm{C}\mathrm{H}_{2}{=}\mathrm{C}\mathrm{H}_{2}}"),
        ("CO2 ^", r"{\mathrm{C}\mathrm{O}_{2} \uparrow }"),
        ("(OH)2", r"{(\mathrm{O}\mathrm{H})_{2}}"),
        ("1/2 O2", r"{\frac{1}{2}\, \mathrm{O}_{2}}"),
    ],
)
def test_chemical_formulas(text, plain):
    assert chemistry(text) == plain


def test_units_and_numbers():
    assert units(r"\meter\per\second\squared") == r"\mathrm{m}/\mathrm{s}^{2}"
    assert units(r"\kilo\watt\hour") == r"\mathrm{kW}\,\mathrm{h}"
    assert units("kg.m/s^2") == r"\mathrm{kg}\,\mathrm{m}/\mathrm{s}^2"
    assert number("1.5e-3") == r"1.5 \times 10^{-3}"
    assert number("-e6") == "-10^{6}"
    assert quantity("20", r"\celsius") == r"20{}^{\circ}\mathrm{C}"
    assert physical_unit("5 m") == r"5\,\mathrm{m}"


def test_a_sign_stands_close_to_what_it_belongs_to(qapp):
    """Behind an operand it is one between two, with blanks on both sides."""

    def width(source):
        return lay_out(source, 16, True).width

    assert width("a = -b") - width("a = b") < width("a - b") - width("ab") - 2
    assert width("f(x) - b") - width("f(x)b") == pytest.approx(width("a - b") - width("ab"), abs=0.5)
    assert width("x! - b") - width("x!b") == pytest.approx(width("a - b") - width("ab"), abs=0.5)


def test_lines_of_an_array_are_drawn(qapp):
    def drawn(columns, line=""):
        return lay_out(rf"\begin{{array}}{{{columns}}} 1 & 2 \\ {line} 3 & 4 \end{{array}}", 16, True)

    bare, ruled, lined = drawn("cc"), drawn("c|c"), drawn("cc", r"\hline")
    more = len([*ruled.path.toSubpathPolygons()]) - len([*bare.path.toSubpathPolygons()])
    assert more == len([*lined.path.toSubpathPolygons()]) - len([*bare.path.toSubpathPolygons()]) == 1
    middle = ruled.width / 2
    line = min(ruled.path.toSubpathPolygons(), key=lambda shape: abs(shape.boundingRect().center().x() - middle))
    assert line.boundingRect().height() == pytest.approx(bare.ascent + bare.descent, abs=2)


@pytest.mark.parametrize(
    "source",
    [
        r"\begin{CD} A @>>> B \end{CD}",
        r"\begin{tikzpicture} \draw (0,0) -- (1,1); \end{tikzpicture}",
        r"\unheardof{x}",
        r"\ce{",
        r"\genfrac{a}",
        r"\left( x",
        "x & y } {",
    ],
)
def test_what_cannot_be_drawn_is_no_formula(qapp, source):
    """Its source is shown then."""
    with pytest.raises(FormulaError):
        lay_out(source, 16, True)


PIECES = [
    r"\text{",
    r"\ce{",
    r"\abs{",
    r"\operatorname*{",
    "}",
    "$",
    r"\$",
    "x",
    "2",
    "_",
    "^",
    "{",
    r"\\",
    r"\SI",
    "[",
]
PIECES += [r"\genfrac", r"\begin{vmatrix}", r"\end{vmatrix}", "->", r"\def\R{", r"\R", "&", "]", "(", r"\per", "+", " "]


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@settings(max_examples=60, deadline=None)
def test_any_source_is_drawn_or_none(source):
    try:
        formula = lay_out(source, 16, True)
    except FormulaError:
        return
    assert formula.width >= 0


@pytest.mark.parametrize("piece", [r"\text{a $", r"\abs{", r"\ce{A ->[", r"\mathop{", r"\textbf{x "])
def test_commands_in_commands_are_written_anew_a_bounded_number_of_times(piece):
    source = (piece * LONGEST)[: LONGEST // 2] + "}" * (LONGEST // 2)
    assert len(prepared(source)) < 30 * LONGEST
