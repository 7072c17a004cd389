"""Reading small system files, and torch's build without importing it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.hardware.sources import Sources, cpu_list, system_counters, torch_build


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8,10-11", {0, 1, 2, 3, 8, 10, 11}),
        ("5", {5}),
        ("", set()),
        ("3-1", set()),
        ("a-b,2", {2}),
        ("0-99999999999", set()),
    ],
)
def test_cpu_list(text: str, cpus: set[int]) -> None:
    assert cpu_list(text) == cpus


@given(st.sets(st.integers(0, 500)))
def test_cpu_list_reads_every_set(cpus: set[int]) -> None:
    assert cpu_list(",".join(map(str, sorted(cpus)))) == cpus


@given(st.text())
def test_cpu_list_survives_anything(text: str) -> None:
    assert all(cpu >= 0 for cpu in cpu_list(text))


def test_missing_files_are_empty(tmp_path: Path) -> None:
    sources = Sources(root=tmp_path)
    assert sources.text("proc/none") == ""
    assert sources.number("proc/none") is None
    assert sources.entries("sys") == []


def test_counters_of_this_machine() -> None:
    counters = system_counters()
    assert counters.total_bytes >= counters.available_bytes > 0
    assert counters.logical_cores >= 1


@pytest.mark.parametrize(
    ("line", "cuda"),
    [
        ("cuda: Optional[str] = '13.0'", "13.0"),
        ("cuda: Optional[str] = None", "none"),
        ('cuda = "12.8"', "12.8"),
    ],
)
def test_torch_build_is_read_from_its_version_file(
    line: str, cuda: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('must not be imported')")
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '2.99'\ndebug = False\n{line}\ngit_version = 'x'\n")
    dist = tmp_path / "torch-2.99.dist-info"
    dist.mkdir()
    (dist / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.99\n")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert torch_build() == {"torch": "2.99", "torch_cuda": cuda}


def test_probing_imports_no_torch() -> None:
    code = "import sys, engine.hardware.probe, engine.placement.planner; raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
