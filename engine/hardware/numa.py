"""Memory nodes: which CPUs read which RAM without crossing between sockets, and which threads go where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.hardware.memory import meminfo
from engine.hardware.sources import Sources, cpu_list

_NODES = "sys/devices/system/node"
_CPUS = "sys/devices/system/cpu"


def read_numa(sources: Sources) -> list[dict[str, Any]]:
    """One {"node", "cpus", "total_bytes"} per node that has memory; empty where the system does not say."""
    nodes = []
    for name in sources.entries(_NODES):
        if name.startswith("node") and name[4:].isdigit():
            total = meminfo(sources.text(f"{_NODES}/{name}/meminfo")).get("MemTotal", 0)
            cpus = sorted(cpu_list(sources.text(f"{_NODES}/{name}/cpulist")))
            if total:
                nodes.append({"node": int(name[4:]), "cpus": cpus, "total_bytes": total})
    return sorted(nodes, key=lambda node: int(node["node"]))


@dataclass(frozen=True)
class ThreadPlaces:
    """Where the threads of one pool run and which memory each reads.

    cpus:     one core per thread, or empty: they are left to the system
    nodes:    the memory node of each thread as an index into memory; empty with one node
    memory:   the system's numbers of the nodes that share the weights; empty with one node
    node_cpus: the CPUs of each node in memory that this process may use
    why:      one line for the status
    """

    cpus: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    memory: tuple[int, ...] = ()
    node_cpus: tuple[tuple[int, ...], ...] = ()
    why: str = "one memory node"


def place_threads(threads: int, sources: Sources) -> ThreadPlaces:
    """Spread threads over the memory nodes this process may use, physical cores first.

    Everything the system does not say, or a container does not allow, leads to the plain places: no pinning, one node.
    A pool smaller than the number of nodes uses as many nodes as it has threads, the largest first.
    """
    allowed = sources.affinity() or frozenset()
    online = cpu_list(sources.text(f"{_CPUS}/online")) or allowed
    memory_allowed = _allowed_memory(sources)
    homes: dict[int, list[int]] = {}
    for node in read_numa(sources):
        if memory_allowed and node["node"] not in memory_allowed:
            continue
        cpus = [cpu for cpu in node["cpus"] if cpu in allowed and cpu in online]
        if cpus:
            homes[node["node"]] = _cores_first(sources, cpus)
    if len(homes) < 2:
        return ThreadPlaces()
    chosen = sorted(sorted(homes, key=lambda node: -len(homes[node]))[:threads])
    if len(chosen) < 2:
        return ThreadPlaces(why=f"one thread, so one of {len(homes)} memory nodes")
    usable = sum(len(homes[node]) for node in chosen)
    if threads > usable:
        return ThreadPlaces(why=f"{len(homes)} memory nodes not used apart: {threads} threads for {usable} CPUs")
    places = _deal(threads, [homes[node] for node in chosen])
    return ThreadPlaces(
        cpus=tuple(cpu for cpu, _ in places),
        nodes=tuple(index for _, index in places),
        memory=tuple(chosen),
        node_cpus=tuple(tuple(sorted(homes[node])) for node in chosen),
        why=f"{len(chosen)} memory nodes, each with its share of every expert and of the threads",
    )


def _deal(threads: int, homes: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """(CPU, index of its node) per thread, round the nodes until each runs out of CPUs."""
    places: list[tuple[int, int]] = []
    turn = 0
    while len(places) < threads:
        places += [(cpus[turn], index) for index, cpus in enumerate(homes) if turn < len(cpus)]
        turn += 1
    return places[:threads]


def _cores_first(sources: Sources, cpus: Sequence[int]) -> list[int]:
    """One CPU of every physical core, then their siblings."""
    seen: set[str] = set()
    first: list[int] = []
    second: list[int] = []
    for cpu in cpus:
        core = sources.text(f"{_CPUS}/cpu{cpu}/topology/thread_siblings_list") or str(cpu)
        (second if core in seen else first).append(cpu)
        seen.add(core)
    return first + second


def _allowed_memory(sources: Sources) -> frozenset[int]:
    """Nodes a container's cpuset lets this process take memory from; empty where the system does not say."""
    for line in sources.text("proc/self/status").splitlines():
        if line.startswith("Mems_allowed_list:"):
            return cpu_list(line.partition(":")[2])
    return frozenset()
