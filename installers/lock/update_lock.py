#!/usr/bin/env python3
"""Write the lock files: the exact versions that bootstrap.py installs, with the SHA-256 of each of their files.

    .venv/bin/pip install uv
    .venv/bin/python installers/lock/update_lock.py                        after a change of pyproject.toml
    .venv/bin/python installers/lock/update_lock.py --upgrade              newest versions of everything
    .venv/bin/python installers/lock/update_lock.py --upgrade-package numpy

Versions stay as they are locked unless pyproject.toml or an option asks for others. One resolution covers all supported
platforms and Pythons; it is then split by what needs a package:

    build.txt      pip and what builds the kernels
    run.txt        what Greenroom needs, torch and its CUDA libraries excepted
    test.txt       what the tests need besides
    torch.txt      torch as the Python package index has it, on Linux with CUDA
    torch-BUILD.txt    torch's other builds (cpu, cu126, cu130), from PyTorch's own index; one that is missing here is
                       installed by its version alone. The index may be out of reach: the file then stays as it is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

LOCK = Path(__file__).resolve().parent
ROOT = LOCK.parent.parent
sys.path.insert(0, str(LOCK.parent))

import torch_build  # noqa: E402

OLDEST_PYTHON = "3.11"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
#: PySide6's wheels need glibc 2.34, torch's macOS 14 on Apple silicon (there are none for Intel Macs).
PLATFORMS = ("x86_64-manylinux_2_34", "x86_64-pc-windows-msvc", "aarch64-apple-darwin")
MACOS = "14.0"
BUILD_TOOLS = ("pip", "cmake", "ninja")
HEADER = "# Made by installers/lock/update_lock.py. Do not edit.\n"

Entries = dict[str, str]


class LockError(Exception):
    """The lock cannot be made. The text says why."""


def uv(*arguments: str) -> str:
    """Run `uv pip compile` and return what it prints; only wheels are considered, so that nothing is built."""
    program = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if not program:
        raise LockError("uv is missing. Install it with: pip install uv")
    command = [program, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:"]
    environment = {**os.environ, "MACOSX_DEPLOYMENT_TARGET": MACOS}
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise LockError(done.stderr.strip())
    return done.stdout


def entries(text: str) -> Entries:
    """Requirements by name, each with its hashes. A package with one version per Python has all of them together."""
    found: Entries = {}
    for block in re.split(r"(?m)^(?=[A-Za-z0-9])", text):
        match = re.match(r"([A-Za-z0-9._-]+)==", block)
        if match:
            found[match[1]] = found.get(match[1], "") + block.rstrip() + "\n"
    return found


def resolve(folder: Path, options: Iterable[str]) -> dict[str, Entries]:
    """The lock files' contents by name, without PyTorch's own builds."""
    build = folder / "build.in"
    system = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    build.write_text("\n".join([*system["requires"], *BUILD_TOOLS]), encoding="utf-8")
    torch = folder / "torch.in"
    torch.write_text("torch\n", encoding="utf-8")
    project = str(ROOT / "pyproject.toml")
    everything = folder / "everything.txt"
    everything.write_text("".join(path.read_text(encoding="utf-8") for path in locked_before()), encoding="utf-8")
    universal = ["--universal", "--python-version", OLDEST_PYTHON]
    wanted = [project, "--extra", "test"]
    uv(*wanted, str(build), *universal, "--generate-hashes", "-o", str(everything), *options)
    whole = entries(everything.read_text(encoding="utf-8"))

    def names(*requirements: str, where: Iterable[str] = universal) -> set[str]:
        return set(entries(uv(*requirements, "-c", str(everything), *where)))

    elsewhere = ["--python-platform", "aarch64-apple-darwin", "--python-version", OLDEST_PYTHON]
    cuda = names(str(torch)) - names(str(torch), where=elsewhere) | {"torch"}
    run = names(project) - cuda
    parts = {"build": names(str(build)), "run": run, "test": names(*wanted) - run - cuda, "torch": cuda}
    return {part: {name: whole[name] for name in sorted(members)} for part, members in parts.items()}


def locked_before() -> list[Path]:
    return [path for name in ("run", "test", "torch", "build") if (path := LOCK / f"{name}.txt").exists()]


def write(path: Path, locked: Entries) -> None:
    path.write_text(HEADER + "".join(locked.values()), encoding="utf-8", newline="\n")


def check(files: Iterable[Path]) -> None:
    """Raise unless every platform and Python we support has a wheel for each locked version."""
    arguments = [str(file) for file in files]
    for platform in PLATFORMS:
        for python in PYTHONS:
            try:
                uv(*arguments, "--no-deps", "--python-platform", platform, "--python-version", python)
            except LockError as error:
                raise LockError(f"Not on {platform} with Python {python}: {error}") from None


def lock_own_builds(version: str) -> None:
    """Lock the builds that only PyTorch's own index has. What cannot be reached is told, and stays if it still fits."""
    for build in torch_build.OWN_BUILDS:
        path = LOCK / f"torch-{build}.txt"
        index = torch_build.INDEX + build
        if torch_build.reachable(index):
            with tempfile.TemporaryDirectory() as folder:
                wanted = Path(folder) / "torch.in"
                wanted.write_text(f"torch=={version}+{build}\n", encoding="utf-8")
                write(path, entries(uv(str(wanted), "--no-deps", "--generate-hashes", "--default-index", index)))
            continue
        print(f"PyTorch's index cannot be reached to lock {version}+{build}.")
        if path.exists() and f"=={version}+" not in path.read_text(encoding="utf-8"):
            path.unlink()
            print(f"{path.name} was for another version and is removed: that build is installed by its version alone.")


def main(options: list[str]) -> int:
    try:
        with tempfile.TemporaryDirectory() as folder:
            parts = resolve(Path(folder), options)
        for name, locked in parts.items():
            write(LOCK / f"{name}.txt", locked)
        check(LOCK / f"{name}.txt" for name in parts)
        lock_own_builds(torch_build.pinned_version(LOCK))
    except LockError as error:
        print(f"The lock cannot be made: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
