"""Korean particles follow the sound they stand behind: 파일을, but 모델은 and 메모리를.

Translations write both forms where a name or a figure stands before one, as "{name}을(를)"; which one is right shows
only when it is filled in. Where the sound cannot be told from the letters, as in many foreign words, both forms stay.
"""

from __future__ import annotations

import re

#: Behind a final consonant, and behind a vowel.
_PAIRS = {
    "을(를)": ("을", "를"),
    "이(가)": ("이", "가"),
    "은(는)": ("은", "는"),
    "과(와)": ("과", "와"),
    "(으)로": ("으로", "로"),
}
_BEHIND = re.compile(r"([\w%])([\"'”’»\])]*)(을\(를\)|이\(가\)|은\(는\)|과\(와\)|\(으\)로)")
_FIRST, _FINALS = 0xAC00, 28
_RIEUL = 8
#: Digits and capital letters as they are read, by their final consonant: 0 none, _RIEUL ㄹ, 1 another.
_READ = {
    **dict.fromkeys("036", 1),
    **dict.fromkeys("178", _RIEUL),
    **dict.fromkeys("2459", 0),
    **dict.fromkeys("LR", _RIEUL),
    **dict.fromkeys("MN", 1),
    **dict.fromkeys("ABCDEFGHIJKOPQSTUVWXYZ", 0),
    **dict.fromkeys("aiouyw", 0),
    **dict.fromkeys("mn", 1),
    "l": _RIEUL,
    "%": 0,
}


def settle(text: str) -> str:
    """The text with each pair of particles made one where the sound before it is known."""
    return _BEHIND.sub(_chosen, text) if "(" in text else text


def _chosen(match: re.Match[str]) -> str:
    before, closing, pair = match.groups()
    if "가" <= before <= "힣":
        final = (ord(before) - _FIRST) % _FINALS
    elif before in _READ:
        final = _READ[before]
    else:
        return match.group()
    consonant, vowel = _PAIRS[pair]
    # 로 stands behind ㄹ as well.
    soft = not final or (final == _RIEUL and pair == "(으)로")
    return before + closing + (vowel if soft else consonant)
