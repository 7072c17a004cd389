"""Renders a chat template in a child process with limits on memory and time: see template_child.py."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from engine.child_limits import Job, over_memory
from engine.child_process import TEMPLATES, bare_environment, command, read_message, write_message
from engine.words import say

#: Bytes of address space that the child may use, some 60 MB of them for Python; characters of a prompt.
MEMORY, LONGEST = 512 << 20, 16_000_000
#: For one answer. By the clock it may take longer: other programs may keep the child waiting.
CPU_SECONDS, SECONDS = 5.0, 20.0
#: By the clock, for the child to start: on a busy PC with a cold disk and a virus scanner.
START_SECONDS = 60.0
#: Bytes of an answer: a character takes at most 4 as UTF-8 and 6 as an escape of JSON.
_MOST = 6 * LONGEST + 10_000
_WATCH_STEP = 0.05


class TemplateFailed(Exception):
    """Why a template was not compiled or rendered, in plain words.

    refused: the template says so itself, or is not Jinja; else it failed, or hit a limit
    ended:   it hit the limit on time: another try would take as long
    """

    def __init__(self, why: str, *, refused: bool = False, ended: bool = False) -> None:
        super().__init__(why)
        self.why, self.refused, self.ended = why, refused, ended


class TemplateProcess:
    """One template in one child, so that no template ever meets another model's conversations.

    The child is started by the first request, stays warm, and is started again after it was killed.
    Safe to use from several threads: requests wait for each other.
    """

    def __init__(self, source: str, tool_source: str | None) -> None:
        self._compile = {"source": source, "tool_source": tool_source, "memory": MEMORY, "longest": LONGEST}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._job: Job | None = None

    def compile(self) -> None:
        """Raises TemplateFailed when the text is not a Jinja template or compiling it hits a limit."""
        with self._lock:
            self._running()

    def render(self, variables: dict[str, Any], tools: bool) -> str:
        """The prompt. Raises TemplateFailed."""
        with self._lock:
            return self._ask(self._running(), {"variables": variables, "tools": tools}, SECONDS)

    def close(self) -> None:
        """Ends the child; a later request would start it again."""
        process, self._process = self._process, None
        job, self._job = self._job, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                # What was not sent any more is of no use.
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait()
        if job is not None:
            job.close()

    def _running(self) -> subprocess.Popen[bytes]:
        """The child, with the template compiled in it."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            try:
                self._process = subprocess.Popen(
                    command(TEMPLATES),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=bare_environment(),
                    creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
                )
            except OSError as error:
                raise TemplateFailed(
                    say("its helper process could not be started ({why})", why=error.strerror)
                ) from error
            self._job = Job(self._process, MEMORY)
            try:
                self._ask(self._process, self._compile, START_SECONDS + SECONDS)
            except TemplateFailed:
                self.close()
                raise
        return self._process

    def _ask(self, process: subprocess.Popen[bytes], request: dict[str, Any], seconds: float) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        answer, done = None, threading.Event()
        watch = _Watch(process, done, seconds)
        watch.start()
        try:
            write_message(process.stdin, request | {"cpu_seconds": CPU_SECONDS})
            answer = read_message(process.stdout, _MOST)
        except (OSError, ValueError, RecursionError):
            pass  # it died, or answers nonsense
        finally:
            done.set()
            watch.join()
            if answer is None:
                self.close()
        if not isinstance(answer, dict):
            raise _died(watch.reason or process.returncode)
        if isinstance(answer.get("text"), str):
            return str(answer["text"])
        if answer.get("failed") == "memory":
            # What failed to get memory may be left half done.
            self.close()
        raise _failed(answer.get("failed"), str(answer.get("detail", "")))


class _Watch(threading.Thread):
    """Kills a child that takes too long, or too much memory where the system does not see to that."""

    def __init__(self, process: subprocess.Popen[bytes], done: threading.Event, seconds: float) -> None:
        super().__init__(name="greenroom template watch", daemon=True)
        self._process, self._done, self._seconds = process, done, seconds
        self.reason = ""

    def run(self) -> None:
        end = time.monotonic() + self._seconds
        # Where the system limits the memory there is nothing to look at until the time is up.
        step = _WATCH_STEP if sys.platform == "darwin" else self._seconds
        while not self._done.wait(step):
            if time.monotonic() >= end:
                self.reason = "time"
            elif over_memory(self._process, MEMORY):
                self.reason = "memory"
            if self.reason:
                self._process.kill()
                return


def _died(reason: str | int | None) -> TemplateFailed:
    """reason: "time", "memory", or the exit code of a child that nobody here killed."""
    if reason == "time" or (sys.platform != "win32" and reason == -signal.SIGPROF):
        return TemplateFailed(say("it does not come to an end"), ended=True)
    if reason == "memory":
        return _failed("memory", "")
    return TemplateFailed(say("it crashes the process that renders it"))


def _failed(kind: Any, detail: str) -> TemplateFailed:
    if kind == "refused":
        return TemplateFailed(detail[:300], refused=True)
    if kind == "depth":
        return TemplateFailed(say("it calls itself without end, or is nested too deeply"))
    if kind == "memory":
        return TemplateFailed(say("it needs too much memory"))
    if kind == "size":
        return TemplateFailed(say("it writes a text of more than {count:,} characters", count=LONGEST))
    return TemplateFailed(say("it fails with {error}", error=detail[:300]))
