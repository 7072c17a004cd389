"""How well a few letters fit a text."""

from __future__ import annotations

from dataclasses import dataclass

#: Initial consonants of Korean syllables, in the order of Unicode's composition: a syllable's is its number // 588.
_INITIALS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
_FIRST_SYLLABLE, _LAST_SYLLABLE, _PER_INITIAL = 0xAC00, 0xD7A3, 588

#: Points for a whole word found in one piece, at a word's start, and for each letter that stands alone.
_PIECE, _START, _LETTER, _GAP = 100, 40, 8, 3
#: Single letters lie within so many of the text for each of the word.
_NEAR = 8


@dataclass(frozen=True)
class Match:
    """score: the higher the better; places: the letters of the text that were found."""

    score: float
    places: tuple[int, ...]


def match(query: str, text: str) -> Match | None:
    """Every word of the query in the text: in one piece, or its letters in their order. None when one is missing.

    Of Korean, initial consonants are enough.
    """
    folded = text.lower()
    if len(folded) != len(text):  # a few letters grow when they are folded; places would be wrong
        folded = text
    score, places = 0.0, set()
    for word in query.lower().split():
        found = _word(word, folded)
        if found is None and all(letter in _INITIALS for letter in word):
            found = _word(word, initials(folded))
        if found is None:
            return None
        score += found.score
        places.update(found.places)
    # Of two that fit, the one with less besides.
    return Match(score - len(text) / 8, tuple(sorted(places)))


def _word(word: str, text: str) -> Match | None:
    best, at = None, text.find(word)
    while at >= 0:
        score = _PIECE + (_START if _starts(text, at) else 0) - min(at, 20)
        if best is None or score > best.score:
            best = Match(score, tuple(range(at, at + len(word))))
        at = text.find(word, at + 1)
    return best or _letters(word, text)


def _letters(word: str, text: str) -> Match | None:
    places, at, score = [], -1, 0
    for letter in word:
        found = text.find(letter, at + 1)
        if found < 0:
            return None
        if _starts(text, found):
            score += _LETTER
        elif places and found > at + 1:
            # Better a word's start further on than a letter in the middle.
            later = _start_with(letter, text, found)
            if later >= 0:
                found, score = later, score + _LETTER
        score += _LETTER - min(_GAP * (found - at - 1), _LETTER) if places else _LETTER
        places.append(found)
        at = found
    # Letters strewn over a long text are no finding.
    near = places[-1] - places[0] <= _NEAR * len(word)
    return Match(score, tuple(places)) if near and score >= 2 * len(word) else None


def _start_with(letter: str, text: str, after: int) -> int:
    at = text.find(letter, after)
    while at >= 0 and not _starts(text, at):
        at = text.find(letter, at + 1)
    return at


def _starts(text: str, at: int) -> bool:
    return at == 0 or not text[at - 1].isalnum()


def initials(text: str) -> str:
    """Korean syllables by their initial consonants, all else as it is."""
    return "".join(
        _INITIALS[(ord(letter) - _FIRST_SYLLABLE) // _PER_INITIAL]
        if _FIRST_SYLLABLE <= ord(letter) <= _LAST_SYLLABLE
        else letter
        for letter in text
    )
