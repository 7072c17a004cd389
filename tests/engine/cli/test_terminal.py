from __future__ import annotations

import errno
import io
import json
import sys

import pytest

from engine.cli.terminal import OutputClosedError, Terminal
from engine.errors import GreenroomError
from engine.progress import Progress


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


class Failing(io.StringIO):
    """A stream whose other end went away."""

    def __init__(self, error: int) -> None:
        super().__init__()
        self._error = error

    def write(self, text: str) -> int:
        raise OSError(self._error, "gone")


def streams(monkeypatch: pytest.MonkeyPatch) -> tuple[io.StringIO, io.StringIO]:
    """stdout and stderr from now on. (pytest puts its own back between a fixture and the test.)"""
    out, err = io.StringIO(), Tty()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    return out, err


def test_json_keeps_words_off_stdout_and_is_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = streams(monkeypatch)
    terminal = Terminal(json=True)
    terminal.say("words")
    terminal.stream("more")
    terminal.document({"text": "naïve 👩‍🚀 \ud800"})
    assert out.getvalue().isascii()
    assert json.loads(out.getvalue()) == {"text": "naïve 👩‍🚀 \ud800"}


def test_lists_of_numbers_take_one_line_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = streams(monkeypatch)
    told = {"ids": [1, -20, 3.5e-7], "none": [], "words": ["1", 2], "nested": [[1], [2, 3]], "text": "[\n 1,\n 2\n]"}
    Terminal(json=True).document(told)
    assert json.loads(out.getvalue()) == told
    assert '"ids": [1, -20, 3.5e-07],' in out.getvalue()
    assert "[2, 3]" in out.getvalue()


def test_what_goes_on_beside_the_answer_is_dim_and_never_in_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = streams(monkeypatch)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    Terminal().aside("hm")
    Terminal().aside("")
    Terminal(json=True).aside("hm")
    assert (out.getvalue(), err.getvalue()) == ("", "\x1b[2mhm\x1b[22m")
    monkeypatch.setattr(sys, "stderr", plain := io.StringIO())
    Terminal().aside("hm")
    assert plain.getvalue() == "hm", "a file gets no codes"


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_that_wants_no_styles_gets_none(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, err = streams(monkeypatch)
    monkeypatch.setenv(variable, value)
    Terminal().aside("hm")
    assert err.getvalue() == "hm"


def test_nothing_that_is_said_steers_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of files and what models say are anybody's text."""
    out, err = streams(monkeypatch)
    Terminal().say("a\x1b[31m.gguf\x9b\x07")
    Terminal().note("b\x1b]0;title\x07")
    Terminal().progress(Progress(0, 0, "c\x1b[2J"))
    Terminal().stream("kept\x1b[1m\n\tin a file")
    assert out.getvalue() == "a\ufffd[31m.gguf\ufffd\ufffd\nkept\x1b[1m\n\tin a file"
    assert "\x1b" not in err.getvalue()
    monkeypatch.setattr(sys, "stdout", screen := Tty())
    Terminal().stream("\x1b[1mseen\n\tthere")
    assert screen.getvalue() == "\ufffd[1mseen\n\tthere"


def test_words_keep_documents_off_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = streams(monkeypatch)
    terminal = Terminal()
    terminal.document({"text": "x"})
    terminal.say("words")
    assert out.getvalue() == "words\n"


def test_figures_that_json_cannot_carry_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = streams(monkeypatch)
    with pytest.raises(ValueError, match="JSON compliant"):
        Terminal(json=True).document({"speed": float("nan")})
    assert out.getvalue() == ""


def test_a_shorter_progress_line_covers_the_longer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _, err = streams(monkeypatch)
    terminal = Terminal()
    terminal.progress(Progress(5, 5, "Reading experts of layer 31"))
    terminal.progress(Progress(5, 5, "Ready"))
    first, second = err.getvalue().split("\r")[1:]
    assert first == "Reading experts of layer 31 100%"
    assert second == "Ready 100%".ljust(len(first))
    terminal.note("Done.")
    *_, blank, last = err.getvalue().split("\r")
    assert blank.strip() == ""
    assert last == "Done.\n"


def test_an_unknown_total_shows_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    _, err = streams(monkeypatch)
    Terminal().progress(Progress(0, 0, "Looking around"))
    assert err.getvalue() == "\rLooking around"


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EINVAL])
def test_a_reader_that_left_is_told_apart_from_a_full_disk(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(sys, "stdout", Failing(number))
    with pytest.raises(OutputClosedError):
        Terminal().say("words")
    monkeypatch.setattr(sys, "stdout", Failing(errno.ENOSPC))
    with pytest.raises(GreenroomError, match="disk is full"):
        Terminal().say("words")
    Terminal().close()


def test_a_broken_stderr_loses_notes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", Failing(errno.EPIPE))
    terminal = Terminal()
    terminal.note("lost")
    terminal.say("words")
    assert out.getvalue() == "words\n"


def test_a_line_is_one_line_of_bounded_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's name must not write a second model, nor turn what stands behind it."""
    out, err = streams(monkeypatch)
    Terminal().say("a\nsecond model\r\u202e\u2028x  two  spaces" + "y" * 1_000_000)
    Terminal().note("b\ngreenroom: all is well")
    Terminal().refuse(GreenroomError("a\n\x1b[2J", "b" * 1_000_000, "c\u202e."))
    assert out.getvalue().startswith("a second model  x  two  spacesyyy")
    assert out.getvalue().count("\n") == 1
    assert len(out.getvalue()) < 30_000
    *lines, end = err.getvalue().split("\n")
    assert (lines[0], end) == ("b greenroom: all is well", "")
    assert lines[1].startswith("greenroom: a \ufffd[2J: bbb")
    assert lines[1].endswith("bbb. c.")
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)


def test_an_answer_cannot_turn_the_direction_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    _, err = streams(monkeypatch)
    monkeypatch.setattr(sys, "stdout", screen := Tty())
    Terminal().stream("if x:\u202e\u2066 # \x1b[8m\x9b8m\n\tاردو\u200cکتاب 👩\u200d🚀")
    Terminal().aside("hm\u202e\x1b]52;c;eA==\x07")
    assert screen.getvalue() == "if x:\ufffd\ufffd # \ufffd[8m\ufffd8m\n\tاردو\u200cکتاب 👩\u200d🚀"
    assert "\u202e" not in err.getvalue()
    assert "\x1b]" not in err.getvalue()
