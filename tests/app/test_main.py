"""`greenroom`: a verb goes to the command line, nothing opens the window, no screen is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app import __main__ as program
from engine.placement.compare import Comparison, Use
from engine.placement.plan import Range

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    import engine.cli.main

    seen: list[tuple[str, object]] = []
    monkeypatch.setattr(engine.cli.main, "main", lambda argv, **_: seen.append(("cli", argv)) or 0)
    monkeypatch.setattr(program, "open_window", lambda model=None: seen.append(("window", model)) or 0)
    return seen


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["probe", "--json"], ["no-such-verb"], ["plan", "demo"]])
def test_verbs_and_help_go_to_the_command_line(calls: list[tuple[str, object]], argv: list[str]) -> None:
    assert program.main(argv) == 0
    assert calls == [("cli", argv)]


def test_without_arguments_the_window_opens(calls: list[tuple[str, object]]) -> None:
    assert program.main([]) == 0
    assert calls == [("window", None)]


def test_a_file_opens_the_window_with_it(calls: list[tuple[str, object]], tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"")
    assert program.main([str(path)]) == 0
    assert calls == [("window", str(path))]


def test_a_file_named_like_a_verb_is_still_a_verb(
    calls: list[tuple[str, object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "probe").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    program.main(["probe"])
    assert calls == [("cli", ["probe"])]


def test_a_frozen_program_can_be_its_own_probe(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--probe-child", "native"]) == 0
    assert {"kernels", "missing"} & set(json.loads(capsys.readouterr().out)["value"])
    assert program.main(["--probe-child", "no-such-part"]) == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems always have a display")
def test_without_a_display_it_says_so_and_points_to_the_command_line(tmp_path: Path) -> None:
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    environment = {k: v for k, v in os.environ.items() if k not in hidden} | {"GREENROOM_DATA": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-m", "app"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 2
    assert 'greenroom generate demo --prompt "..."' in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


def test_the_command_line_has_a_painter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, qapp: object) -> None:
    import engine.cli.main

    given: dict[str, Any] = {}
    monkeypatch.setattr(engine.cli.main, "main", lambda argv, **named: given.update(named) or 0)
    assert program.main(["compare", "demo"]) == 0
    row = Comparison("PC", "cpu", "On the CPU", 10**9, 0, Range(1, 2, 3), Range(10, 20, 30), "limited", None)
    given["paint"](tmp_path / "a.png", [row], "A model", Use())
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
