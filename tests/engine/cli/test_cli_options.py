from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.cli import options
from engine.cli.options import count, number, read_text, window
from engine.errors import GreenroomError


@pytest.mark.parametrize(("kind", "least"), [(number, 0), (count, 1), (window, 2)])
def test_whole_numbers_say_where_they_begin(kind: Callable[[str], int], least: int) -> None:
    assert kind(str(least)) == least
    for text in (str(least - 1), "1.5", "", "nan", "-7"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"from {least} on"):
            kind(text)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"abc\xff", r"not UTF-8 text \(byte 3\)"),
        (b"x" * 11, "longer than"),
        (None, "No such file"),
        ("dir", "directory"),
    ],
)
def test_a_text_that_cannot_be_read_is_refused(
    content: Any, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "MOST_TEXT_BYTES", 10)
    path = tmp_path / "text"
    if content == "dir":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(GreenroomError, match=why):
        read_text(path)


def test_a_text_comes_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("naïve\r\nsecond\r".encode()), "ascii"))
    assert read_text(None) == "naïve\nsecond\n", "in UTF-8, whatever the terminal's encoding is"
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(GreenroomError, match="standard input cannot be read: it is closed"):
        read_text(None)
