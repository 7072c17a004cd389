"""Sentences keep what a translation needs, through everything a sentence goes through."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import asdict, dataclass

from engine.errors import GreenroomError
from engine.words import Said, filled, joined, say, translated

KOREAN = {"{model} does not fit: {why}": "{model} 모델이 들어가지 않습니다: {why}", "{n} GB is free": "{n} GB 남음"}


def tr(template: str, **values: object) -> str:
    return KOREAN.get(template, template).format_map(values)


@dataclass(frozen=True)
class Line:
    text: str


def sentence() -> Said:
    return say("{model} does not fit: {why}", model="Q{3}", why=say("{n} GB is free", n=4))


def test_a_sentence_is_its_english_text():
    assert sentence() == "Q{3} does not fit: 4 GB is free"
    assert json.dumps(sentence()) == '"Q{3} does not fit: 4 GB is free"'
    assert say("100 % {sure}") == "100 % {sure}"  # nothing to fill, nothing read


def test_sentences_within_sentences_are_translated():
    assert translated(sentence(), tr) == "Q{3} 모델이 들어가지 않습니다: 4 GB 남음"
    assert translated("plain", tr) == "plain"


def test_copies_remember_too():
    for twin in (
        copy.deepcopy(sentence()),
        pickle.loads(pickle.dumps(sentence())),
        asdict(Line(sentence()))["text"],
    ):
        assert isinstance(twin, Said)
        assert translated(twin, tr) == translated(sentence(), tr)


def test_what_is_joined_is_plain_english():
    assert not isinstance(sentence() + ".", Said)


def test_a_row_is_translated_part_by_part():
    row = joined(" + ", (say("{n} GB is free", n=4), "7 GB", say("{n} GB is free", n=2)))
    assert row == "4 GB is free + 7 GB + 2 GB is free"
    assert translated(row, tr) == "4 GB 남음 + 7 GB + 2 GB 남음"
    alone = say("{n} GB is free", n=4)
    assert joined(" + ", [alone]) is alone


def test_what_fills_a_sentence_can_be_had_by_itself():
    assert translated(filled(sentence(), "why"), tr) == "4 GB 남음"
    assert filled(sentence(), "model") == "Q{3}"
    assert filled(say("{n} GB is free", n=4), "n") == "4"
    assert filled(sentence(), "other") == filled("plain", "why") == ""


def test_errors_keep_their_sentences():
    error = GreenroomError(sentence(), say("{n} GB is free", n=4), "Close other programs. ")
    assert translated(error.what, tr) == translated(sentence(), tr)
    assert translated(error.why, tr) == "4 GB 남음"
    assert (error.remedy, str(error)) == (
        "Close other programs.",
        "Q{3} does not fit: 4 GB is free: 4 GB is free. Close other programs.",
    )
