"""LaTeX formulas as outlines that Qt can fill: no browser, no network, no TeX.

ziamath lays a formula out and writes SVG shapes; here they become one path. Nothing in this module touches a widget, so
it runs on any thread, but on one at a time: the library keeps its fonts and its settings in globals.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from inspect import CO_GENERATOR
from types import FrameType, ModuleType
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QPainterPath, QPainterPathStroker

from app.chat.formulas.math_macros import prepared

#: A longer or deeper source is shown as it is written.
LONGEST, DEEPEST = 4000, 60
#: Calls that laying out one formula may take. The library measures nested parts twice, so that each level of a fraction
#: in a fraction doubles the work: 12 of them would take minutes. The quadratic formula takes 150,000.
MOST_CALLS = 5_000_000
_LIBRARIES = ("ziamath", "ziafont", "latex2mathml")
#: Sizes that are no formula any more.
WIDEST, TALLEST = 20_000.0, 4_000.0

_ENVIRONMENTS = frozenset(
    [
        *("equation", "equation*", "align", "align*", "aligned", "alignat", "alignat*", "alignedat", "split", "math"),
        *("gather", "gather*", "gathered", "multline", "multline*", "eqnarray", "eqnarray*", "displaymath"),
        *("flalign", "flalign*", "alignat*"),
        *("cases", "dcases", "rcases", "drcases", "array", "subarray", "matrix", "smallmatrix"),
        *("pmatrix", "bmatrix", "Bmatrix", "vmatrix", "Vmatrix"),
    ]
)
_ENVIRONMENT = re.compile(r"\\begin\s*\{([^{}]*)\}")
#: How the library writes a command that it does not know.
_UNKNOWN = re.compile(r"<m[a-z]+[^>]*>\\([a-zA-Z]+)")
#: A sign that begins something, and stands close to it: not behind an operand, nor behind what closes a bracket.
_SIGN = re.compile(
    r"(<mrow>|<mtd[^>]*>|<mo[^>]*>(?!\)|\]|\}|\||!|&#x0(?:0021|0029|005D|007D|007C|2016|230B|2309|27E9);)[^<]*</mo>)"
    r"<mo>(&#x02212;|&#x0002B;|&#x000B1;)</mo>"
)
#: Integrals, sums and the like, which within a line must not grow to the height of what follows them.
_LARGE = re.compile(r"<mo>(&#x0(?:222[B-F]|2230|2211|220F|2210|22C[0-3]|2A0[0-6]);)</mo>")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[A-Za-z]")


class FormulaError(ValueError):
    """This is no formula, or one that is too much work."""


@dataclass(frozen=True)
class Formula:
    """Outlines in logical pixels. The origin is on the baseline, y grows downwards.

    width: to where the next character may begin; ascent, descent: above and below the baseline
    """

    path: QPainterPath
    width: float
    ascent: float
    descent: float


def lay_out(source: str, size: float, display: bool) -> Formula:
    """LaTeX without its dollars -> Formula.

    size: the font's in logical pixels; display: with limits above and below, as in a line of its own
    Raises FormulaError.
    """
    if not source.strip():
        raise FormulaError("the formula is empty")
    if len(source) > LONGEST or _depth(source) > DEEPEST:
        raise FormulaError("the formula is too long")
    try:
        library = _library()
        with _bounded(MOST_CALLS):
            if unknown := next((name for name in _ENVIRONMENT.findall(source) if name not in _ENVIRONMENTS), None):
                raise FormulaError(f"{unknown} is no environment that could be drawn")
            tree = library.tex.tex2mml(prepared(source, display), inline=not display)
            if unknown := _UNKNOWN.search(tree):
                raise FormulaError(f"\\{unknown[1]} is not known")
            tree = _SIGN.sub(r'\1<mo form="prefix">\2</mo>', tree)
            if not display:
                tree = _LARGE.sub(r'<mo stretchy="false">\1</mo>', tree)
            drawn = library.Math(tree, size=size)
            shapes = drawn.svgxml()
        return _formula(drawn.node.bbox, shapes)
    except FormulaError:
        raise
    except Exception as error:
        # The parser has no error of its own: half a formula ends it with whatever it ran into.
        raise FormulaError(f"{type(error).__name__}: {error}") from None


def _depth(source: str) -> int:
    depth = deepest = 0
    for character in source:
        depth += (character == "{") - (character == "}")
        deepest = max(deepest, depth)
    return deepest


class _TooMuch(BaseException):
    """Nothing in the library catches this one."""


def _of_library(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in _LIBRARIES


@contextmanager
def _bounded(calls: int) -> Iterator[None]:
    """Raises FormulaError in the middle of a block in which the library makes more calls than that, on this thread."""
    left = calls

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal left
        left -= 1
        # Python takes the counter away when it raises, and drops what is raised while it destroys something, such as a
        # generator that was not read to its end.
        if left < 0 and event == "call" and not frame.f_code.co_flags & CO_GENERATOR and _of_library(frame):
            raise _TooMuch

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    except _TooMuch:
        raise FormulaError("the formula is too much work") from None
    finally:
        sys.setprofile(before)


@lru_cache(maxsize=1)
def _library() -> ModuleType:
    """ziamath, imported when the first formula is met: that takes a tenth of a second."""
    import ziamath
    from ziamath.nodes.mnumber import Midentifier, Mtext
    from ziamath.nodes.mtable import Mtable

    # Shapes with absolute coordinates instead of symbols that are referred to.
    ziamath.config.svg2 = False
    ziamath.config.precision = 3
    # Making a subclass registers it for its tag.
    type("_Text", (_SystemFont, Mtext), {}, tag="mtext")
    type("_Identifier", (_SystemFont, Midentifier), {}, tag="mi")
    type("_Table", (_LinedTable, Mtable), {}, tag="mtable")
    return ziamath


class _SystemFont:
    """Words that the formula font has no letters for, such as Korean ones, are set in the window's font."""

    def _setup(self: Any, **options: Any) -> None:
        if all(self.font.findglyph(letter, self.style.mathvariant).index for letter in self.string):
            super()._setup(**options)  # type: ignore[misc]
            return
        words = _Words(self.string, self.glyphsize)
        self.nodes.append(words)
        self.nodexy.append((0.0, 0.0))
        self.bbox = words.bbox


