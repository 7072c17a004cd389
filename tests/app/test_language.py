"""Texts in the user's language, and plural forms."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzzing import Fuzzer
from hostile_text import hostile_text, is_one_clean_line
from PySide6.QtCore import QCoreApplication
from PySide6.QtWidgets import QApplication

from app import language
from app.language import mark, plural_count, plural_rule, read_catalogue, set_language, system_language, told, tr
from engine.clean_text import MOST_SENTENCE
from engine.errors import GreenroomError
from engine.words import say

#: A hole's name, and what it asks for.
HOLE = re.compile(r"\{(\w+)(?::([^}!]*))?(?:![ra])?\}")

KOREAN = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="ko" sourcelanguage="en">
<context>
    <name>greenroom</name>
    <message><source>Delete {name}?</source><translation>{name}을(를) 삭제할까요?</translation></message>
    <message numerus="yes"><source>%n chats in {place}</source>
        <translation><numerusform>{place}에 대화 %n개</numerusform></translation></message>
    <message><source>Not done</source><translation type="unfinished">아직</translation></message>
    <message><source>Empty</source><translation></translation></message>
    <message><source>Wrong {hole}</source><translation>{other} 없음</translation></message>
</context>
</TS>
"""
ENGLISH = """<TS version="2.1" language="en">
<context>
    <message numerus="yes"><source>%n chats in {place}</source>
        <translation><numerusform>%n chat in {place}</numerusform><numerusform>%n chats in {place}</numerusform>
        </translation></message>
</context>
</TS>
"""


@pytest.fixture
def translations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qapp: QApplication) -> Iterator[Path]:
    (tmp_path / "greenroom_ko.ts").write_text(KOREAN, encoding="utf-8")
    (tmp_path / "greenroom_en.ts").write_text(ENGLISH, encoding="utf-8")
    monkeypatch.setattr(language, "_folder", lambda: tmp_path)
    monkeypatch.setattr(language, "_current", language.Catalogue("en"))
    yield tmp_path
    set_language("en")


def test_a_text_is_shown_in_the_language_that_was_chosen_last(translations: Path) -> None:
    assert tr("Delete {name}?", name="<b>") == "Delete <b>?"
    assert set_language("ko")
    assert tr("Delete {name}?", name="<b>") == "<b>을(를) 삭제할까요?"
    assert not set_language("ko")
    assert set_language("en")
    assert tr("Delete {name}?", name="x") == "Delete x?"


def test_a_count_chooses_the_form(translations: Path) -> None:
    set_language("en")
    assert tr("%n chats in {place}", n=1, place="Work") == "1 chat in Work"
    assert tr("%n chats in {place}", n=12345, place="Work") == "12\u202f345 chats in Work"
    assert tr("%n chats in {place}", n=12345, written="~12k", place="Work") == "~12k chats in Work"
    assert tr("%n chats in {place}", n=1, written="~1", place="Work") == "~1 chat in Work"
    set_language("ko")
    assert tr("%n chats in {place}", n=1, place="Work") == "Work에 대화 1개"
    assert tr("%n chats in {place}", n=12345, written="~12k", place="Work") == "Work에 대화 ~12k개"


@pytest.mark.parametrize("text", ["Not done", "Empty", "Nobody's text", "{literal} braces"])
def test_what_has_no_translation_is_shown_in_english(text: str, translations: Path) -> None:
    set_language("ko")
    assert tr(mark(text)) == text


def test_what_the_engine_said_is_told_and_what_was_kept_of_it_too(translations: Path) -> None:
    said = say("Delete {name}?", name=say("Nobody's {text}", text="text"))
    assert told(said) == said == "Delete Nobody's text?"
    set_language("ko")
    assert told(said) == "Nobody's text을(를) 삭제할까요?"
    assert told(say("Wrong {hole}", hole=1)) == "Wrong 1"
    # As a chat keeps an error: a text without holes is known again, one that is filled stays English.
    assert told("Not done") == "Not done"
    assert told("Delete x?") == "Delete x?"


def test_a_translation_with_another_hole_is_not_used(translations: Path, caplog: pytest.LogCaptureFixture) -> None:
    set_language("ko")
    assert tr("Wrong {hole}", hole=1) == "Wrong 1"
    assert "does not fit" in caplog.text


def test_an_unknown_language_becomes_the_systems(translations: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "system_language", lambda: "ko")
    set_language("xx")
    assert language.language() == "ko"


