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
        why = error.strerror or str(error)
    except UnicodeError:
        why = "the name of this folder is not valid UTF-8"
    say(f"No launcher could be made: {why}. Start {program} instead.", error=True)
    return None


def _linux(root: Path, program: Path) -> Path:
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    entry = data / "applications" / "greenroom.desktop"
    entry.parent.mkdir(parents=True, exist_ok=True)
    icon = root / "assets" / "icons" / "logo.svg"
    entry.write_bytes(
        b"[Desktop Entry]\n"
        b"Type=Application\n"
        b"Name=Greenroom\n"
        b"Comment=Run large Mixture-of-Experts language models on this PC\n"
        # Not the program itself: GLib looks for it with its "%%" still doubled.
        b"Exec=" + _value(" ".join(["/bin/sh", "-c", _quoted('exec "$0"'), _quoted(str(program))])) + b"\n"
        b"Icon=" + _value(str(icon)) + b"\n"
        b"Terminal=false\n"
        b"Categories=Utility;Science;\n"
        b"StartupWMClass=greenroom\n"
    )
    entry.chmod(0o755)
    return entry


def _quoted(argument: str) -> str:
    """One argument of a command line as the Desktop Entry Specification asks (its "Exec key" section)."""
    for character in ("\\", '"', "`", "$"):
        argument = argument.replace(character, "\\" + character)
    return '"' + argument.replace("%", "%%") + '"'


def _value(text: str) -> bytes:
    """A string in an entry: backslashes and line ends are escaped (once more, after the quoting of a command line)."""
    for character, escaped in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(character, escaped)
    return text.encode("utf-8")


def _windows(root: Path, program: Path) -> Path:
    window = program.with_name("pythonw.exe")
    batch = root / "Greenroom.bat"
    # Relative to the file itself: a path would have to be quoted, and put into the console's code page.
    batch.write_bytes(b'@start "" "%~dp0.venv\\Scripts\\pythonw.exe" -P -m app %*\r\n')
    menu = Path(os.environ["APPDATA"]) / "Microsoft" / "Windows" / "Start Menu" / "Programs" / "Greenroom.lnk"
    script = (
        "$s = (New-Object -ComObject WScript.Shell).CreateShortcut($env:GREENROOM_LINK);"
        "$s.TargetPath = $env:GREENROOM_TARGET; $s.Arguments = '-P -m app'; $s.WorkingDirectory = $env:GREENROOM_ROOT;"
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
    command.write_bytes(os.fsencode(f"#!/bin/sh\nexec {quoted}\n"))
    command.chmod(0o755)
    return command
