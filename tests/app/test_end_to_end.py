"""The whole path as a user walks it: the real program on a real X server, typed into, read off the screen."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

TOOLS = ("Xvfb", "xdotool", "import", "tesseract")
MISSING = [name for name in TOOLS if not shutil.which(name)]

pytestmark = [
    pytest.mark.display,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs an X server"),
    pytest.mark.skipif(
        bool(MISSING) and "CI" not in os.environ,
        reason=f"{', '.join(MISSING)} missing; bootstrap.py names the packages",
    ),
]


class Screen:
    """A virtual screen with eyes and hands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        read_end, write_end = os.pipe()
        command = ["Xvfb", "-displayfd", str(write_end), "-screen", "0", "2000x1300x24", "-nolisten", "tcp"]
        self.server = subprocess.Popen(command, pass_fds=[write_end], stderr=subprocess.DEVNULL)
        os.close(write_end)
        with os.fdopen(read_end) as pipe:
            self.display = ":" + pipe.readline().strip()
        # Larger than life, because OCR reads small type badly.
        window = {"QT_QPA_PLATFORM": "xcb", "QT_SCALE_FACTOR": "1.6"}
        self.environment = {**os.environ, "DISPLAY": self.display, **window}

    def xdotool(self, *arguments: str) -> str:
        command = ["xdotool", *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60).stdout.strip()

    def read(self) -> str:
        """Every word on the screen."""
        picture = self.folder / "screen.png"
        command = ["import", "-window", "root", "-colorspace", "Gray", "-resize", "150%", str(picture)]
        subprocess.run(command, env=self.environment, check=True, timeout=60)
        reader = ["tesseract", str(picture), "-", "--psm", "3"]
        # With a thread for each core it takes three times as much of the processor, and twice as long.
        alone = {**os.environ, "OMP_THREAD_LIMIT": "1"}
        return subprocess.run(reader, capture_output=True, text=True, check=True, timeout=60, env=alone).stdout

    def wait_for(self, pattern: str, seconds: float) -> re.Match[str]:
        deadline = time.monotonic() + seconds
        seen = ""
        while time.monotonic() < deadline:
            seen = self.read()
            found = re.search(pattern, seen)
            if found:
                return found
        pytest.fail(f"{pattern!r} did not appear; the screen said:\n{seen}")

    def close(self) -> None:
        self.server.terminate()
        self.server.wait(10)


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    made = Screen(tmp_path)
    yield made
    made.close()


@pytest.fixture
def data(demo_model: Path, tmp_path: Path) -> Path:
    """A fresh data folder that already holds the demo model."""
    folder = tmp_path / "data"
    (folder / "models").mkdir(parents=True)
    (folder / "models" / demo_model.parent.name).symlink_to(demo_model.parent)
    return folder


@pytest.fixture
def program(screen: Screen, data: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with running({**screen.environment, "GREENROOM_DATA": str(data)}, tmp_path) as process:
        yield process


@pytest.fixture
def slow_program(screen: Screen, data: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program with its slowest kernels: time enough to meet an answer that is being written."""
    environment = {**screen.environment, "GREENROOM_DATA": str(data), "GREENROOM_ISA": "portable"}
    with running(environment, tmp_path) as process:
        yield process


@contextmanager
def running(environment: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", "app"], env=environment, cwd=folder)
    yield process
    if process.poll() is None:
        process.terminate()
        process.wait(20)


def focus(screen: Screen, name: str) -> None:
    """A window, once it shows. xdotool finds nothing when another one goes while it looks."""
    deadline = time.monotonic() + 60
    while not (found := screen.xdotool("search", "--sync", "--onlyvisible", "--name", name).splitlines()):
        assert time.monotonic() < deadline, f"no window {name}"
    screen.xdotool("windowfocus", "--sync", found[0])


def close_wizard(screen: Screen) -> None:
    """As a user does who wants to chat at once."""
    screen.wait_for(r"Welcome to Greenroom", seconds=60)
    focus(screen, "setup")
    screen.xdotool("key", "Escape")
    focus(screen, "Greenroom")


def test_a_typed_question_is_answered_with_its_speed_and_the_keyboard_ends_the_program(
    screen: Screen, program: subprocess.Popen[bytes], data: Path
) -> None:
    close_wizard(screen)
    screen.wait_for(r"\d threads?", seconds=120)  # the status bar names the kernel once the model is loaded
    screen.xdotool("type", "--delay", "20", "What is the capital of France?")
    screen.xdotool("key", "Return")
    speed = screen.wait_for(r"(\d+(?:\.\d+)?) tok/s (?:\(.*?\) )?. (\d+) tokens . first token", seconds=90)
    assert float(speed.group(1)) > 0
    assert int(speed.group(2)) > 0
    screen.wait_for(r"What is the capital of France\?", seconds=10)
    with closing(sqlite3.connect(data / "chats.sqlite")) as chats:
        roles = dict(chats.execute("SELECT role, text FROM messages"))
    assert roles["user"] == "What is the capital of France?"
    assert roles["assistant"].strip()
    assert program.poll() is None
    screen.xdotool("key", "ctrl+q")
    assert program.wait(90) == 0


def answer_so_far(data: Path) -> str:
    with closing(sqlite3.connect(data / "chats.sqlite")) as chats:
        row = chats.execute("SELECT text FROM messages WHERE role = 'assistant' ORDER BY id DESC").fetchone()
    return "" if row is None else str(row[0])


def test_after_kill_9_the_answer_is_offered_to_be_continued(
    screen: Screen, slow_program: subprocess.Popen[bytes], data: Path, tmp_path: Path
) -> None:
    program = slow_program
    close_wizard(screen)
    screen.wait_for(r"\d threads?", seconds=120)
    screen.xdotool("type", "--delay", "20", "Write a long story about a lighthouse.")
    screen.xdotool("key", "Return")
    deadline = time.monotonic() + 60
    while not answer_so_far(data) and time.monotonic() < deadline:
        time.sleep(0.02)  # the program needs the processor
    program.kill()
    program.wait(20)
    before = answer_so_far(data)
    assert before
    again = subprocess.Popen(
        [sys.executable, "-m", "app"], env={**screen.environment, "GREENROOM_DATA": str(data)}, cwd=tmp_path
    )
    try:
        focus(screen, "Greenroom")
        screen.wait_for("Greenroom closed while answering in", seconds=60)
        screen.wait_for(r"\d threads?", seconds=120)
    finally:
        again.terminate()
        again.wait(20)
    assert answer_so_far(data) == before
