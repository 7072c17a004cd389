"""What is installed is what was tested: exact versions, checked by their SHA-256."""

from __future__ import annotations

import hashlib
import re
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import environment
import pytest
import torch_build
import update_lock
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from steps import SetupError

FILES = sorted(environment.LOCK.glob("*.txt"))
PROJECT = tomllib.loads((environment.ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def locked(*names: str) -> dict[str, list[Requirement]]:
    """Requirements of lock files by name; a package may have one version for some Pythons and one for others."""
    found: dict[str, list[Requirement]] = {}
    for name in names:
        for line in (environment.LOCK / f"{name}.txt").read_text(encoding="utf-8").splitlines():
            if line and line[0] not in "# ":
                requirement = Requirement(line.removesuffix("\\"))
                found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_lock_file_holds_exact_versions_and_hashes_and_nothing_else(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "://" not in text, "no index belongs here, it is the user's"
    logical = [line for line in text.replace("\\\n", " ").splitlines() if not line.startswith("#")]
    assert logical
    for line in logical:
        assert re.fullmatch(r"[a-z0-9.-]+==[^\s;*]+( ; [^#\\]+?)?(\s+--hash=sha256:[0-9a-f]{64})+", line), line


@pytest.mark.parametrize(
    ("wanted", "files"),
    [
        (PROJECT["project"]["dependencies"], ("run", "torch")),
        (PROJECT["project"]["optional-dependencies"]["test"], ("test",)),
        ([*PROJECT["build-system"]["requires"], *update_lock.BUILD_TOOLS], ("build",)),
    ],
)
def test_every_requirement_is_locked_within_its_limits(wanted: list[str], files: tuple[str, ...]) -> None:
    versions = locked(*files)
    for line in wanted:
        requirement = Requirement(line)
        for lock in versions[canonicalize_name(requirement.name)]:
            (exact,) = lock.specifier
            assert requirement.specifier.contains(exact.version), line


def test_everything_that_is_needed_here_is_locked() -> None:
    """pip is told to install no dependencies: what the lock forgets would be missing."""
    known = set(locked("build", "run", "test", "torch"))
    waiting, seen = [("greenroom", "test")], set()
    while waiting:
        item = waiting.pop()
        if item in seen:
            continue
        seen.add(item)
        name, extra = item
        assert name == "greenroom" or name in known, f"{name} is not locked"
        try:
            requirements = [Requirement(line) for line in metadata.requires(name) or []]
        except metadata.PackageNotFoundError:
            continue  # a CUDA library, where torch is a CPU build
        for requirement in requirements:
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                needed = canonicalize_name(requirement.name)
                waiting += [(needed, ""), *((needed, wanted) for wanted in requirement.extras)]


def test_what_is_in_several_files_has_one_version() -> None:
    versions: dict[tuple[str, str], str] = {}
    for name in ("build", "run", "test", "torch"):
        for package, requirements in locked(name).items():
            for requirement in requirements:
                key = (package, str(requirement.marker))
                assert versions.setdefault(key, str(requirement.specifier)) == str(requirement.specifier), package


def test_torchs_builds_are_of_one_version() -> None:
    version = torch_build.pinned_version(environment.LOCK)
    for build in torch_build.OWN_BUILDS:
        path = environment.LOCK / f"torch-{build}.txt"
        if path.exists():
            assert f"\ntorch=={version}+{build} \\\n" in path.read_text(encoding="utf-8")


def test_versions_for_several_pythons_stay_together() -> None:
    lines = ["one==1 ; a", "one==2 ; b", "two==3"]
    text = "# a note\n" + "".join(f"{line} \\\n    --hash=sha256:0\n" for line in lines)
    found = update_lock.entries(text)
    assert list(found) == ["one", "two"]
    assert "".join(found.values()) == text.partition("\n")[2]


def test_a_missing_uv_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(update_lock.shutil, "which", lambda *a, **k: None)
    assert update_lock.main([]) == 1
    assert "pip install uv" in capsys.readouterr().err


def test_a_lock_of_another_version_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_lock, "LOCK", tmp_path)
    monkeypatch.setattr(torch_build, "reachable", lambda index: False)
    path = tmp_path / "torch-cpu.txt"
    path.write_text("torch==1.0.0+cpu \\\n    --hash=sha256:0\n")
    update_lock.lock_own_builds("1.0.0")
    assert path.exists()
    update_lock.lock_own_builds("1.0.1")
    assert not path.exists()


METADATA = "Metadata-Version: 2.1\nName: prop\nVersion: 1.0\nRequires-Dist: more\n"


class TestInstalling:
    """pip itself, with one small wheel and no network."""

    @pytest.fixture
    def wheel(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(environment, "PYTHON", Path(sys.executable))
        monkeypatch.setattr(environment, "LOG", tmp_path / "log")
        monkeypatch.setattr(environment, "LOCK", tmp_path)
        for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(tmp_path), "TARGET": str(tmp_path / "target")}.items():
            monkeypatch.setenv("PIP_" + name, value)
        path = tmp_path / "prop-1.0-py3-none-any.whl"
        about = "prop-1.0.dist-info/"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("prop.py", "")
            archive.writestr(about + "METADATA", METADATA)
            archive.writestr(about + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(about + "RECORD", "")
        return path

    def test_the_right_file_is_installed_alone(self, wheel: Path) -> None:
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        (environment.LOCK / "run.txt").write_text(f"prop==1.0 \\\n    --hash=sha256:{digest}\n")
        environment.install_locked("run")
        assert (environment.LOCK / "target" / "prop.py").exists()

    def test_a_changed_file_is_refused_in_one_sentence(self, wheel: Path) -> None:
        (environment.LOCK / "run.txt").write_text(f"prop==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
        with pytest.raises(SetupError, match="not the one Greenroom was tested with") as raised:
            environment.install_locked("run")
        assert "\n" not in str(raised.value)
        assert not (environment.LOCK / "target" / "prop.py").exists()

    def test_a_line_without_a_hash_is_refused(self, wheel: Path) -> None:
        (environment.LOCK / "run.txt").write_text("prop==1.0\n")
        with pytest.raises(SetupError):
            environment.install_locked("run")
        assert not (environment.LOCK / "target" / "prop.py").exists()

    def test_a_source_package_is_not_built(self, wheel: Path) -> None:
        wheel.unlink()
        source = wheel.with_name("prop-1.0.tar.gz")
        source.write_bytes(b"never opened")
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        (environment.LOCK / "run.txt").write_text(f"prop==1.0 \\\n    --hash=sha256:{digest}\n")
        with pytest.raises(SetupError, match="no build for this system or Python"):
            environment.install_locked("run")
