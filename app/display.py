"""Is there a screen to open a window on? Qt ends the process when there is none, so it is asked beforehand."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

#: Qt platforms that draw without a screen of the desktop.
_SCREENLESS = ("offscreen", "minimal", "vnc", "eglfs", "linuxfb", "vkkhrdisplay")


def missing_display(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> str | None:
    """Why no window can be opened here, in plain words; None when one can."""
    if not platform.startswith("linux"):
        return None
    if environment.get("QT_QPA_PLATFORM", "").split(":")[0] in _SCREENLESS:
        return None
    if _wayland_answers(environment):
        return None
    display = environment.get("DISPLAY", "")
    if not display:
        return "this session has no display (neither WAYLAND_DISPLAY nor DISPLAY is set)"
    if not _x_answers(display):
        return f"the display {display} does not answer"
    return None


def _wayland_answers(environment: Mapping[str, str]) -> bool:
    name = environment.get("WAYLAND_DISPLAY", "")
    return bool(name) and os.path.exists(Path(environment.get("XDG_RUNTIME_DIR", "/nonexistent")) / name)


def _x_answers(display: str) -> bool:
    match = re.fullmatch(r"(?:unix)?([^:]*):(\d+)(?:\.\d+)?", display)
    if match is None:
        return True  # an unusual form: let Qt try
    host, number = match.group(1), int(match.group(2))
    if host and not host.startswith("/"):
        return _connects(socket.AF_INET, (host, 6000 + number))
    path = f"/tmp/.X11-unix/X{number}"
    return _connects(socket.AF_UNIX, path) or _connects(socket.AF_UNIX, "\0" + path)


def _connects(family: int, address: str | tuple[str, int]) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as attempt:
        attempt.settimeout(2.0)
        try:
            attempt.connect(address)
        except OSError:
            return False
        return True
