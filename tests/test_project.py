"""The rules of the house, checked by their tools."""

from __future__ import annotations

import ast
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


def test_no_module_is_run_from_the_current_folder() -> None:
    """`python -m` looks there first unless -P is given: a download named like a module would run."""
    for folder in ("app", "engine", "installers"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.List):
                    continue
                words = [item.value for item in node.elts if isinstance(item, ast.Constant)]
                if "-m" in words and "pytest" not in words:
                    assert "-P" in words[: words.index("-m")], f"{path}:{node.lineno}"
