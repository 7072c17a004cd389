"""Something to double-click: a desktop entry, a Start-menu shortcut, a .command file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from steps import say


def create(root: Path, program: Path) -> Path | None:
    """Make this system's launcher and return where it is; None when it cannot be made, which is told and not fatal."""
    try:
        if os.name == "nt":
            return _windows(root, program)
        if sys.platform == "darwin":
            return _macos(program)
        return _linux(root, program)
    except OSError as error:
        say(f"No launcher could be made: {error.strerror or error}. Start {program} instead.", error=True)
        return None


def _linux(root: Path, program: Path) -> Path:
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    entry = data / "applications" / "greenroom.desktop"
    entry.parent.mkdir(parents=True, exist_ok=True)
    icon = root / "assets" / "icons" / "logo.svg"
    entry.write_text(
        "[Desktop Entry]\n"
        "Type=Application\n"
        "Name=Greenroom\n"
        "Comment=Run large Mixture-of-Experts language models on this PC\n"
        f'Exec="{_escape(str(program))}"\n'
        f"Icon={icon}\n"
        "Terminal=false\n"
        "Categories=Utility;Science;\n"
        "StartupWMClass=greenroom\n",
        encoding="utf-8",
    )
    entry.chmod(0o755)
    return entry


def _escape(path: str) -> str:
    """Quoting inside double quotes as the Desktop Entry Specification asks (its "Exec key" section)."""
    for character in ("\\", '"', "`", "$"):
        path = path.replace(character, "\\" + character)
    return path.replace("%", "%%")


def _windows(root: Path, program: Path) -> Path:
    window = program.with_name("pythonw.exe")
    batch = root / "Greenroom.bat"
    batch.write_text(f'@start "" "{window}" -m app %*\r\n', encoding="mbcs" if os.name == "nt" else "utf-8")
    menu = Path(os.environ["APPDATA"]) / "Microsoft" / "Windows" / "Start Menu" / "Programs" / "Greenroom.lnk"
    script = (
        "$s = (New-Object -ComObject WScript.Shell).CreateShortcut($env:GREENROOM_LINK);"
        "$s.TargetPath = $env:GREENROOM_TARGET; $s.Arguments = '-m app'; $s.WorkingDirectory = $env:GREENROOM_ROOT;"
        "$s.Save()"
    )
    names = {"GREENROOM_LINK": str(menu), "GREENROOM_TARGET": str(window), "GREENROOM_ROOT": str(root)}
    command = ["powershell", "-NoProfile", "-Command", script]
    done = subprocess.run(command, env={**os.environ, **names}, capture_output=True)
    return menu if done.returncode == 0 and menu.exists() else batch


def _macos(program: Path) -> Path:
    folder = Path.home() / "Applications"
    folder.mkdir(exist_ok=True)
    command = folder / "Greenroom.command"
    quoted = "'" + str(program).replace("'", "'\\''") + "'"
    command.write_text(f"#!/bin/sh\nexec {quoted}\n", encoding="utf-8")
    command.chmod(0o755)
    return command
