"""Where raw detail goes: one rotating log file per program, never the screen. Users send it when they ask for help."""

from __future__ import annotations

import functools
import logging
import re
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from engine.clean_text import clean_text, cut
from engine.folders import log_folder, make_private, open_private

#: Our own packages log from INFO on, everybody else's from WARNING.
_OURS = ("app", "engine")
_NAME = "greenroom log file"
_FORMAT = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"
#: Lines of a record, and characters of a line; a traceback with everything that led to it takes less.
_MOST_LINES, _MOST_LINE = 400, 4000


#: What must not be in a log that is sent to somebody: the name and password in an address, and access tokens.
_SECRETS = (
    (re.compile(r"://(?:[^\s/?#:@]{0,200}:\S{0,300}|[^\s/?#@]{0,200})@"), "://…@"),
    (re.compile(r"\bhf_\w{8,}|(?<=Bearer )\S+", re.ASCII), "…"),
)


class _Formatter(logging.Formatter):
    """Only the first line of a record begins at the margin: no text from outside can forge another record.

    Secrets are left out, and so is the user's name in paths.
    """

    def format(self, record: logging.LogRecord) -> str:
        lines = super().format(record).splitlines()
        if len(lines) > _MOST_LINES:
            lines[_MOST_LINES // 2 : -_MOST_LINES // 2] = ["…"]
        return "\n    ".join(clean_text(_without_secrets(cut(line, 2 * _MOST_LINE)), _MOST_LINE) for line in lines)


def _without_secrets(line: str) -> str:
    for secret, instead in _SECRETS:
        line = secret.sub(instead, line)
    return _home().sub("~", line)


@functools.cache
def _home() -> re.Pattern[str]:
    try:
        home = str(Path.home())
    except RuntimeError:
        home = ""
    # "/", or none at all, says nothing of its owner.
    return re.compile(re.escape(home) + r"(?![\w.-])" if len(home) > 1 else r"(?!)")


class _LogFile(RotatingFileHandler):
    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=open_private)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """A full disk, or a rotation while another window holds the file, must not reach the screen."""


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
        path = make_private(log_folder()) / "greenroom.log"
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
