"""Memory nodes: which CPUs read which RAM without crossing between sockets."""

from __future__ import annotations

from typing import Any

from engine.hardware.memory import meminfo
from engine.hardware.sources import Sources, cpu_list


def read_numa(sources: Sources) -> list[dict[str, Any]]:
    """One {"node", "cpus", "total_bytes"} per node that has memory; empty where the system does not say."""
    folder = "sys/devices/system/node"
    nodes = []
    for name in sources.entries(folder):
        if name.startswith("node") and name[4:].isdigit():
            total = meminfo(sources.text(f"{folder}/{name}/meminfo")).get("MemTotal", 0)
            cpus = sorted(cpu_list(sources.text(f"{folder}/{name}/cpulist")))
            if total:
                nodes.append({"node": int(name[4:]), "cpus": cpus, "total_bytes": total})
    return sorted(nodes, key=lambda node: int(node["node"]))
