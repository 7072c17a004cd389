"""Where facts about the machine come from. Tests replace the root and the replies with recorded machines."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import psutil

from engine.hardware.child import Reply, ask


@dataclass(frozen=True)
class Counters:
    """What the operating system's own interfaces say where there is no /proc: bytes and counts, 0 = not known."""

    total_bytes: int
    available_bytes: int
    swap_total_bytes: int
    swap_free_bytes: int
    logical_cores: int
    physical_cores: int


def system_counters() -> Counters:
    """Asks psutil."""
    memory = psutil.virtual_memory()
    swap = psutil.swap_memory()
    return Counters(
        total_bytes=int(memory.total),
        available_bytes=int(memory.available),
        swap_total_bytes=int(swap.total),
        swap_free_bytes=int(swap.free),
        logical_cores=psutil.cpu_count() or 0,
        physical_cores=psutil.cpu_count(logical=False) or 0,
    )


def own_affinity() -> frozenset[int] | None:
    """CPU numbers this process may run on; None where the system has no such thing (macOS)."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    try:
        return frozenset(psutil.Process().cpu_affinity())
    except (AttributeError, OSError, psutil.Error):
        return None


def torch_build() -> dict[str, str]:
    """Version of the installed torch and the CUDA it was built for ("none" = CPU build), without importing it."""
    try:
        version = metadata.version("torch")
        found = importlib.util.find_spec("torch")
    except (metadata.PackageNotFoundError, ImportError, ValueError):
        return {}
    reply = {"torch": version}
    if found is None or not found.submodule_search_locations:
        return reply
    try:
        text = (Path(found.submodule_search_locations[0]) / "version.py").read_text(encoding="utf-8")
    except OSError:
        return reply
    for line in text.splitlines():
        # The lines read `cuda: Optional[str] = '13.0'` or `... = None`.
        name = line.split(":")[0].split("=")[0].strip()
        value = line.rpartition("=")[2].strip().strip("'\"")
        missing = value in ("None", "")
        if name == "cuda":
            reply["torch_cuda"] = "none" if missing else value
        elif name in ("hip", "xpu") and not missing:
            reply[f"torch_{name}"] = value
    return reply


def memlock_limit() -> int | None:
    """Bytes this process may lock into RAM; None without a limit, and where the system has none."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


@dataclass(frozen=True)
class Sources:
    """Everything a probe asks, in one place.

    root:     where /proc, /sys and /usr/share/hwdata lie
    system, machine: as `platform` names them ("Linux", "Windows", "Darwin"; "x86_64", "AMD64", "arm64")
    ask:      runs one risky part in a child process: (part, seconds) -> Reply
    disk_usage: path -> (total, used, free) in bytes
    """

    root: Path = Path("/")
    system: str = field(default_factory=platform.system)
    machine: str = field(default_factory=platform.machine)
    release: str = field(default_factory=platform.release)
    python: str = field(default_factory=platform.python_version)
    counters: Callable[[], Counters] = system_counters
    affinity: Callable[[], frozenset[int] | None] = own_affinity
    ask: Callable[[str, float], Reply] = ask
    disk_usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage
    torch_build: Callable[[], dict[str, str]] = torch_build
    memlock: Callable[[], int | None] = memlock_limit
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def text(self, path: str) -> str:
        """A small file under the root, stripped; "" when it is not there or cannot be read."""
        return self.raw(path).decode("utf-8", "replace").strip()

    def raw(self, path: str) -> bytes:
        """The same as it is; empty when it is not there or cannot be read."""
        try:
            with (self.root / path).open("rb") as file:
                return file.read(4 << 20)
        except OSError:
            return b""

    def number(self, path: str) -> int | None:
        """The decimal number a file holds, or None."""
        try:
            return int(self.text(path))
        except ValueError:
            return None

    def entries(self, path: str) -> list[str]:
        """Sorted names in a folder; empty when there is none."""
        try:
            return sorted(entry.name for entry in (self.root / path).iterdir())
        except OSError:
            return []


def cpu_list(text: str) -> frozenset[int]:
    """Parses the kernel's list format: "0-3,8,10-11" -> {0, 1, 2, 3, 8, 10, 11}. Nonsense gives the empty set."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        try:
            low = int(first)
            high = int(last) if last else low
        except ValueError:
            continue
        # No machine has this many CPUs; a longer range is a broken file, not a list to build.
        if 0 <= low <= high < 1 << 16:
            cpus.update(range(low, high + 1))
    return frozenset(cpus)
