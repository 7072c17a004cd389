"""Which torch build this machine gets: CUDA only where an NVIDIA driver answers, else the small CPU build."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from steps import SetupError, run_logged

#: PyTorch's public wheel index: smaller CPU builds for Linux, CUDA builds for Windows.
INDEX = "https://download.pytorch.org/whl/"
#: CUDA 13 needs driver 580 or newer; CUDA 12.6 runs on every 12.x driver (NVIDIA's minor-version compatibility, 525+).
CUDA_BUILDS = ((580, "cu130"), (525, "cu126"))


def nvidia_driver() -> int | None:
    """The NVIDIA driver's major version, or None when none answers."""
    program = shutil.which("nvidia-smi")
    if not program:
        return None
    try:
        done = subprocess.run(
            [program, "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.match(r"\s*(\d+)\.", done.stdout)
    return int(match.group(1)) if done.returncode == 0 and match else None


def install(python: Path, log: Path, constraints: Path, driver: int | None) -> str:
    """Install torch into `python`'s environment; returns a remark for the user."""
    version = pinned_version(constraints)
    build = next((name for oldest, name in CUDA_BUILDS if driver and driver >= oldest), "cpu")
    have = installed_version(python)
    if have and have.split("+")[0] == version and (build == "cpu" or "+cpu" not in have):
        return f"{have} is there"
    sources = sources_for(build, plain_pip_offers(python, version))
    failure: SetupError | None = None
    for index, remark in sources:
        if index and not reachable(index):
            continue
        command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", f"torch=={version}"]
        command += ["--index-url", index] if index else []
        try:
            run_logged(command, log, "torch could not be installed")
        except SetupError as error:
            failure = error
            continue
        return remark
    raise failure or SetupError(
        "torch could not be installed: neither Python's package index nor PyTorch's own answers. "
        "Connect to the network and start this again."
    )


def sources_for(build: str, plain: str | None) -> list[tuple[str | None, str]]:
    """(index, remark) in the order to try; index None is plain pip. plain: what pip would take, None if unknown."""
    cpu = (INDEX + "cpu", "CPU build")
    plain_is_cpu = plain == "cpu"
    if build == "cpu":
        if plain_is_cpu:
            return [(None, "CPU build"), cpu]
        return [cpu, (None, "a build with CUDA, larger than needed: PyTorch's CPU builds cannot be reached")]
    cuda = (INDEX + build, build)
    fallback = (None, "a CPU build: no CUDA build could be had, so the GPU stays unused")
    if plain_is_cpu:
        return [cuda, fallback, cpu]
    # Linux wheels on the package index carry the newest CUDA; older drivers need the matching build.
    newest = build == CUDA_BUILDS[0][1]
    return [(None, "CUDA build"), cuda] if newest else [cuda, cpu, (None, "CUDA build newer than the driver")]


def plain_pip_offers(python: Path, version: str) -> str | None:
    """ "cpu" or "cuda": what pip would take as it is set up here; None when it cannot tell."""
    if sys.platform in ("darwin", "win32") or platform.machine() not in ("x86_64", "AMD64"):
        return "cpu"
    command = [str(python), "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
    command += ["--report", "-", f"torch=={version}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        chosen = json.loads(done.stdout)["install"][0]
        name = chosen["metadata"]["version"] + chosen["download_info"]["url"]
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, IndexError):
        return None
    return "cpu" if "+cpu" in name or "%2Bcpu" in name else "cuda"


def reachable(index: str) -> bool:
    """Whether an index answers at all within a few seconds, so that a closed network does not hang the set-up."""
    try:
        with urllib.request.urlopen(index + "/", timeout=5):
            return True
    except urllib.error.HTTPError as answer:
        return answer.code < 500
    except (OSError, ValueError):
        return False


def pinned_version(constraints: Path) -> str:
    match = re.search(r"^torch==(\S+)", constraints.read_text(encoding="utf-8"), re.MULTILINE)
    if not match:
        raise SetupError(f"torch could not be installed: {constraints} does not name its version. Restore the file.")
    return match.group(1)


def installed_version(python: Path) -> str | None:
    code = "import importlib.metadata as m; print(m.version('torch'))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None
