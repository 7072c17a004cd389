"""Something to double-click, also where a folder has an odd name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import launcher
import pytest

ODD_NAMES = (
    "two words",
    'a "b" c',
    "it's",
    "50% %U %%",
    "back\\slash\\n",
    "$HOME `id` $(id)",
    "new\nline\nExec=evil",
    "semi;colon=x",
    "tab\there",
    "\\\\\"'",
    "연극",
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="such names cannot be given on Windows")


def program_in(folder: Path) -> Path:
    """A program that says where it is, and how many arguments it got."""
    folder.mkdir()
    program = folder / "greenroom"
    program.write_text('#!/bin/sh\nprintf "%s %s" "$#" "$0"\n')
    program.chmod(0o755)
    return program


def entry_values(text: str) -> dict[str, str]:
    """As the Desktop Entry Specification reads a file: one key a line, escapes in strings resolved."""
    values = {}
    for line in text.split("\n")[1:]:
        key, _, value = line.partition("=")
        values[key] = re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t", "r": "\r"}.get(match[1], match[1]), value)
    return values


def command_line(value: str) -> list[str]:
    """Words of an Exec key: quoted ones with their escapes, then the field codes, of which there is only %%."""
    words = [
        re.sub(r'\\(["`$\\])', r"\1", quoted) if quoted else plain
        for quoted, plain in re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', value, re.DOTALL)
    ]
    assert not re.search(r"%[^%]", "".join(words).replace("%%", ""))
    return [word.replace("%%", "%") for word in words]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="desktop entries are a Linux matter")
@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_desktop_entry_starts_this_program_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    program = program_in(tmp_path / name)
    entry = launcher.create(tmp_path / name, program)
    assert entry == tmp_path / "data" / "applications" / "greenroom.desktop"
    text = entry.read_text(encoding="utf-8")
    assert len(text.splitlines()) == 9
    values = entry_values(text)
    assert values["Icon"] == str(tmp_path / name / "assets" / "icons" / "logo.svg")
    done = subprocess.run(command_line(values["Exec"]), capture_output=True, text=True)
    assert done.stdout == f"0 {program}"


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_command_file_starts_this_program_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    program = program_in(tmp_path / name)
    done = subprocess.run([launcher._macos(program)], capture_output=True, text=True)
    assert done.stdout == f"0 {program}"


def test_a_batch_file_holds_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a folder is called could neither be quoted in a batch file nor be written in every code page."""
    monkeypatch.setenv("APPDATA", str(tmp_path))
    monkeypatch.setattr(launcher.subprocess, "run", lambda *a, **k: subprocess.CompletedProcess([], 1))
    root = tmp_path / "100% & 연극"
    root.mkdir()
    batch = launcher._windows(root, root / ".venv" / "Scripts" / "greenroom.exe")
    assert batch == root / "Greenroom.bat"
    assert batch.read_bytes() == b'@start "" "%~dp0.venv\\Scripts\\pythonw.exe" -P -m app %*\r\n'


def test_the_icon_is_there() -> None:
    assert (Path(launcher.__file__).parents[1] / "assets" / "icons" / "logo.svg").is_file()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="desktop entries are a Linux matter")
def test_a_launcher_that_cannot_be_made_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    assert launcher.create(tmp_path, tmp_path / "greenroom") is None
    assert "No launcher" in capsys.readouterr().err
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert launcher.create(tmp_path, tmp_path / "\udcff" / "greenroom") is None
    assert "not valid UTF-8" in capsys.readouterr().err
