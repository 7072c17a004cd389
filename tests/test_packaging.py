"""What a wheel carries, and that a program started from it finds its files."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from this working copy and unpacked, as an installation would."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    command += ["--config-settings", f"build-dir={folder / 'build'}", str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    target = folder / "site"
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def run(code: str, installed: Path) -> str:
    """Run code with the unpacked wheel ahead of this environment's own (editable) installation."""
    prelude = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'Redirecting' not in type(f).__name__]\n"
    prelude += f"sys.path.insert(0, {str(installed)!r})\n"
    done = subprocess.run([sys.executable, "-c", prelude + code], capture_output=True, text=True, cwd=installed)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.timeout(600)
def test_a_wheel_carries_the_program_and_nothing_else(installed: Path) -> None:
    assert (installed / "engine" / "assets" / "demo" / "parts.npz").is_file()
    assert (installed / "engine" / "assets" / "icons" / "logo.svg").is_file()
    assert list((installed / "engine").glob("_native*"))
    assert not (installed / "engine" / "assets" / "demo" / "fitting").exists()
    names = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {"app", "engine"}


@pytest.mark.timeout(600)
def test_a_program_from_a_wheel_finds_its_assets_and_kernels(installed: Path) -> None:
    code = "from engine import _native, resources; print(resources.asset('demo/parts.npz'), _native.tiers()[-1])"
    found, tier = run(code, installed).split()
    assert Path(found) == installed / "engine" / "assets" / "demo" / "parts.npz"
    assert tier == "portable"


def test_an_editable_installation_reads_the_working_copys_assets() -> None:
    from engine.resources import asset

    assert asset("icons/logo.svg") == ROOT / "assets" / "icons" / "logo.svg"


def test_only_app_and_engine_can_be_imported_from_the_working_copy() -> None:
    """A careless package mapping would make tests and installers parts of the engine."""
    import engine

    folders = {Path(folder).resolve() for folder in engine.__path__}
    assert ROOT not in folders
