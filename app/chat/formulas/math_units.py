"""Chemical formulas and quantities with units, as mhchem and siunitx write them, as plain LaTeX."""

from __future__ import annotations

import re

_ARROWS = {
    "<=>": r"\rightleftharpoons",
    "<=>>": r"\rightleftharpoons",
    "<<=>": r"\rightleftharpoons",
    "<->": r"\leftrightarrow",
    "->": r"\rightarrow",
    "<-": r"\leftarrow",
}
_CHEMISTRY = re.compile(
    r"""(?P<arrow><<=>|<=>>|<=>|<->|->|<-)(?:\[(?P<above>[^\]]*)\])?(?:\[(?P<below>[^\]]*)\])?
    |\$(?P<math>[^$]*)\$
    |(?P<script>[\^_])(?:\{(?P<braced>[^{}]*)\}|(?P<bare>\d*[+-]|\d+|[A-Za-z*]))
    |(?P<gas>(?:(?<=\s)|^)[\^v](?=\s|$))
    |(?P<number>\d+(?:[./]\d+)?)
    |(?P<command>\\[a-zA-Z]+|\\.)
    |(?P<letters>[A-Z][a-z]?|[a-z]+)
    |(?P<charge>[+-](?=[\s)\]}]|$))
    |(?P<blank>\s+)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_BONDS = {"-": "{-}", "=": "{=}", "#": r"{\equiv}", "*": r"\cdot ", ".": r"\cdot ", "~": "{-}"}

_PREFIXES = {
    **{"quecto": "q", "ronto": "r", "yocto": "y", "zepto": "z", "atto": "a", "femto": "f", "pico": "p", "nano": "n"},
    **{"micro": r"\mu ", "milli": "m", "centi": "c", "deci": "d", "deca": "da", "hecto": "h", "kilo": "k", "mega": "M"},
    **{"giga": "G", "tera": "T", "peta": "P", "exa": "E", "zetta": "Z", "yotta": "Y"},
    **{"kibi": "Ki", "mebi": "Mi", "gibi": "Gi", "tebi": "Ti"},
}
_UNITS = {
    **{"meter": "m", "metre": "m", "gram": "g", "kilogram": "kg", "second": "s", "minute": "min", "hour": "h"},
    **{"ampere": "A", "kelvin": "K", "mole": "mol", "candela": "cd", "hertz": "Hz", "newton": "N", "pascal": "Pa"},
    **{"joule": "J", "watt": "W", "coulomb": "C", "volt": "V", "farad": "F", "ohm": r"\Omega ", "siemens": "S"},
    **{"weber": "Wb", "tesla": "T", "henry": "H", "lumen": "lm", "lux": "lx", "becquerel": "Bq", "gray": "Gy"},
    **{"sievert": "Sv", "liter": "L", "litre": "L", "tonne": "t", "electronvolt": "eV", "bar": "bar", "dalton": "Da"},
    **{"byte": "B", "bit": "bit", "decibel": "dB", "bel": "B", "radian": "rad", "steradian": "sr", "molar": "M"},
    **{"percent": r"\% ", "degree": r"{}^{\circ}", "celsius": r"{}^{\circ}\mathrm{C}", "angstrom": r"\text{Å}"},
    "degreeCelsius": r"{}^{\circ}\mathrm{C}",
    "astronomicalunit": "au",
    "day": "d",
}
_POWERS = {"squared": "2", "cubed": "3"}
_UNIT = re.compile(r"\\(?P<macro>[a-zA-Z]+)(?:\{(?P<power>[^{}]*)\})?|(?P<word>[A-Za-zµΩ°%]+)|(?P<sign>\S)")
_NUMBER = re.compile(r"([-+]?[\d.,]*)[eE]([-+]?\d+)")


def chemistry(text: str) -> str:
    """The argument of mhchem's ce: "2H2 + O2 -> 2H2O"."""
    made: list[str] = []
    #: What stands before is something that an index or a charge belongs to.
    carries = False
    for found in _CHEMISTRY.finditer(text.strip()):
        kind, piece = found.lastgroup, found[0]
        if found["arrow"]:
            made.append(_arrow(found["arrow"], found["above"], found["below"]))
        elif found["math"] is not None:
            made.append(f"{{{found['math']}}}")
        elif found["gas"]:
            made.append(r"\uparrow " if piece == "^" else r"\downarrow ")
        elif found["script"]:
            inner = found["braced"] if found["braced"] is not None else found["bare"]
            made.append(f"{'' if carries else '{}'}{found['script']}{{{_upright(inner)}}}")
            carries = True
            continue
        elif found["number"]:
            above, slash, below = piece.partition("/")
            made.append(f"_{{{piece}}}" if carries else rf"\frac{{{above}}}{{{below}}}\," if slash else rf"{piece}\,")
            continue
        elif found["charge"]:
            made.append(f"^{{{piece}}}" if carries else f" {piece} ")
        elif kind == "letters":
            made.append(rf"\mathrm{{{piece}}}")
        elif kind == "sign":
            made.append(_BONDS.get(piece, piece))
        else:
            made.append(piece)
        carries = kind in ("letters", "command") or piece in (")", "]", "}")
    return f"{{{''.join(made)}}}"


def _arrow(arrow: str, above: str | None, below: str | None) -> str:
    if above is None:
        return rf" {_ARROWS[arrow]} "
    under = "" if below is None else f"[{chemistry(below)}]"
    if arrow in ("->", "<-"):
        return rf" \x{_ARROWS[arrow][1:]}{under}{{{chemistry(above)}}} "
    drawn = rf"\overset{{{chemistry(above)}}}{{{_ARROWS[arrow]}}}"
    return f" {drawn} " if below is None else rf" \underset{{{chemistry(below)}}}{{{drawn}}} "


def _upright(text: str) -> str:
    return re.sub(r"(?<![\\A-Za-z])[A-Za-z]+", lambda found: rf"\mathrm{{{found[0]}}}", text)


def units(text: str) -> str:
    r"""The argument of siunitx' unit: "\meter\per\second\squared" or "kg.m/s^2"."""
    made: list[str] = []
    prefix, per = "", False
    for found in _UNIT.finditer(text):
        word, macro, sign = found["word"], found["macro"], found["sign"]
        if macro == "per":
            per = True
        elif macro in _PREFIXES:
            prefix = _PREFIXES[macro]
        elif macro in _POWERS or macro == "tothe":
            made.append(f"^{{{_POWERS.get(macro, found['power'])}}}")
        elif sign is not None:
            made.append({".": r"\,", "*": r"\cdot ", "~": r"\,"}.get(sign, sign))
        else:
            name = _UNITS.get(macro, macro) if macro else word
            unit = f"{prefix}{name}" if name.startswith(("\\", "{")) and not prefix else rf"\mathrm{{{prefix}{name}}}"
            joined = bool(made) and made[-1] not in (r"\,", r"\cdot ", "/", "^", "(")
            made.append(f"{'/' if per else chr(92) + ',' if joined else ''}{unit}")
            prefix, per = "", False
    return "".join(made)


def number(text: str) -> str:
    r""" "1.5e-3" -> "1.5 \times 10^{-3}"."""
    text = text.strip()
    found = _NUMBER.fullmatch(text)
    if found is None:
        return text.replace("+-", r"\pm ")
    power = f"10^{{{int(found[2])}}}"
    return rf"{found[1]} \times {power}" if found[1] not in ("", "+", "-") else f"{found[1]}{power}"


def quantity(amount: str, unit: str) -> str:
    made = units(unit)
    return number(amount) + ("" if made.startswith(("{}^", r"\%")) else r"\,") + made


def physical_unit(text: str) -> str:
    r"""The argument of mhchem's pu: "5 m/s^2"."""
    amount, _, unit = text.strip().partition(" ")
    return quantity(amount, unit) if amount[:1].isdigit() or amount[:1] in "+-." else units(text)
