"""How a verb ends that does not come to its end: faults, signals, readers that leave, full disks."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import answer, process

import engine
from engine.cli.main import BUG, DONE, INTERRUPTED, REFUSED, main
from engine.folders import log_folder
from engine.runtime.engine import Engine


def test_a_bug_ends_with_1_one_sentence_and_a_traceback_in_the_log(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of the planner")

    monkeypatch.setattr(engine, "plan", broken)
    assert main(answer(tiny_model, "--json")) == BUG
    shown = capsys.readouterr()
    assert "ZeroDivisionError" in json.loads(shown.out)["error"]["why"]
    assert len(shown.err.splitlines()) == 1
    assert "ZeroDivisionError" in shown.err
    log = log_folder() / "greenroom.log"
    assert str(log) in shown.err
    assert "Traceback" in log.read_text()


def test_interrupt_ends_with_130_and_the_model_closed(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []
    real_generate, real_close = Engine.generate, Engine.close

    def generate(self: Engine, *arguments: Any, **more: Any) -> Iterator[Any]:
        yield from list(real_generate(self, *arguments, **more))[:3]
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "generate", generate)
    monkeypatch.setattr(Engine, "close", lambda self: closed.append(real_close(self)))
    assert main(answer(tiny_model)) == INTERRUPTED
    assert len(closed) == 1
    assert main(answer(tiny_model, "--json")) == INTERRUPTED
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert '"it was interrupted"' in shown.out


@pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")
@pytest.mark.parametrize(("name", "code"), [("SIGINT", INTERRUPTED), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_stops_a_running_answer_in_order(name: str, code: int, tiny_model: Path) -> None:
    running = process("generate", str(tiny_model), "--prompt", "Hi", "--raw", "--seed", "1", "--max-tokens", "8000")
    assert running.stdout is not None
    # The first character is there, and thousands are to come.
    assert running.stdout.read(1)
    running.send_signal(getattr(signal, name))
    _, err = running.communicate(timeout=60)
    assert running.returncode == code
    assert err.decode().splitlines() == ["Stopped."]


@pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")
def test_a_signal_that_is_ignored_stays_so(capsys: pytest.CaptureFixture[str]) -> None:
    """nohup has SIGHUP ignored; what is ours is given back."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.getsignal(signal.SIGTERM)
    try:
        assert main(["models"]) == DONE
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is before[1]
    finally:
        signal.signal(signal.SIGHUP, before[0])


def test_a_closed_pipe_ends_quietly(tiny_model: Path) -> None:
    running = process("generate", str(tiny_model), "--prompt", "Hi", "--raw", "--max-tokens", "300")
    assert running.stdout is not None
    running.stdout.close()
    running.stdout = None
    _, err = running.communicate(timeout=60)
    assert running.returncode == INTERRUPTED
    assert err == b""


def test_help_into_a_closed_pipe_ends_quietly() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    running = process("--help", stdout=write_end)
    os.close(write_end)
    _, err = running.communicate(timeout=60)
    assert running.returncode in (DONE, INTERRUPTED)
    assert err == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="writes to a device of Linux")
@pytest.mark.parametrize(("verb", "codes"), [("--help", (DONE, REFUSED)), ("models", (REFUSED,))])
def test_a_full_disk_is_one_sentence(verb: str, codes: tuple[int, ...]) -> None:
    with open("/dev/full", "w") as full:
        running = process(verb, "--json", stdout=full) if verb == "models" else process(verb, stdout=full)
    _, err = running.communicate(timeout=60)
    assert running.returncode in codes
    assert b"Traceback" not in err
    assert err.count(b"disk is full") == (verb == "models")
