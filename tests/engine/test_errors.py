"""The error a user sees, whatever it is made of."""

from __future__ import annotations

from engine.clean_text import MOST_SENTENCE
from engine.errors import GreenroomError
from engine.words import Said, joined, say, translated


def test_a_file_name_cannot_write_a_second_line_or_steer_the_terminal() -> None:
    error = GreenroomError(
        say("{name} cannot be read", name="a\nb\x1b[31m\u202e.gguf"), "it is\r\nempty\x9b.", "Choose\u2028another.\n"
    )
    assert str(error) == "a b�[31m.gguf cannot be read: it is empty�. Choose another."
    assert isinstance(error.what, Said)
    assert error.what.values == {"name": "a b\ufffd[31m.gguf"}


def test_an_endless_value_leaves_a_sentence_that_reads() -> None:
    error = GreenroomError(
        say("{name} cannot be read", name="x" * 10_000_000),
        say("it has {count} layers", count=10**1_000_000),
        "y" * 10_000_000 + " z.",
    )
    assert error.what.endswith("xx cannot be read")
    assert error.why.startswith("it has 0x")
    assert error.why.endswith(" layers")
    assert error.remedy.endswith("y z.")
    assert len(str(error)) < 3 * MOST_SENTENCE


def test_many_values_make_no_endless_sentence() -> None:
    row = joined(", ", ["x" * 400] * 1000)
    assert len(row) == MOST_SENTENCE
    nested = say("{a}{b}", a=row, b=row)
    for _ in range(40):
        nested = say("{a}{b}", a=nested, b=nested)
    assert len(nested) == MOST_SENTENCE


def test_translations_get_the_clean_values() -> None:
    error = GreenroomError(say("{name} cannot be read", name="a\x1b\n" + "b" * 10_000), "why", "remedy")
    told = translated(error.what, lambda template, n, values: "{name} 읽을 수 없음".format_map(values))
    assert told.startswith("a\ufffd b")
    assert told.endswith("b 읽을 수 없음")
    assert len(told) < 600


def test_a_name_with_the_sign_of_a_count_is_a_name() -> None:
    assert say("%n layers of {name}", n=3, name="100%n") == "3 layers of 100%n"
