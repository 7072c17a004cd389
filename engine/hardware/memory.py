"""RAM this process can really have: the machine's, a container's limit, and what is free of it now."""

from __future__ import annotations

from engine.hardware.cgroup import memory_limit
from engine.hardware.child import Reply
from engine.hardware.report import MemoryReport
from engine.hardware.smbios import memory_modules
from engine.hardware.sources import Sources
from engine.words import say

GB = 1_000_000_000


#: Of a system that says everything in its files.
NOTHING_MORE = Reply({})


def read_memory(sources: Sources, system: Reply = NOTHING_MORE) -> tuple[MemoryReport, list[str]]:
    """The report without bandwidth, and what the user should know."""
    table = meminfo(sources.text("proc/meminfo"))
    if "MemTotal" in table:
        total = table["MemTotal"]
        # Kernels before 3.14 have no MemAvailable.
        fallback = table.get("MemFree", 0) + table.get("Cached", 0) + table.get("Buffers", 0)
        available = table.get("MemAvailable", fallback)
        swap_total, swap_free = table.get("SwapTotal", 0), table.get("SwapFree", 0)
    else:
        counters = sources.counters()
        total, available = counters.total_bytes, counters.available_bytes
        swap_total, swap_free = counters.swap_total_bytes, counters.swap_free_bytes
    warnings = []
    limit = memory_limit(sources) if sources.system == "Linux" else None
    bound = None
    if limit is not None and limit[0] < total:
        warnings.append(
            say(
                "This process may use {may:.1f} of the machine's {total:.1f} GB of RAM; raise the container's memory "
                "limit to use more.",
                may=limit[0] / GB,
                total=total / GB,
            )
        )
        bound = limit[0]
        total, available = limit[0], min(available, limit[1])
    # On Linux only the administrator reads this table.
    modules = memory_modules(sources.raw("sys/firmware/dmi/tables/DMI") or _hex(system.value.get("smbios")))
    report = MemoryReport(
        total_bytes=total,
        available_bytes=max(0, min(available, total)),
        swap_total_bytes=swap_total,
        swap_free_bytes=swap_free,
        limit_bytes=bound,
        kind=modules.kind,
        speed_mts=modules.speed_mts,
        channels=modules.channels,
        memlock_bytes=sources.memlock(),
    )
    return report, warnings


def _hex(text: object) -> bytes:
    try:
        return bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        return b""


def meminfo(text: str) -> dict[str, int]:
    """Lines such as "MemTotal:  16384 kB" (per node: "Node 0 MemTotal: ...") as bytes."""
    table = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields = value.split()
        if fields and fields[0].isdigit():
            table[key.split()[-1]] = int(fields[0]) * (1024 if fields[-1] == "kB" else 1)
    return table
