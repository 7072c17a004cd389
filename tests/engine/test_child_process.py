"""How children are started and talked to, and what limits they get."""

from __future__ import annotations

import ctypes
import io
import signal
import subprocess
import sys

import pytest

from engine import child_limits
from engine.child_process import (
    PROBE,
    TEMPLATES,
    bare_environment,
    command,
    environment,
    read_message,
    write_message,
)


@pytest.mark.parametrize("child", [PROBE, TEMPLATES])
def test_a_frozen_program_calls_itself(child: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    module, option = child
    assert command(child, ["a"])[1:] == ["-P", "-m", module, "a"]
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert command(child, ["a"]) == [sys.executable, option, "a"]


def test_a_bare_environment_has_no_secrets_and_still_finds_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert environment()["HF_TOKEN"] == "hf_secret"
    bare = bare_environment()
    assert "HF_TOKEN" not in bare
    assert bare["PYTHONPATH"] == environment()["PYTHONPATH"]
    assert bare["PYTHONPATH"].endswith("/elsewhere")


def test_messages_come_as_they_were_sent() -> None:
    stream = io.BytesIO()
    documents = [{"text": "한글 🎉 \ud800 \x00"}, [1.5, None, True], ""]
    for document in documents:
        write_message(stream, document)
    stream.seek(0)
    assert [read_message(stream, 100) for _ in documents] == documents
    assert read_message(stream, 100) is None


def test_a_message_that_is_too_long_is_not_read() -> None:
    stream = io.BytesIO()
    write_message(stream, "x" * 100)
    stream.seek(0)
    with pytest.raises(ValueError, match="a message of 102 bytes"):
        read_message(stream, 101)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_work_beyond_the_allowed_time_ends_a_process() -> None:
    code = "from engine.child_limits import allow_cpu\nallow_cpu(0.1)\nwhile True: pass"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == -signal.SIGPROF
    code = "from engine.child_limits import allow_cpu\nallow_cpu(0.1)\nallow_cpu(0)\nfor i in range(10**7): pass"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.skipif(ctypes.sizeof(ctypes.c_void_p) != 8, reason="of 64-bit Windows")
def test_windows_structures_have_the_sizes_that_windows_wants() -> None:
    assert ctypes.sizeof(child_limits._BasicLimits) == 64
    assert ctypes.sizeof(child_limits._ExtendedLimits) == 144
