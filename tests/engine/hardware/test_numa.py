"""Placing threads on memory nodes, from recorded topologies."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_machines import Machine

from engine.hardware.numa import ThreadPlaces, place_threads

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


def machine(
    nodes: dict[int, str],
    allowed: frozenset[int],
    *,
    online: str = "",
    mems: str = "",
    empty: tuple[int, ...] = (),
    siblings: dict[int, str] | None = None,
) -> Machine:
    """nodes: number -> cpulist; empty: nodes without memory."""
    files = {f"{NODE}/node{n}/cpulist": cpus for n, cpus in nodes.items()}
    for n in nodes:
        kilobytes = 0 if n in empty else 64 << 20
        files[f"{NODE}/node{n}/meminfo"] = f"Node {n} MemTotal: {kilobytes} kB\n"
    if online:
        files[f"{CPU}/online"] = online
    if mems:
        files["proc/self/status"] = f"Name:\tpython\nMems_allowed_list:\t{mems}\n"
    for cpu, text in (siblings or {}).items():
        files[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"] = text
    return Machine(files=files, affinity=allowed)


def everything(count: int) -> frozenset[int]:
    return frozenset(range(count))


def places(tmp_path: Path, threads: int, recorded: Machine) -> ThreadPlaces:
    return place_threads(threads, recorded.sources(tmp_path))


@pytest.mark.parametrize(
    "recorded",
    [
        Machine(affinity=everything(2)),
        machine({0: "0-7"}, everything(8)),
        machine({0: "0-3", 1: "4-7"}, everything(8), empty=(1,)),
        machine({0: "0-3", 1: "4-7"}, frozenset(range(4))),
        machine({0: "0-3", 1: "4-7"}, everything(8), mems="0"),
        machine({0: "0-3", 1: "4-7"}, everything(8), online="0-3"),
        machine({0: "nonsense", 1: ""}, everything(8)),
    ],
    ids=["unknown", "one node", "no memory", "affinity", "cpuset memory", "offline", "nonsense"],
)
def test_plain_where_only_one_node_is_ours(tmp_path: Path, recorded: Machine) -> None:
    found = places(tmp_path, 4, recorded)
    assert (found.cpus, found.nodes, found.memory) == ((), (), ())
    assert found.why == "one memory node"


def test_two_sockets_take_turns_and_leave_siblings_last(tmp_path: Path) -> None:
    siblings = {cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}
    recorded = machine({0: "0-1,4-5", 1: "2-3,6-7"}, everything(8), siblings=siblings)
    found = places(tmp_path, 4, recorded)
    assert found.cpus == (0, 2, 1, 3)
    assert found.nodes == (0, 1, 0, 1)
    assert found.memory == (0, 1)
    assert found.node_cpus == ((0, 1, 4, 5), (2, 3, 6, 7))
    assert "2 memory nodes" in found.why
    assert places(tmp_path, 6, recorded).cpus == (0, 2, 1, 3, 4, 6)


def test_sub_numa_clusters_with_gaps_in_their_numbers(tmp_path: Path) -> None:
    recorded = machine({0: "0-3", 2: "4-7", 5: "8-11", 7: "12-15"}, everything(16))
    found = places(tmp_path, 8, recorded)
    assert found.memory == (0, 2, 5, 7)
    assert found.nodes == (0, 1, 2, 3) * 2
    assert found.cpus == (0, 4, 8, 12, 1, 5, 9, 13)


def test_offline_cpus_and_a_container_leave_nodes_of_unequal_size(tmp_path: Path) -> None:
    recorded = machine({0: "0-7", 1: "8-15"}, frozenset({1, 2, 8, 9, 10, 11}), online="0-1,3-10", mems="0-1")
    found = places(tmp_path, 4, recorded)
    # CPU 2 and 11 are offline, so node 0 has one CPU left and node 1 three.
    assert found.cpus == (1, 8, 9, 10)
    assert found.nodes == (0, 1, 1, 1)


def test_fewer_threads_than_nodes_use_the_largest_nodes(tmp_path: Path) -> None:
    recorded = machine({0: "0", 1: "1-4", 2: "5-8", 3: "9"}, everything(10))
    found = places(tmp_path, 2, recorded)
    assert found.memory == (1, 2)
    assert found.cpus == (1, 5)
    assert "one of 4" in places(tmp_path, 1, recorded).why


def test_more_threads_than_cpus_are_not_pinned(tmp_path: Path) -> None:
    found = places(tmp_path, 5, machine({0: "0-1", 1: "2-3"}, everything(4)))
    assert found.cpus == ()
    assert "5 threads for 4 CPUs" in found.why
