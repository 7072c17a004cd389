"""What the command line writes, and where: answers on stdout, all else on stderr."""

from __future__ import annotations

import contextlib
import errno
import io
import json as json_format
import os
import re
import shutil
import sys
import time
from typing import Any, TextIO

from engine.clean_text import MOST_LINE, clean_text, steerless
from engine.errors import GreenroomError
from engine.progress import Progress

#: A list of numbers as `json.dumps(indent=...)` writes it, one a line.
_NUMBERS = re.compile(r"\[\n\s+(-?\d[^\s,]*(?:,\n\s+-?\d[^\s,]*)*)\n\s*\]")
#: Seconds between two redraws of the progress line.
_REDRAW = 0.1


class OutputClosedError(Exception):
    """Whoever read our stdout has closed it (`greenroom models | head -1`)."""


class Terminal:
    """The process's stdout and stderr as they are now.

    json: only `document` writes to stdout
    Characters the terminal cannot show become "?", those that would steer it are replaced, except in an answer that
    goes into a file; a stderr that is closed loses its text, nothing else.
    """

    def __init__(self, json: bool = False) -> None:
        self._json = json
        self._out, self._err = sys.stdout, sys.stderr
        for stream in (self._out, self._err):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        self._drawn = 0
        self._redraw_at = 0.0

    def say(self, line: str) -> None:
        """One line of the answer, for people."""
        self.stream(clean_text(line, MOST_LINE) + "\n")

    def stream(self, text: str) -> None:
        """A piece of the answer, for people, shown at once."""
        if text and not self._json:
            self._clear_progress()
            self._write_out(steerless(text) if _is_tty(self._out) else text)

    def aside(self, text: str) -> None:
        """A piece of what goes on beside the answer, for people: dim, where the terminal can."""
        if text and not self._json:
            self._clear_progress()
            text = steerless(text)
            self._write_err(f"\x1b[2m{text}\x1b[22m" if _is_tty(self._err) and _has_styles() else text)

    def document(self, document: dict[str, Any]) -> None:
        """The answer, for programs. ASCII, so that every encoding carries it."""
        if self._json:
            self._clear_progress()
            self._write_out(_document(document) + "\n")

    def note(self, line: str) -> None:
        """One line beside the answer."""
        self._clear_progress()
        self._write_err(clean_text(line, MOST_LINE) + "\n")

    def refuse(self, error: GreenroomError) -> None:
        """The sentence; for programs also as {"error": {what, why, remedy}}."""
        self.note(f"greenroom: {error}")
        self.refuse_document(error)

    def refuse_document(self, error: GreenroomError) -> None:
        """Only what programs get of it."""
        with contextlib.suppress(OutputClosedError, GreenroomError):
            self.document({"error": {"what": error.what, "why": error.why, "remedy": error.remedy}})

    def progress(self, progress: Progress) -> None:
        """Redraw the progress line, if somebody is looking."""
        if not _is_tty(self._err) or (time.monotonic() < self._redraw_at and progress.fraction < 1.0):
            return
        self._redraw_at = time.monotonic() + _REDRAW
        share = f" {progress.fraction:4.0%}" if progress.total > 0 else ""
        left = "" if progress.seconds_left is None else f", about {max(1, round(progress.seconds_left))} s left"
        line = f"{clean_text(progress.message)}{share}{left}"[: shutil.get_terminal_size().columns - 1]
        self._write_err("\r" + line.ljust(self._drawn))
        self._drawn = len(line)

    def close(self) -> None:
        """Let the interpreter end quietly even when stdout's reader has gone."""
        self._clear_progress()
        with contextlib.suppress(OutputClosedError, GreenroomError):
            self._write_out("")

    def _clear_progress(self) -> None:
        if self._drawn:
            self._write_err("\r" + " " * self._drawn + "\r")
            self._drawn = 0

    def _write_out(self, text: str) -> None:
        try:
            _write(self._out, text)
        except (OSError, ValueError) as error:
            _silence(self._out)
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise GreenroomError("The output was cut short", "the disk is full", "Free some space.") from error
            raise OutputClosedError from error

    def _write_err(self, text: str) -> None:
        try:
            _write(self._err, text)
        except (OSError, ValueError):
            _silence(self._err)


def _document(document: dict[str, Any]) -> str:
    """Indented JSON with lists of numbers on one line each."""
    text = json_format.dumps(document, indent=2, allow_nan=False)
    # A line break inside a string would be escaped, so this finds lists only.
    return _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text)


def _has_styles() -> bool:
    """Whether the terminal shows dim text, and its owner wants that (no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _write(stream: TextIO | None, text: str) -> None:
    # A program started without one of its streams has None there.
    if stream is None:
        raise ValueError("closed")
    stream.write(text)
    stream.flush()


def _silence(stream: TextIO | None) -> None:
    """What is left in the stream's buffer goes nowhere, instead of failing again when Python exits."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # type: ignore[union-attr]
        os.close(nowhere)


def _is_tty(stream: TextIO | None) -> bool:
    with contextlib.suppress(ValueError):
        return stream is not None and stream.isatty()
    return False
