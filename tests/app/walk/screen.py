"""A virtual screen with the program on it: hands (xdotool), a camera (import) and what the witness says."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

#: Of the window manager, over the window.
BARS = 24
QUIT_S = 60
HERE = Path(__file__).resolve().parent


class NotSeen(Exception):
    """What should be on the screen is not."""


class Screen:
    """width, height: in pixels; scale: of Qt, 2 is 200 %; home: the user's; data: the program's data folder."""

    def __init__(self, home: Path, data: Path, pictures: Path, width: int, height: int, scale: float = 1.0) -> None:
        self.data, self.pictures, self.scale = data, pictures, scale
        pictures.mkdir(parents=True, exist_ok=True)
        self.log = pictures / "stderr.txt"
        read_end, write_end = os.pipe()
        command = [
            "Xvfb",
            "-displayfd",
            str(write_end),
            "-screen",
            "0",
            f"{width}x{height + BARS}x24",
            "-nolisten",
            "tcp",
        ]
        self._server = subprocess.Popen(command, pass_fds=[write_end], stderr=subprocess.DEVNULL)
        os.close(write_end)
        with os.fdopen(read_end) as pipe:
            self._display = ":" + pipe.readline().strip()
        self._environment = {
            **os.environ,
            "DISPLAY": self._display,
            "HOME": str(home),
            "GREENROOM_DATA": str(data),
            "QT_QPA_PLATFORM": "xcb",
            "QT_SCALE_FACTOR": str(scale),
            "LANG": "C.UTF-8",
        }
        self._manager = subprocess.Popen(
            ["openbox"], env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.program: subprocess.Popen[bytes] | None = None
        #: On the pictures so far.
        self.unreadable: list[str] = []
        self._socket = ""

    # The program

    def start(self) -> None:
        self._socket = tempfile.mktemp(prefix="walk-", suffix=".socket")
        with self.log.open("ab") as log:
            self.program = subprocess.Popen(
                [sys.executable, str(HERE / "watched.py"), self._socket],
                env=self._environment,
                cwd=HERE.parents[2],
                stderr=log,
            )
        self.until(lambda seen: "page" in seen, "the window", 60)

    def start_again(self) -> int:
        """The program a second time, with the same data; its exit code."""
        command = [sys.executable, "-m", "app"]
        with self.log.open("ab") as log:
            return subprocess.run(
                command, env=self._environment, cwd=HERE.parents[2], stderr=log, timeout=60
            ).returncode

    @contextmanager
    def other_program(self, *given: str) -> Iterator[None]:
        """Its clipboard, and its window at the left edge of the screen; see other_program.py."""
        command = [sys.executable, str(HERE / "other_program.py"), *given]
        # The screen's own scale: its window stands where it says.
        with self.log.open("ab") as log:
            other = subprocess.Popen(command, env={**self._environment, "QT_SCALE_FACTOR": "1"}, stderr=log)
        try:
            self.xdotool("search", "--sync", "--onlyvisible", "--name", "^Other program$")
            yield
        finally:
            other.terminate()
            other.wait(20)

    def take_clipboard(self, to: Path) -> None:
        """What is on the clipboard: a picture as `to`.png, a text as `to`.txt."""
        command = [sys.executable, str(HERE / "other_program.py"), "take", str(to)]
        with self.log.open("ab") as log:
            subprocess.run(command, env=self._environment, stderr=log, timeout=60, check=True)

    def kill(self) -> None:
        """As a power cut does."""
        assert self.program is not None
        self.program.kill()
        self.program.wait(20)

    def quit(self) -> int:
        assert self.program is not None
        self.program.send_signal(signal.SIGTERM)
        try:
            return self.program.wait(QUIT_S)
        except subprocess.TimeoutExpired:
            self.program.send_signal(signal.SIGUSR1)
            time.sleep(1)
            self.kill()
            raise NotSeen(f"the program's end within {QUIT_S} s") from None

    @property
    def rss(self) -> float:
        """MB"""
        assert self.program is not None
        return psutil.Process(self.program.pid).memory_info().rss / 1e6

    def close(self) -> None:
        if self.program is not None and self.program.poll() is None:
            self.kill()
        for process in (self._manager, self._server):
            process.terminate()
            process.wait(10)

    # Eyes

    def look(self) -> dict[str, Any]:
        deadline = time.monotonic() + 30
        while True:
            try:
                with socket.socket(socket.AF_UNIX) as line:
                    line.settimeout(40)
                    line.connect(self._socket)
                    return json.loads(b"".join(iter(lambda: line.recv(1 << 16), b"")))
            except (OSError, ValueError):
                assert self.program is not None
                if time.monotonic() > deadline or self.program.poll() is not None:
                    raise
                time.sleep(0.1)

    def until(self, holds: Any, what: str, seconds: float = 20) -> dict[str, Any]:
        """Wait until holds(look()) is true."""
        deadline = time.monotonic() + seconds
        while True:
            seen = self.look()
            if holds(seen):
                return seen
            if time.monotonic() > deadline:
                self.shoot("not-seen")
                said = sorted({item["name"] or item["text"] for item in seen["items"]})
                raise NotSeen(f"{what}; in sight: {said}")
            time.sleep(0.1)

    def find(self, pattern: str, seconds: float = 10, kind: str = "", enabled: bool = True) -> dict[str, Any]:
        """The last thing in sight whose name or text matches as a whole."""
        asked = re.compile(pattern)
        found: list[dict[str, Any]] = []

        def there(seen: dict[str, Any]) -> bool:
            found[:] = [
                item
                for item in seen["items"]
                if (asked.fullmatch(item["name"]) or asked.fullmatch(item["text"]))
                and (not kind or item["kind"] == kind)
                and (item["enabled"] or not enabled)
            ]
            return bool(found)

        self.until(there, f"“{pattern}”", seconds)
        return max(found, key=lambda item: (item["place"][1], item["place"][0]))

    def sees(self, pattern: str) -> bool:
        asked = re.compile(pattern)
        return any(asked.search(item["name"]) or asked.search(item["text"]) for item in self.look()["items"])

    def _still(self, faults: list[str]) -> list[str]:
        """Those that are not over when the window has been laid out anew."""
        if not faults:
            return []
        time.sleep(0.6)
        again = set(self.look()["unreadable"])
        return [fault for fault in faults if fault in again]

    def shoot(self, name: str, window: bool = False) -> Path:
        """A picture of the screen once it has come to rest, or of the window alone with few colours.

        What cannot be read on it is kept in `unreadable`.
        """
        time.sleep(0.35)
        # The window's thread answers: whatever it was at has been painted.
        seen = self.look()
        self.unreadable += [f"{name}: {fault}" for fault in self._still(seen["unreadable"])]
        path = self.pictures / f"{name}.png"
        (width, height), (left, top) = seen["size"], seen["corner"]
        only = (
            ["-crop", f"{width}x{height}+{left}+{top}", "+repage", "+dither", "-colors", "256", "-depth", "8"]
            if window
            else []
        )
        command = ["import", "-window", "root", *only, str(path)]
        subprocess.run(command, env=self._environment, check=True, timeout=60)
        return path

    # Hands

    def xdotool(self, *arguments: str) -> str:
        command = ["xdotool", *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=120)
        return done.stdout.strip()

    def key(self, *keys: str) -> None:
        for key in keys:
            self.xdotool("key", "--clearmodifiers", key)
            time.sleep(0.12)

    def type(self, text: str) -> None:
        """Into whatever has the keyboard. What is on no key of the keyboard comes from the clipboard."""
        if not text.isascii():
            with self.other_program("words", text):
                self.key("ctrl+v")
                time.sleep(0.3)
            return
        self.xdotool("type", "--clearmodifiers", "--delay", "8", text)
        time.sleep(0.15)

    def move_to(self, item: dict[str, Any]) -> None:
        left, top, width, height = item["place"]
        self.xdotool("mousemove", str(left + width // 2), str(top + height // 2))
        time.sleep(0.1)

    def drag(self, start: tuple[int, int], item: dict[str, Any]) -> None:
        """From a place of the screen to the middle of something in sight, by steps, as a hand does."""
        left, top, width, height = item["place"]
        end = (left + width // 2, top + height // 2)
        self.xdotool("mousemove", *map(str, start), "mousedown", "1")
        for step in range(1, 9):
            at = (round(a + (b - a) * step / 8) for a, b in zip(start, end, strict=True))
            self.xdotool("mousemove", *map(str, at))
            time.sleep(0.15)
        self.xdotool("mouseup", "1")
        time.sleep(0.3)

    def click(self, pattern: str, button: int = 1, **how: Any) -> None:
        place = None
        # Where it still is when the hand is there: a page that fills moves what is on it.
        while (item := self.find(pattern, **how))["place"] != place:
            self.move_to(item)
            place = item["place"]
        self.xdotool("click", str(button))
        time.sleep(0.2)

    def resize(self, width: int, height: int) -> None:
        window = self.xdotool("search", "--sync", "--onlyvisible", "--name", "Greenroom$").splitlines()[-1]
        self.xdotool("windowmove", window, "0", "0")
        self.xdotool("windowsize", window, str(width), str(height))
        time.sleep(0.6)
