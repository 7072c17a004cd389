"""What the set-up shows while it works, and how its commands fail."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


class SetupError(Exception):
    """Set-up cannot go on. The text is the one sentence the user reads: what, why, what to do."""


class ChangedFile(SetupError):
    """A downloaded file is not the one in the lock: nothing else is tried."""


#: Words of pip, CMake and the system, and what they mean to a user. First match in the log wins.
_CHANGED = "DO NOT MATCH THE HASHES"
CAUSES = (
    (
        _CHANGED,
        "a downloaded file is not the one Greenroom was tested with: its SHA-256 differs. Start this again; if that "
        "does not help, something between here and the package index changes files",
    ),
    ("No space left on device", "the disk is full. Free some space and start this again"),
    ("Temporary failure in name resolution", "there is no network. Connect and start this again"),
    ("Failed to establish a new connection", "there is no network. Connect and start this again"),
    ("NewConnectionError", "there is no network. Connect and start this again"),
    ("ProxyError", "the proxy refused the connection. Check HTTPS_PROXY and start this again"),
    ("Read timed out", "the network is too slow or was lost. Start this again, it goes on where it stopped"),
    ("CERTIFICATE_VERIFY_FAILED", "the server's certificate was not accepted. Check the clock and any company proxy"),
    ("No CMAKE_CXX_COMPILER could be found", "there is no C++ compiler. Install one (on Debian: apt install g++)"),
    ("fatal error: Python.h", "Python's headers are missing. Install them (on Debian: apt install python3-dev)"),
    ("Permission denied", "a folder cannot be written. Check who owns it"),
    ("No matching distribution found", "a library has no build for this system or Python"),
    # What is left of a lost network when pip is told not to retry.
    ("ResolutionImpossible", "the libraries' versions cannot be had. Check the network and start this again"),
)


def say(text: str, error: bool = False) -> None:
    """Print a line; what the stream's encoding lacks (a folder's odd name) is shown by its codes."""
    stream = sys.stderr if error else sys.stdout
    encoding = stream.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)


@contextmanager
def step(title: str) -> Iterator[Callable[[str], None]]:
    """One line per step, with its seconds; on a terminal the seconds run. Yields a way to add a remark."""
    started = time.monotonic()
    remarks: list[str] = []
    finished = threading.Event()

    def line(ending: str) -> str:
        remark = f" ({remarks[-1]})" if remarks else ""
        return f"  {title}{remark} ... {time.monotonic() - started:.0f} s{ending}"

    def show_seconds() -> None:
        while not finished.wait(1):
            print("\r" + line(""), end="", flush=True)

    ticker = threading.Thread(target=show_seconds, daemon=True)
    if sys.stdout.isatty():
        ticker.start()
    else:
        print(f"  {title} ...", flush=True)
    try:
        yield remarks.append
    finally:
        finished.set()
        if ticker.is_alive():
            ticker.join()
        print(("\r" if sys.stdout.isatty() else "") + line(""), flush=True)


@contextmanager
def alone(file: Path) -> Iterator[None]:
    """Wait until no other process is in here with the same file, which is only locked. A killed one holds no lock."""
    with file.open("rb") as handle:
        waits = False
        while not _lock(handle):
            if not waits:
                say("Another start is setting Greenroom up in this folder; waiting for it.")
                waits = True
            time.sleep(0.2)
        yield


def _lock(handle: BinaryIO) -> bool:
    """False while another process has it. A disk without locks lets everybody in."""
    try:
        if os.name == "nt":
            import msvcrt

            handle.seek(1 << 30)  # Windows lets nobody read what is locked, so it is a byte behind the end
            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
    return True


def run_logged(command: list[str], log: Path, what: str) -> None:
    """Run a command with its output in the log. Raises SetupError naming the likeliest cause."""
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"\n$ {' '.join(command)}\n")
            file.flush()
            start = file.tell()
            code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT).returncode
    except OSError as error:
        raise SetupError(f"{what}: {error.strerror or error}. Check the disk and the folder's rights.") from None
    if code == 0:
        return
    with log.open("rb") as file:
        file.seek(start)
        output = file.read().decode("utf-8", "replace")
    for words, meaning in CAUSES:
        if words in output:
            raise (ChangedFile if words == _CHANGED else SetupError)(f"{what}: {meaning}. (Log: {log})")
    errors = [text.strip() for text in output.splitlines() if "error" in text.lower()]
    raise SetupError(f"{what}: {(errors or ['no reason was given'])[-1]} (Log: {log})")
