"""The rules of the house, checked by their tools."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(*command: str) -> None:
    program = shutil.which(command[0], path=str(Path(sys.executable).parent))
    assert program, f"{command[0]} is not installed beside {sys.executable}"
    done = subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_python_is_clean() -> None:
    run("ruff", "check", ".")


def test_python_is_formatted() -> None:
    run("ruff", "format", "--check", ".")


@pytest.mark.timeout(600)
def test_engine_is_typed() -> None:
    run("mypy")


def test_borders_between_parts_hold() -> None:
    run("lint-imports")


def test_native_code_is_formatted() -> None:
    sources = sorted(str(p) for p in (ROOT / "native").rglob("*") if p.suffix in (".cpp", ".h", ".hpp"))
    assert sources
    run("clang-format", "--dry-run", "--Werror", *sources)


def test_every_requirement_has_a_tested_version() -> None:
    """Constraints name exactly one version for each direct dependency of pyproject.toml."""
    import re
    import tomllib

    def canonical(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["test"]
    names = {canonical(re.split(r"[<>=\[ ;]", line)[0]) for line in wanted}
    lines = (ROOT / "installers" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [canonical(line.split("==")[0]) for line in lines if line and not line.startswith("#")]
    assert len(pinned) == len(set(pinned))
    assert names <= set(pinned)