class _LinedTable:
    """The lines between columns and rows, which the library leaves out: a sum has one, and a system of equations."""

    def _setup(self: Any, **options: Any) -> None:
        super()._setup(**options)  # type: ignore[misc]
        beside, below = (self.element.get(name, "").split() for name in ("columnlines", "rowlines"))
        if "solid" not in (*beside, *below):
            return
        columns, rows = (self.element.get(name, "0.3em").split() for name in ("columnspacing", "rowspacing"))
        cells = iter(zip(self.nodes, self.nodexy, strict=True))
        table = [[next(cells) for _ in row] for row in self.element]
        thickness = self.units_to_points(self.font.math.consts.fractionRuleThickness)
        box = self.bbox
        widths = [max(row[c][0].bbox.xmax for row in table if c < len(row)) for c in range(max(map(len, table)))]
        gaps = [self.size_px(columns[c % len(columns)]) for c in range(len(widths))]
        x = (box.xmax - sum(widths) - sum(gaps[:-1])) / 2
        for kind, width, gap in zip(beside, widths, gaps, strict=False):
            x += width + gap
            if kind == "solid":
                self._add_line(x - gap / 2, -box.ymax, thickness, box.ymax - box.ymin)
        for r, (kind, row) in enumerate(zip(below, table, strict=False)):
            bottom = row[0][1][1] - min(node.bbox.ymin for node, _ in row)
            if kind == "solid":
                self._add_line(0.0, bottom + self.size_px(rows[r % len(rows)]) / 2, box.xmax, thickness)

    def _add_line(self: Any, x: float, y: float, width: float, height: float) -> None:
        self.nodes.append(_Line(width, height))
        self.nodexy.append((x, y))