def test_the_systems_language_is_the_first_one_that_there_is(
    translations: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class System:
        tags: list[str]

        def uiLanguages(self) -> list[str]:
            return self.tags

    system = System()
    monkeypatch.setattr(language.QLocale, "system", staticmethod(lambda: system))
    system.tags = ["nn-Latn-NO", "nn-NO", "nn", "ko-Kore-KR", "ko-KR", "ko", "en"]
    assert system_language() == "ko"
    system.tags = ["C"]
    assert system_language() == "en"


def test_each_language_is_named_in_itself(translations: Path) -> None:
    assert list(language.languages().items()) == [("en", "English"), ("ko", "한국어")]


def test_qts_own_buttons_follow(translations: Path) -> None:
    def cancel() -> str:
        return QCoreApplication.translate("QPlatformTheme", "Cancel")

    set_language("ko")
    assert cancel() == "취소"
    set_language("en")
    assert cancel() == "Cancel"


def test_a_file_that_cannot_be_read_leaves_english(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken = tmp_path / "greenroom_ko.ts"
    broken.write_text("<TS><context>", encoding="utf-8")
    assert read_catalogue(broken, "ko").forms == {}
    assert "cannot be read" in caplog.text


@pytest.mark.parametrize(
    ("code", "count", "forms"),
    [
        ("en", 2, {0: 1, 1: 0, 2: 1}),
        ("ko", 1, {0: 0, 1: 0, 7: 0}),
        ("fr", 2, {0: 0, 1: 0, 2: 1}),
        ("ru", 3, {1: 0, 21: 0, 11: 2, 3: 1, 13: 2, 5: 2}),
        ("pl", 3, {1: 0, 21: 2, 22: 1, 12: 2}),
        ("cs", 3, {1: 0, 4: 1, 5: 2, 22: 2}),
        ("pt_BR", 2, {0: 0, 2: 1}),
        ("pt", 2, {0: 1, 1: 0}),
    ],
)
def test_plural_rules(code: str, count: int, forms: dict[int, int]) -> None:
    assert plural_count(code) == count
    assert {n: plural_rule(code)(n) for n in forms} == forms


def test_a_name_with_the_sign_of_a_count_is_a_name(translations: Path) -> None:
    assert tr("%n chats in {place}", n=2, place="100%n") == "2 chats in 100%n"


def test_names_from_outside_are_one_clean_line(translations: Path) -> None:
    assert tr("Delete {name}?", name="a\n\x1b[1m\u202eb") == "Delete a \ufffd[1mb?"
    shown = tr("Delete {name}?", name="x" * 10_000_000)
    assert len(shown) < 600
    assert shown.endswith("x?")


def test_every_sentence_with_any_value_is_one_bounded_clean_line_in_every_language(
    fuzzer: Fuzzer, qapp: QApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every template that there is, filled with hostile values, as an error and as a text of the window."""
    korean = read_catalogue(Path(language._folder()) / "greenroom_ko.ts", "ko")
    templates = {text: HOLE.findall(text) for text in korean.forms if HOLE.search(text)}
    names = sorted(templates)
    for rng in fuzzer.rounds():
        template = rng.choice(names)
        values = {hole: hostile_value(rng, spec) for hole, spec in templates[template]}
        n = rng.choice((0, 1, 2, 10**5000)) if "%n" in template else None
        error = GreenroomError(say(template, n=n, **values), hostile_text(rng), hostile_text(rng))
        inner = say("{why}. {why}", why=error.what)
        for catalogue in (korean, language.Catalogue("en")):
            monkeypatch.setattr(language, "_current", catalogue)
            for text in (error.what, error.why, error.remedy, str(error), told(error.what), told(inner)):
                assert is_one_clean_line(text), (template, ascii(values))
                assert len(text) <= 3 * MOST_SENTENCE + 4
            if (n is None or n < 10) and "written" not in values:
                shown = tr(template, n=n, **values)
                assert is_one_clean_line(shown.replace("\n", "")), (template, ascii(values))
                assert len(shown) <= MOST_SENTENCE


def hostile_value(rng: random.Random, spec: str) -> object:
    """spec: what the hole asks for; one for digits gets a number."""
    number = rng.choice((0, -1, 1.5, float("nan"), float("inf"), 2**63, 10**300))
    if spec and spec[-1] in ",fg%d":
        return number
    return rng.choice(
        (hostile_text(rng), Path("a\nb"), b"\xff\x1b", None, 10**6000, number, ["\x1b"], say("{x}", x="\r"))
    )
