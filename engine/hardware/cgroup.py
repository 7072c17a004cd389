"""Limits a container or service puts on this process (Linux control groups, v1 and v2)."""

from __future__ import annotations

from pathlib import PurePosixPath

from engine.hardware.sources import Sources

#: v1 writes "no limit" as the largest page-aligned number it can.
UNLIMITED = 1 << 60


def _folders(sources: Sources, controller: str) -> list[str]:
    """Folders whose limits bind this process, its own first, then each parent up to the mount.

    The path in /proc/self/cgroup may not exist below the mount (Docker mounts the own group as the root),
    so every parent is a candidate and missing files are simply skipped.
    """
    mount, group = "sys/fs/cgroup", ""
    v1 = False
    for line in sources.text("proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            mount, group, v1 = f"sys/fs/cgroup/{controller}", path, True
            if not sources.entries(mount) and sources.entries(f"sys/fs/cgroup/{controllers}"):
                mount = f"sys/fs/cgroup/{controllers}"
        elif number == "0" and not controllers and not v1:
            group = path
    parts = [part for part in PurePosixPath(group).parts if part not in ("/", "..", ".")]
    return ["/".join([mount, *parts[:depth]]) for depth in range(len(parts), -1, -1)]


def memory_limit(sources: Sources) -> tuple[int, int] | None:
    """(limit, free below it) in bytes over all groups that hold this process, or None when nothing limits this process.

    Page cache of inactive files counts as free: the kernel drops it before it kills anyone.
    """
    limits, free = [], []
    for folder in _folders(sources, "memory"):
        limit = sources.number(f"{folder}/memory.max")
        used = sources.number(f"{folder}/memory.current")
        if limit is None:
            limit = sources.number(f"{folder}/memory.limit_in_bytes")
            used = sources.number(f"{folder}/memory.usage_in_bytes")
        if limit is None or limit >= UNLIMITED:
            continue
        cache = 0
        for line in sources.text(f"{folder}/memory.stat").splitlines():
            key, _, value = line.partition(" ")
            if key in ("inactive_file", "total_inactive_file") and value.strip().isdigit():
                cache = max(cache, int(value))
        limits.append(limit)
        free.append(max(0, limit - max(0, (used or 0) - cache)))
    return (min(limits), min(free)) if limits else None


def cpu_quota(sources: Sources) -> float | None:
    """CPUs' worth of time this process may use, e.g. 1.5; None without a quota."""
    quotas = []
    for folder in _folders(sources, "cpu"):
        fields = sources.text(f"{folder}/cpu.max").split()
        if len(fields) == 2 and all(field.isdigit() for field in fields) and int(fields[1]) > 0:
            quotas.append(int(fields[0]) / int(fields[1]))
        quota = sources.number(f"{folder}/cpu.cfs_quota_us")
        period = sources.number(f"{folder}/cpu.cfs_period_us")
        if quota is not None and quota > 0 and period:
            quotas.append(quota / period)
    return min(quotas, default=None)
