"""Running the command line, within the test or as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def answer(model: Path | str, *more: str) -> list[str]:
    return ["generate", str(model), "--prompt", "Hello", "--temperature", "0", "--max-tokens", "8", *more]


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """stdout, which must be one JSON object and nothing else."""
    return json.loads(capsys.readouterr().out)


def process(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """The command line as its own process."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    # A test run started in the background by a shell has SIGINT ignored, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen([sys.executable, "-m", "engine", *arguments], **pipes)
    finally:
        signal.signal(signal.SIGINT, before)