class _Line:
    """A leaf of the library's tree that draws a line."""

    mtag = "rect"
    nodes: tuple[object, ...] = ()

    def __init__(self, width: float, height: float) -> None:
        from ziafont.fonttypes import BBox

        self.width, self.height = width, height
        self.bbox = BBox(0.0, width, -height, 0.0)

    def draw(self, x: float, y: float, svg: Element) -> tuple[float, float]:
        place = {"x": x, "y": y, "width": self.width, "height": self.height}
        SubElement(svg, "rect", {name: str(value) for name, value in place.items()})
        return x, y


class _Words:
    """A leaf of the library's tree that draws an SVG <text>."""

    mtag = "text"
    nodes: tuple[object, ...] = ()

    def __init__(self, text: str, size: float) -> None:
        from ziafont.fonttypes import BBox

        metrics = QFontMetricsF(_text_font(size))
        self.text, self.size = text, size
        self.bbox = BBox(0.0, metrics.horizontalAdvance(text), -metrics.descent(), metrics.ascent())

    def firstglyph(self) -> None:
        return None

    def lastglyph(self) -> None:
        return None

    def lastchar(self) -> str:
        return self.text[-1:]

    def xadvance(self) -> float:
        return float(self.bbox.xmax)

    def draw(self, x: float, y: float, svg: Element) -> tuple[float, float]:
        SubElement(svg, "text", {"x": str(x), "y": str(y), "font-size": str(self.size)}).text = self.text
        return x + self.bbox.xmax, y


def _text_font(size: float) -> QFont:
    font = QFont()
    font.setPixelSize(max(1, round(size)))
    return font


def _formula(box: Any, shapes: Element) -> Formula:
    width, ascent, descent = float(box.xmax), float(box.ymax), float(-box.ymin)
    if not (0 <= width <= WIDEST and abs(ascent) <= TALLEST and abs(descent) <= TALLEST):
        raise FormulaError("the formula has no size that could be shown")
    path = QPainterPath()
    # Where the bar of a root crosses its stem, both are to be filled.
    path.setFillRule(Qt.FillRule.WindingFill)
    for shape in shapes.iter():
        outline = _outline(shape)
        if outline is not None:
            path.addPath(outline)
    if path.isEmpty() and not width:
        raise FormulaError("there is nothing to be seen of the formula")
    # Slanted letters stick out of their boxes.
    width = max(width, path.boundingRect().right())
    return Formula(path, width, max(ascent, 0.0), max(descent, 0.0))


def _outline(shape: Element) -> QPainterPath | None:
    """An SVG shape as an area to be filled."""
    kind, get = shape.tag, lambda name: float(shape.get(name, "0"))
    path = QPainterPath()
    if kind == "path":
        _trace(path, shape.get("d", ""))
    elif kind == "rect":
        path.addRect(QRectF(get("x"), get("y"), get("width"), get("height")))
    elif kind == "ellipse":
        path.addEllipse(QPointF(get("cx"), get("cy")), get("rx"), get("ry"))
    elif kind == "text":
        path.addText(QPointF(get("x"), get("y")), _text_font(get("font-size")), shape.text or "")
    else:
        return None
    if shape.get("stroke"):
        stroker = QPainterPathStroker()
        stroker.setWidth(get("stroke-width") or 1.0)
        return stroker.createStroke(path)
    return path


def _trace(path: QPainterPath, data: str) -> None:
    """SVG path data with absolute coordinates, as fonts need them."""
    pieces = iter(_NUMBER.findall(data))

    def point() -> QPointF:
        return QPointF(float(next(pieces)), float(next(pieces)))

    for piece in pieces:
        if piece == "M":
            path.moveTo(point())
        elif piece == "L":
            path.lineTo(point())
        elif piece == "H":
            path.lineTo(QPointF(float(next(pieces)), path.currentPosition().y()))
        elif piece == "V":
            path.lineTo(QPointF(path.currentPosition().x(), float(next(pieces))))
        elif piece == "Q":
            path.quadTo(point(), point())
        elif piece == "C":
            path.cubicTo(point(), point(), point())
        elif piece == "Z":
            path.closeSubpath()
        else:
            raise FormulaError(f"a shape that is not known: {piece}")
