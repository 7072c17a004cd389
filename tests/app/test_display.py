"""Is there a screen?"""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from app.display import missing_display

linux_only = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs unix sockets")


def test_without_any_display_it_says_so() -> None:
    assert "no display" in missing_display({}, "linux")


def test_a_platform_without_screens_needs_none() -> None:
    assert missing_display({"QT_QPA_PLATFORM": "offscreen"}, "linux") is None
    assert missing_display({"QT_QPA_PLATFORM": "offscreen:size=1"}, "linux") is None


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_other_systems_always_have_one(platform: str) -> None:
    assert missing_display({}, platform) is None


@linux_only
def test_a_display_that_does_not_answer_is_named() -> None:
    assert ":54321" in missing_display({"DISPLAY": ":54321"}, "linux")


@linux_only
def test_a_wayland_socket_counts() -> None:
    # Not tmp_path: a socket's path may have 107 bytes at most.
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        server.bind(str(Path(folder) / "wayland-0"))
        assert missing_display({"WAYLAND_DISPLAY": "wayland-0", "XDG_RUNTIME_DIR": folder}, "linux") is None


@linux_only
def test_a_display_that_answers_is_used() -> None:
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.bind("\0/tmp/.X11-unix/X54322")
        except OSError:
            pytest.skip("no abstract sockets here")
        server.listen()
        assert missing_display({"DISPLAY": ":54322.0"}, "linux") is None
