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
from dataclasses import dataclass
from pathlib import Path

from steps import ChangedFile, SetupError, run_logged

#: PyTorch's public wheel index: smaller CPU builds for Linux, CUDA builds for Windows.
INDEX = "https://download.pytorch.org/whl/"
#: CUDA 13 needs driver 580 or newer; CUDA 12.6 runs on every 12.x driver (NVIDIA's minor-version compatibility, 525+).
CUDA_BUILDS = ((580, "cu130"), (525, "cu126"))
#: The builds that only PyTorch's own index has.
OWN_BUILDS = ("cpu", *(name for _, name in CUDA_BUILDS))
FAILED = "torch could not be installed"


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


def install(python: Path, log: Path, lock: Path, driver: int | None) -> str:
    """Install torch into `python`'s environment, which has its libraries already; returns a remark for the user.

    lock: the folder with torch.txt (the Python package index's wheels) and, for builds that only PyTorch's index has,
    torch-BUILD.txt. A build without such a file is taken by its version, from that index alone.
    """
    version = pinned_version(lock)
    build = next((name for oldest, name in CUDA_BUILDS if driver and driver >= oldest), "cpu")
    have = installed_version(python)
    if have and have.split("+")[0] == version and (build == "cpu" or "+cpu" not in have):
        return f"{have} is there"
    failure: SetupError | None = None
    for source in sources_for(build, plain_pip_offers(python, version)):
        if source.index and not reachable(source.index):
            continue
        pip = [str(python), "-P", "-m", "pip", "--disable-pip-version-check", "install", "--only-binary", ":all:"]
        pip += ["--index-url", source.index] if source.index else []
        locked = lock / source.lock
        try:
            if locked.exists():
                run_logged([*pip, "--require-hashes", "--no-deps", "-r", str(locked)], log, FAILED)
            if source.index:  # what this build needs besides: nothing where the lock or the libraries have it all
                run_logged([*pip, f"torch=={version}"], log, FAILED)
        except ChangedFile:
            raise
        except SetupError as error:
            failure = error
            continue
        return source.remark
    raise failure or SetupError(
        f"{FAILED}: neither Python's package index nor PyTorch's own answers. "
        "Connect to the network and start this again."
    )


@dataclass(frozen=True)
class Source:
    """index: PyTorch's index for one build; None for what pip takes as it is set up here."""

    index: str | None
    lock: str
    remark: str


def sources_for(build: str, plain: str | None) -> list[Source]:
    """Where to get torch, in the order to try. plain: what `plain_pip_offers` said."""

    def own(name: str, remark: str) -> Source:
        return Source(INDEX + name, f"torch-{name}.txt", remark)

    cpu = own("cpu", "CPU build")
    if build == "cpu":
        if plain == "+cpu":
            return [Source(None, cpu.lock, "CPU build"), cpu]
        if plain == "cpu":
            return [Source(None, "torch.txt", "CPU build"), cpu]
        return [
            cpu,
            Source(None, "torch.txt", "a build with CUDA, larger than needed: PyTorch's CPU builds cannot be reached"),
        ]
    cuda = own(build, build)
    if plain in ("cpu", "+cpu"):
        lock = cpu.lock if plain == "+cpu" else "torch.txt"
        return [cuda, Source(None, lock, "a CPU build: no CUDA build could be had, so the GPU stays unused"), cpu]
    # Linux wheels on the package index carry the newest CUDA; older drivers need the matching build.
    if build == CUDA_BUILDS[0][1]:
        return [Source(None, "torch.txt", "CUDA build"), cuda]
    return [cuda, cpu, Source(None, "torch.txt", "CUDA build newer than the driver")]


def plain_pip_offers(python: Path, version: str) -> str | None:
    """What pip would take as it is set up here; None when it cannot tell.

    "cuda" or "cpu" as the package index has them, or "+cpu": PyTorch's own CPU build, from the user's index or folder.
    """
    if sys.platform in ("darwin", "win32") or platform.machine() not in ("x86_64", "AMD64"):
        return "cpu"
    command = [str(python), "-P", "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
    command += ["--report", "-", f"torch=={version}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        chosen = json.loads(done.stdout)["install"][0]
        name = chosen["metadata"]["version"] + chosen["download_info"]["url"]
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, IndexError):
        return None
    return "+cpu" if "+cpu" in name or "%2Bcpu" in name else "cuda"


def reachable(index: str) -> bool:
    """Whether an index answers at all within a few seconds, so that a closed network does not hang the set-up."""
    try:
        with urllib.request.urlopen(index + "/", timeout=5):
            return True
    except urllib.error.HTTPError as answer:
        return answer.code < 500
    except (OSError, ValueError):
        return False


def pinned_version(lock: Path) -> str:
    match = re.search(r"^torch==(\S+)", (lock / "torch.txt").read_text(encoding="utf-8"), re.MULTILINE)
    if not match:
        raise SetupError(f"{FAILED}: {lock / 'torch.txt'} does not name its version. Restore the file.")
    return match.group(1)


def installed_version(python: Path) -> str | None:
    code = "import importlib.metadata as m; print(m.version('torch'))"
    done = subprocess.run([str(python), "-P", "-c", code], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None
