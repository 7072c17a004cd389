r"""LaTeX that models write and the library does not know, as such that it does.

Commands of packages become what they stand for, environments their plainer relatives, and \text what may stand in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from app.chat.formulas.math_units import chemistry, number, physical_unit, quantity, units

#: Commands within commands that are written anew.
DEEPEST = 12

#: Name -> how many arguments it has, and what it becomes: #1 is the first of them.
_TEMPLATES: dict[str, tuple[int, str]] = {
    # physics
    "abs": (1, r"\left|#1\right|"),
    "norm": (1, r"\left\|#1\right\|"),
    "dd": (0, r"\mathrm{d}"),
    "ket": (1, r"{\left|#1\right\rangle}"),
    "bra": (1, r"{\left\langle #1\right|}"),
    "ketbra": (2, r"{\left|#1\right\rangle}{\left\langle #2\right|}"),
    "expval": (1, r"{\left\langle #1\right\rangle}"),
    "cfrac": (2, r"\dfrac{#1}{#2}"),
    "nicefrac": (2, r"{#1}/{#2}"),
    "sfrac": (2, r"{#1}/{#2}"),
    "cancelto": (2, r"{\cancel{#2}}^{#1}"),
    "textsuperscript": (1, r"{}^{\text{#1}}"),
    "textsubscript": (1, r"{}_{\text{#1}}"),
    "eqref": (1, r"\text{(#1)}"),
    "ref": (1, r"\text{#1}"),
    "ang": (1, r"#1^{\circ}"),
    # Where it stands does not matter here, nor its colour.
    "colorbox": (2, r"\text{#2}"),
    "fcolorbox": (3, r"\boxed{\text{#3}}"),
    "raisebox": (2, r"\text{#2}"),
    "vspace": (1, ""),
    "require": (1, ""),
    "mathrel": (1, "{#1}"),
    "mathbin": (1, "{#1}"),
    "mathord": (1, "{#1}"),
    "mathpunct": (1, "{#1}"),
    "mathopen": (1, "#1"),
    "mathclose": (1, "#1"),
    "mathinner": (1, "{#1}"),
    "emph": (1, r"\textit{#1}"),
    # Names that papers define for themselves.
    **{name: (0, rf"\mathbb{{{name}}}") for name in ("R", "N", "Z", "Q", "C", "E")},
    **{name * 2: (0, rf"\mathbb{{{name}}}") for name in ("R", "N", "Z", "Q", "C")},
    "qed": (0, r"\blacksquare "),
    "newline": (0, r"\\"),
    "textdegree": (0, r"{}^{\circ}"),
    "celsius": (0, r"{}^{\circ}\mathrm{C}"),
    "textbackslash": (0, r"\backslash "),
    "P": (0, r"\text{¶}"),
    "S": (0, r"\text{§}"),
    "copyright": (0, r"\text{©}"),
    "pounds": (0, r"\text{£}"),
    "euro": (0, r"\text{€}"),
    "textasciitilde": (0, r"{\sim}"),
    "noindent": (0, ""),
    "hfill": (0, r"\quad "),
    "enspace": (0, r"\;\,"),
    "thinspace": (0, r"\,"),
    "medspace": (0, r"\:"),
    "thickspace": (0, r"\;"),
    "negthinspace": (0, r"\!"),
    "allowbreak": (0, ""),
    "centering": (0, ""),
}
#: Operators without a command of their own in TeX.
_OPERATORS = ("argmax", "argmin", "softmax", "sigmoid", "ReLU", "sgn", "sign", "tr", "Tr", "diag", "rank", "Var", "Cov")
_OPERATORS += ("KL", "span", "erf", "lcm", "Attention", "MLP", "FFN", "Res", "supp", "id", "mean", "std")
_TEMPLATES |= {name: (0, rf"\operatorname{{{name}}}") for name in _OPERATORS}

_UNITS: dict[str, tuple[int, Callable[..., str]]] = {
    "ce": (1, chemistry),
    "pu": (1, physical_unit),
    "SI": (2, quantity),
    "qty": (2, quantity),
    "si": (1, units),
    "unit": (1, units),
    "num": (1, number),
}
_TEXTS = {"text", "textrm", "textnormal", "textup", "textmd", "mbox", "hbox", "textbf", "textit", "textsf", "texttt"}
_PLAIN_TEXTS = {"textrm", "textnormal", "textup", "textmd", "mbox", "hbox"}

_COMMAND = re.compile(r"\\([a-zA-Z]+)\*?(?![a-zA-Z])")
_ESCAPED = re.compile(r"\\([$%&#_{}])|\\[,;: ]|~")
_DEFINED = re.compile(r"\\(?:def\s*\\|(?:re)?newcommand\*?\s*\{?\s*\\|DeclareMathOperator\*?\s*\{?\s*\\)([a-zA-Z]+)")
_WORD = re.compile(r"[A-Za-z0-9]+")

#: Environment -> what opens and what closes its relative.
_ENVIRONMENTS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("align", "alignat", "alignat*", "alignedat", "flalign", "flalign*"), (r"\begin{align*}", r"\end{align*}")
    ),
    "aligned": (r"\begin{aligned}", r"\end{aligned}"),
    "gather": (r"\begin{gather*}", r"\end{gather*}"),
    "displaymath": ("", ""),
    "eqnarray": (r"\begin{array}{rcl}", r"\end{array}"),
    "eqnarray*": (r"\begin{array}{rcl}", r"\end{array}"),
    "dcases": (r"\begin{cases}", r"\end{cases}"),
    "rcases": (r"\left.\begin{array}{ll}", r"\end{array}\right\}"),
    "drcases": (r"\left.\begin{array}{ll}", r"\end{array}\right\}"),
    # A matrix with an exponent counts as one thing only within braces, and bars would touch what is between them.
    "pmatrix": (r"{\begin{pmatrix}", r"\end{pmatrix}}"),
    "bmatrix": (r"{\begin{bmatrix}", r"\end{bmatrix}}"),
    "Bmatrix": (r"{\left\{\,\begin{matrix}", r"\end{matrix}\,\right\}}"),
    "vmatrix": (r"{\left|\,\begin{matrix}", r"\end{matrix}\,\right|}"),
    "Vmatrix": (r"{\left\|\,\begin{matrix}", r"\end{matrix}\,\right\|}"),
}
_ROWS = re.compile(r"\\(begin|end)\s*\{(?:gather\*?|gathered|multline\*?)\}")
#: What an equation is called at the right edge of a page.
_TAG = re.compile(r"\\tag(\*?)\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_BEGIN = re.compile(r"\\begin\s*\{([a-zA-Z]+\*?)\}(\s*\[[tbc]\])?")
_END = re.compile(r"\\end\s*\{([a-zA-Z]+\*?)\}")
#: Those with an argument that says how many columns there are.
_COUNTED = re.compile(r"(\\begin\{(?:alignat\*?|alignedat)\})\s*\{\d+\}")


def prepared(source: str, display: bool = True) -> str:
    """Without the labels that equations of a page have, their tags behind them, and in words that the library knows."""
    source = re.sub(r"\\label\s*\{[^{}]*\}|\\(?:nonumber|notag)(?![a-zA-Z])", " ", source)
    source = _with_tags(source)
    source = _COUNTED.sub(r"\1", source)
    if not display:
        # Within a line the library ends no line, but a table has rows everywhere.
        source = _ROWS.sub(lambda found: r"\begin{array}{c}" if found[1] == "begin" else r"\end{array}", source)
    source = _BEGIN.sub(lambda found: _ENVIRONMENTS.get(found[1], (rf"\begin{{{found[1]}}}",))[0], source)
    source = _END.sub(lambda found: _ENVIRONMENTS.get(found[1], ("", rf"\end{{{found[1]}}}"))[1], source)
    source = _expanded(source, display, DEEPEST, frozenset(_DEFINED.findall(source)))
    # Delimiters of a given size may be single characters only.
    source = re.sub(r"\\[bB]igg?[lrm]?\s*(?=\\[a-zA-Z{}|])", "", source)
    source = re.sub(r"(?<!:):=", r"\\coloneqq ", source)
    return re.sub(r"\\not\s*=", r"\\neq ", source)


def _with_tags(source: str) -> str:
    """Each tag behind its equation: within lines of equations where it stands, else at the end."""
    tags = [rf" \qquad \text{{{found[2] if found[1] else f'({found[2]})'}}}" for found in _TAG.finditer(source)]
    if "\\begin" in source:
        written = iter(tags)
        return _TAG.sub(lambda found: next(written), source)
    return _TAG.sub(" ", source) + "".join(tags)


def _expanded(source: str, display: bool, deepest: int, own: frozenset[str]) -> str:
    """Every command that is known here written as what it stands for. own: those that the formula defines itself."""
    made: list[str] = []
    at = 0
    while found := _COMMAND.search(source, at):
        if source[found.start() - 1 : found.start()] == "\\" and _escapes(source, found.start()):
            made.append(source[at : found.start() + 1])
            at = found.start() + 1
            continue
        made.append(source[at : found.start()])
        written, end = _written(source, found, display, own) if deepest else (found[0], found.end())
        same = written == source[found.start() : end]
        made.append(written if same else _expanded(written, display, deepest - 1, own))
        at = end
    made.append(source[at:])
    return "".join(made)


def _escapes(source: str, at: int) -> bool:
    """Whether the backslash before `at` makes the one there no beginning of a command."""
    count = 0
    while at > count and source[at - count - 1] == "\\":
        count += 1
    return count % 2 == 1


def _written(source: str, found: re.Match[str], display: bool, own: frozenset[str]) -> tuple[str, int]:
    """What a command with its arguments becomes, and where the source goes on."""
    name, same = found[1], (found[0], found.end())
    if name in own:
        return same
    if name in _TEXTS:
        arguments, end = _arguments(source, found.end(), 1)
        return (_text(name, arguments[0]), end) if arguments and not found[0].endswith("*") else same
    if name == "operatorname" and found[0].endswith("*"):
        return _operator(source, found, display)
    if name == "operatorname":
        arguments, end = _arguments(source, found.end(), 1)
        return (_named(arguments[0]), end) if arguments and not _WORD.fullmatch(arguments[0]) else same
    if name == "mathop":
        return _operator(source, found, display)
    if name == "braket":
        return _braket(source, found)
    if name in ("dv", "pdv"):
        return _derivative(source, found)
    if name == "genfrac":
        arguments, end = _arguments(source, found.end(), 6)
        return (_general_fraction(*arguments), end) if arguments else same
    if name in _UNITS:
        count, write = _UNITS[name]
        arguments, end = _arguments(source, found.end(), count)
        return (write(*arguments), end) if arguments else same
    if name in _TEMPLATES:
        count, template = _TEMPLATES[name]
        arguments, end = _arguments(source, found.end(), count)
        if len(arguments) == count:
            return re.sub(r"#(\d)", lambda number: arguments[int(number[1]) - 1], template) or " ", end
    return same


def _arguments(source: str, at: int, count: int) -> tuple[list[str], int]:
    """As many arguments in braces, or single characters, and where they end. None of them unless there are all."""
    found: list[str] = []
    for _ in range(count):
        while source[at : at + 1].isspace() or source[at : at + 1] == "[":
            # What stands in brackets is optional.
            at = at + 1 if source[at] != "[" else max(at + 1, source.find("]", at) + 1)
        if source[at : at + 1] == "{":
            end = _closing(source, at)
            if end < 0:
                return [], at
            found.append(source[at + 1 : end])
            at = end + 1
        elif command := re.compile(r"\\(?:[a-zA-Z]+|.)|[^\s\\}&]").match(source, at):
            found.append(command[0])
            at = command.end()
        else:
            return [], at
    return found, at


def _closing(source: str, at: int) -> int:
    """Where the brace is closed that opens at `at`; -1 if it is not."""
    depth = 0
    for place in range(at, len(source)):
        if source[place] in "{}" and not (place and source[place - 1] == "\\" and not _escapes(source, place - 1)):
            depth += 1 if source[place] == "{" else -1
            if depth == 0:
                return place
    return -1


def _text(name: str, words: str) -> str:
    r"""Words with formulas, commands and escaped signs in them: each stands beside \text, not in it."""
    outer = "text" if name in _PLAIN_TEXTS else name
    made: list[str] = []
    for place, piece in enumerate(re.split(r"(?<!\\)\$", words)):
        if place % 2:
            made.append(f"{{{piece}}}")
            continue
        at = 0
        while at < len(piece):
            sign = piece.find("\\", at)
            plain = piece[at : sign if sign >= 0 else len(piece)]
            if plain:
                made.append(rf"\{outer}{{{plain}}}")
            if sign < 0:
                break
            if escaped := _ESCAPED.match(piece, sign):
                made.append(escaped[0])
                at = escaped.end()
            elif command := _COMMAND.match(piece, sign):
                arguments, end = _arguments(piece, command.end(), 1)
                takes = bool(arguments) and piece[command.end() : command.end() + 1] == "{"
                made.append(f"{command[0]}{{{arguments[0]}}}" if takes else f"{command[0]} ")
                at = end if takes else command.end()
            else:
                at = sign + 1
    return f"{{{''.join(made)}}}" if len(made) != 1 or name in _PLAIN_TEXTS else made[0]


def _named(name: str) -> str:
    r"""The name of an operator: "arg\,max"."""
    inner = re.sub(r"\\(?:mathrm|text|mathit|mathbf|rm|textrm)\s*|[{}]", "", name)
    words = re.split(r"\\[,;:! ]|~|\s+", inner)
    if all(map(_WORD.fullmatch, words)):
        return r"\,".join(rf"\operatorname{{{word}}}" for word in words)
    return rf"\,{{{name}}}\,"


def _operator(source: str, found: re.Match[str], display: bool) -> tuple[str, int]:
    """An operator whose index stands below it in a formula of its own."""
    arguments, end = _arguments(source, found.end(), 1)
    if not arguments:
        return found[0], found.end()
    name = _named(arguments[0])
    if found[1] == "mathop" and not name.startswith(r"\operatorname"):
        name = f"{{{arguments[0]}}}"
    limits = re.compile(r"\s*(?:\\limits\s*)?_").match(source, end)
    below, behind = _arguments(source, limits.end(), 1) if limits and display else ([], end)
    return (rf"\underset{{{below[0]}}}{{{name}}}\,", behind) if below else (name, end)


def _braket(source: str, found: re.Match[str]) -> tuple[str, int]:
    r"""\braket{a|b}, and as physics has it, \braket{a}{b}."""
    arguments, end = _arguments(source, found.end(), 1)
    if not arguments:
        return found[0], found.end()
    inner = re.sub(r"(?<!\\)\|", r"\\middle| ", arguments[0])
    if source[end : end + 1] == "{":
        others, behind = _arguments(source, end, 1)
        if others:
            inner, end = rf"{inner}\middle| {others[0]}", behind
    return rf"{{\left\langle {inner}\right\rangle}}", end


def _derivative(source: str, found: re.Match[str]) -> tuple[str, int]:
    r"""\dv[2]{y}{x}, \pdv{f}{x} and \pdv{f}{x}{y}."""
    option = re.compile(r"\s*\[([^\[\]{}]*)\]").match(source, found.end())
    arguments, end = _arguments(source, option.end() if option else found.end(), 2)
    if not arguments:
        return found[0], found.end()
    sign = "d" if found[1] == "dv" else r"\partial "
    power = f"^{{{option[1]}}}" if option else ""
    below = f"{sign}{arguments[1]}{power}"
    if found[1] == "pdv" and not option and source[end : end + 1] == "{":
        other, end = _arguments(source, end, 1)
        power, below = "^{2}", rf"{below}\,{sign}{other[0] if other else ''}"
    return rf"\frac{{{sign.strip()}{power} {arguments[0]}}}{{{below}}}", end


def _general_fraction(left: str, right: str, rule: str, style: str, above: str, below: str) -> str:
    bare = rule.strip()[:1] == "0"
    inner = rf"{{{above} \atop {below}}}" if bare else rf"\frac{{{above}}}{{{below}}}"
    return rf"\left{left.strip() or '.'}{inner}\right{right.strip() or '.'}"
