"""No instruction beyond baseline x86-64 outside the files that are chosen at run time."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OBJECTS = sorted((ROOT / "build").glob("*/CMakeFiles/*.dir/native/**/*.o"))
ISA_FILES = re.compile(r"(kernels|peaks|recode)_(amx|avx2|avxvnni|avx512\w*)\.cpp\.o$")
#: VEX and EVEX mnemonics start with v; the baseline ones that do (verr, verw, vm*) no compiler emits.
VECTOR = re.compile(r"^\s+[0-9a-f]+:\s+(v[a-z0-9]+)", re.MULTILINE)

pytestmark = [
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86-64 only"),
    pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump"),
    pytest.mark.skipif(not OBJECTS, reason="the object files of the build are gone"),
]


def vector_instructions(path: Path) -> set[str]:
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(path)], capture_output=True, text=True, check=True
    ).stdout
    return set(VECTOR.findall(text))


@pytest.mark.parametrize("path", [p for p in OBJECTS if not ISA_FILES.search(p.name)], ids=lambda p: p.name)
def test_baseline_objects_are_baseline(path: Path) -> None:
    assert vector_instructions(path) == set()


@pytest.mark.parametrize("path", [p for p in OBJECTS if ISA_FILES.search(p.name)], ids=lambda p: p.name)
def test_isa_objects_share_no_code(path: Path) -> None:
    """A weak symbol could replace the baseline copy of the same function everywhere."""
    assert vector_instructions(path), "this file should have vector code: is the test looking at the right thing?"
    symbols = subprocess.run(["nm", "--defined-only", str(path)], capture_output=True, text=True, check=True).stdout
    weak = [line for line in symbols.splitlines() if line.split()[-2] in ("W", "w", "V", "v", "u")]
    assert weak == []
