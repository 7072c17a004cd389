"""What macOS says about cores and caches. Runs in the probe's child process."""

from __future__ import annotations

import subprocess
from typing import Any

_NAMES = (
    "hw.perflevel0.physicalcpu",
    "hw.perflevel1.physicalcpu",
    "hw.packages",
    "hw.perflevel0.l2cachesize",
    "hw.l3cachesize",
)


def facts() -> dict[str, Any]:
    text = subprocess.run(
        ["/usr/sbin/sysctl", *_NAMES], capture_output=True, text=True, check=False, timeout=5, errors="replace"
    ).stdout
    return processor_facts(text)


def processor_facts(text: str) -> dict[str, Any]:
    """From sysctl's lines "name: number"; names that this Mac does not know are not in them."""
    said = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if value.strip().isdigit():
            said[name.strip()] = int(value)
    known: dict[str, Any] = {"sockets": said.get("hw.packages", 0)}
    if fast := said.get("hw.perflevel0.physicalcpu"):
        known |= {"performance_cores": fast, "efficiency_cores": said.get("hw.perflevel1.physicalcpu", 0)}
    caches = {"l2": said.get("hw.perflevel0.l2cachesize", 0), "l3": said.get("hw.l3cachesize", 0)}
    return known | {"caches": {name: size for name, size in caches.items() if size}}
