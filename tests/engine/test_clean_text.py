"""Text from outside on its way to the screen, the terminal and the log."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzzing import Fuzzer
from hostile_text import hostile_text, is_one_clean_line

from engine.clean_text import MOST_VALUE, clean_text, clean_value, cut, steerless


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("model-Q4_K_M.gguf", "model-Q4_K_M.gguf"),
        ("모델 (한국어).gguf", "모델 (한국어).gguf"),
        ("\x1b]0;title\x07\x1b[2Jmodel", "\ufffd]0;title\ufffd\ufffd[2Jmodel"),
        ("a\x9b31mb\x7f", "a\ufffd31mb\ufffd"),
        ("first\r\n\t  second\u2028third\x85fourth", "first second third fourth"),
        ("a\tb", "a b"),
        ("photo\u202egpj.exe", "photogpj.exe"),
        ("\u2066\u2067a\u2069\u200f", "a"),
        ("pay\u200bpal\ufeff\xad\u2060\u3164", "paypal"),
        ("\U000e0041\U000e0042tags", "tags"),
        ("half \ud800 a sign", "half \ufffd a sign"),
        ("", ""),
    ],
)
def test_what_steers_or_hides_is_gone_and_the_rest_stays(raw: str, clean: str) -> None:
    assert clean_text(raw) == clean


@pytest.mark.parametrize(
    "name",
    [
        "\U0001f469\u200d\U0001f680 rocket \u2764\ufe0f",  # a sequence of emoji
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian
        "\u0d28\u0d4d\u200d",  # a Malayalam chillu as it was written before Unicode 5.1
    ],
)
def test_joiners_stay_where_they_join(name: str) -> None:
    assert clean_text(name) == name


@pytest.mark.parametrize(
    "name", ["pay\u200dpal", "\u200cabc", "\u00e9\u200d\u200d\u200d", "\u00e9 \u200d", "\u202e\u200d"]
)
def test_joiners_that_join_nothing_go(name: str) -> None:
    assert len(clean_text(name).split("\u200d")) <= 2
    assert "\u200d" not in clean_text(name).rstrip("\u200d")
    assert "\u200c" not in clean_text(name)


def test_an_endless_value_is_cut_in_the_middle() -> None:
    shown = clean_text("begin" + "x" * 10_000_000 + "end")
    assert len(shown) == MOST_VALUE
    assert shown.startswith("beginxx")
    assert "…" in shown
    assert shown.endswith("xxend")
    assert clean_text(shown) == shown
    assert cut("abc", 3) == "abc"
    assert cut("abcdefg", 6) == "abc…fg"


def test_an_endless_number_is_shown_though_python_refuses_to_write_it() -> None:
    number = 10**1_000_000
    with pytest.raises(ValueError, match="digits"):
        str(number)
    shown = clean_text(number)
    assert shown.startswith("0x")
    assert len(shown) == MOST_VALUE
    assert clean_value(number) == shown
    assert clean_value(-12) == -12
    assert clean_value([number]) == "list"
    assert f"{clean_value(1.25):.1f}" == "1.2"
    assert clean_value(None) is None
    assert clean_value(Path("a\nb")) == "a b"
    assert len(clean_value(b"\x1b" * 10_000)) == MOST_VALUE


def test_what_cannot_say_what_it_is_is_named_after_its_kind() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert clean_text(Mute()) == "Mute"


def test_text_of_several_lines_keeps_them() -> None:
    assert steerless("a\n\tb\u200d") == "a\n\tb\u200d"
    assert steerless("a\x1b[1m\r\x9b\u202e\u2066\ud800") == "a\ufffd[1m\ufffd\ufffd\ufffd\ufffd\ufffd"


def test_no_text_is_anything_but_one_bounded_clean_line(fuzzer: Fuzzer) -> None:
    for rng in fuzzer.rounds():
        raw = hostile_text(rng)
        shown = clean_text(raw)
        assert is_one_clean_line(shown), ascii(raw)
        assert len(shown) <= MOST_VALUE
        assert clean_text(shown) == shown, ascii(raw)
        assert not set(steerless(raw)) & set("\x1b\x9b\r\x07\u202e\ud800")
