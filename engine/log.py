"""Where raw detail goes: one rotating log file per program, never the screen."""

from __future__ import annotations

import logging
import os
from logging.handlers import RotatingFileHandler
from pathlib import Path

import platformdirs

from engine.clean_text import clean_text

#: Our own packages log from INFO on, everybody else's from WARNING.
_OURS = ("app", "engine")
_NAME = "greenroom log file"
_FORMAT = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"
#: Lines of a record, and characters of a line; a traceback with everything that led to it takes less.
_MOST_LINES, _MOST_LINE = 400, 4000


class _Formatter(logging.Formatter):
    """Only the first line of a record begins at the margin: no text from outside can forge another record."""

    def format(self, record: logging.LogRecord) -> str:
        lines = super().format(record).splitlines()
        if len(lines) > _MOST_LINES:
            lines[_MOST_LINES // 2 : -_MOST_LINES // 2] = ["…"]
        return "\n    ".join(clean_text(line, _MOST_LINE) for line in lines)


class _LogFile(RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """A full disk, or a rotation while another window holds the file, must not reach the screen."""


def log_folder() -> Path:
    """The system's folder for logs; with GREENROOM_DATA set, "logs" in there."""
    data = os.environ.get("GREENROOM_DATA")
    return Path(data) / "logs" if data else Path(platformdirs.user_log_dir("greenroom", appauthor=False))


def start_logging(level: int = logging.INFO) -> Path | None:
    """Send every log record to `log_folder()/greenroom.log` (1 MB, three old ones kept), and nothing to the screen.

    Returns the file, or None when the folder cannot be written: a program that runs without a log is better
    than one that does not run. Calling it again moves the log to where the folder is now.
    """
    root = logging.getLogger()
    for old in [h for h in root.handlers if h.name == _NAME]:
        root.removeHandler(old)
        old.close()
    handler: logging.Handler
    try:
        folder = log_folder()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "greenroom.log"
        handler = _LogFile(path, maxBytes=1_000_000, backupCount=3, encoding="utf-8", errors="replace")
    except OSError:
        path = None
        # With no handler at all, logging prints warnings on stderr.
        handler = logging.NullHandler()
    handler.setFormatter(_Formatter(_FORMAT))
    handler.name = _NAME
    root.addHandler(handler)
    for name in _OURS:
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(True)
    return path
