"""The processor: name, cores this process may use, instruction sets, kernels."""

from __future__ import annotations

from engine.hardware.cgroup import cpu_quota
from engine.hardware.child import Reply
from engine.hardware.generations import BEFORE_AVX2, generation
from engine.hardware.report import CpuReport, Isa, Kernels
from engine.hardware.sources import Sources, cpu_list
from engine.words import say

#: Short name -> the flag in /proc/cpuinfo.
LINUX_FLAGS = {
    "sse2": "sse2",
    "avx2": "avx2",
    "fma": "fma",
    "f16c": "f16c",
    "avxvnni": "avx_vnni",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512vl": "avx512vl",
    "avx512dq": "avx512dq",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "amx_tile": "amx_tile",
    "amx_int8": "amx_int8",
    "amx_bf16": "amx_bf16",
}
X86 = ("x86_64", "amd64", "i386", "i686", "x86")


def read_cpu(sources: Sources, native: Reply, system: Reply, timeout: float) -> tuple[CpuReport, list[str]]:
    """The report and what the user should know about it.

    native, system: the answers of the compiled module and, outside Linux, of the system's own calls
    """
    warnings = []
    table = _cpuinfo_table(sources)
    first = table[0] if table else {}
    said = native.value
    name = first.get("model name") or str(said.get("brand", "")) or first.get("Model", "")
    vendor = first.get("vendor_id") or str(said.get("vendor", ""))
    if not name:
        slow = sources.ask("cpuinfo", timeout)
        name = str(slow.value.get("brand", ""))
        vendor = vendor or str(slow.value.get("vendor", ""))
        if slow.failure:
            warnings.append(
                say(
                    "The CPU's name could not be read: {why}; calibrate, since its speed cannot be looked up.",
                    why=slow.failure,
                )
            )
    made = generation(
        vendor,
        _number(first, "cpu family") or int(said.get("family", 0)),
        _number(first, "model") or int(said.get("model", 0)),
        _number(first, "stepping"),
    )

    isa = Isa(cpu=list(said.get("cpu", [])), usable=list(said.get("usable", [])))
    kernels = Kernels(**said["kernels"]) if "kernels" in said else Kernels("none", "none", "none")
    if native.failure:
        warnings.append(
            say(
                "The compiled kernels could not be asked what this CPU can do: {why}; run the set-up again.",
                why=native.failure,
            )
        )
    elif "missing" in said:
        warnings.append(
            say(
                "The compiled kernels are not installed, so no model can run: {why}; run the set-up again.",
                why=said["missing"],
            )
        )
    flags = first.get("flags", "").split()
    if "cpu" not in said:
        known = [short for short, flag in LINUX_FLAGS.items() if flag in flags]
        isa = Isa(cpu=known, usable=list(known))
    virtual = "hypervisor" in flags
    warnings += _isa_warnings(sources, isa, made, virtual=virtual)

    cores = _core_of_cpu(sources, table)
    counters = sources.counters() if not cores else None
    logical = len(cores) or (counters.logical_cores if counters else 0) or 1
    physical = len(set(cores.values())) or (counters.physical_cores if counters else 0) or logical
    allowed = sources.affinity()
    if allowed and cores:
        allowed &= frozenset(cores)
    usable = len(allowed) if allowed else logical
    quota = cpu_quota(sources) if sources.system == "Linux" else None
    if quota is not None:
        # Threads beyond the quota do not run longer, they are stopped in mid-step.
        usable = max(1, min(usable, int(quota)))
    if usable < logical:
        warnings.append(
            say(
                "This process may use {usable} of {logical} logical CPUs (container limit or affinity mask); raise the "
                "limit to use more.",
                usable=usable,
                logical=logical,
            )
        )
    fast, slow_cores = _kinds_of_cores(sources, cores, allowed)
    if not cores:
        fast, slow_cores = (int(system.value.get(kind, 0)) for kind in ("performance_cores", "efficiency_cores"))
    smt = logical > physical if cores else system.value.get("smt", logical > physical if counters else None)
    report = CpuReport(
        name=" ".join(name.split()) or say("unknown CPU"),
        vendor=vendor,
        physical_cores=physical,
        logical_cores=logical,
        usable_cores=usable,
        isa=isa,
        kernels=kernels,
        performance_cores=max(1, min(fast or min(physical, usable), usable)),
        efficiency_cores=min(slow_cores, usable),
        generation=made,
        sockets=_sockets(sources, table) or int(system.value.get("sockets", 0)),
        smt=smt,
        caches=_caches(sources, cores) or dict(system.value.get("caches", {})),
        virtual=virtual,
    )
    return report, warnings


def _isa_warnings(sources: Sources, isa: Isa, made: str, *, virtual: bool) -> list[str]:
    if sources.machine.lower() not in X86:
        return []
    if "avx2" not in isa.usable and (isa.usable or isa.cpu):
        what = say("AVX2 is missing, or switched off in the BIOS or VM: models run on the slow portable kernels")
        if virtual:
            return [
                say('{what}. Give the virtual machine the host\'s CPU type (for example "host" in QEMU).', what=what)
            ]
        if made in BEFORE_AVX2:
            return [
                say("{what}. {made} CPUs have none: choose the smallest models, or a newer PC.", what=what, made=made)
            ]
        return [
            say(
                "{what}. Switch AVX on in the BIOS; Intel CPUs from before 2013 and AMD's from before 2015 have none.",
                what=what,
            )
        ]
    blocked = [name for name in isa.cpu if name not in isa.usable]
    if blocked:
        remedy = say("update the system (AMX needs Linux 5.16 or Windows 11)")
        if any(not name.startswith("amx") for name in blocked):
            remedy = say("update the system, or let the virtual machine have it")
        return [
            say(
                "The operating system does not let programs use {names}, though the CPU has it; {remedy}.",
                names=", ".join(blocked),
                remedy=remedy,
            )
        ]
    return []


def _number(row: dict[str, str], key: str) -> int:
    return int(row[key]) if row.get(key, "").isdigit() else 0


def _sockets(sources: Sources, table: list[dict[str, str]]) -> int:
    folder = "sys/devices/system/cpu"
    online = cpu_list(sources.text(f"{folder}/online"))
    packages = {sources.text(f"{folder}/cpu{cpu}/topology/physical_package_id") for cpu in online}
    return len(packages - {""}) or len({row["physical id"] for row in table if "physical id" in row})


def _caches(sources: Sources, cores: dict[int, str]) -> dict[str, int]:
    """Bytes per level: each cache counted once, though several CPUs share it."""
    found: dict[tuple[str, str], int] = {}
    for cpu in cores:
        folder = f"sys/devices/system/cpu/cpu{cpu}/cache"
        for index in sources.entries(folder):
            level, kind = (sources.text(f"{folder}/{index}/{what}") for what in ("level", "type"))
            size = sources.text(f"{folder}/{index}/size")
            if kind == "Instruction" or not size[:-1].isdigit() or size[-1] not in "KM":
                continue
            name = "l1d" if level == "1" else f"l{level}"
            shared = sources.text(f"{folder}/{index}/shared_cpu_list") or str(cpu)
            found[name, shared] = int(size[:-1]) << (10 if size[-1] == "K" else 20)
    sizes: dict[str, int] = {}
    for (name, _), nbytes in sorted(found.items()):
        sizes[name] = sizes.get(name, 0) + nbytes
    return sizes


def _cpuinfo_table(sources: Sources) -> list[dict[str, str]]:
    """/proc/cpuinfo: one dict per logical CPU."""
    table = []
    for block in sources.text("proc/cpuinfo").split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        row = {key.strip(): value.strip() for key, _, value in pairs if key.strip()}
        if row:
            table.append(row)
    return table


def _core_of_cpu(sources: Sources, table: list[dict[str, str]]) -> dict[int, str]:
    """Logical CPU -> a name for its physical core. Empty when the system does not say."""
    folder = "sys/devices/system/cpu"
    online = cpu_list(sources.text(f"{folder}/online"))
    cores = {}
    for cpu in sorted(online):
        siblings = sources.text(f"{folder}/cpu{cpu}/topology/thread_siblings_list")
        if siblings:
            cores[cpu] = siblings
    if cores:
        return cores
    for row in table:
        if row.get("processor", "").isdigit():
            cpu = int(row["processor"])
            cores[cpu] = f"{row.get('physical id', '')}:{row.get('core id', cpu)}"
    return cores


def _kinds_of_cores(sources: Sources, cores: dict[int, str], allowed: frozenset[int] | None) -> tuple[int, int]:
    """Physical (performance, efficiency) cores this process may use; (0, 0) when unknown.

    Linux lists the P-cores of a hybrid Intel CPU in its own event source, cpu_core. Elsewhere it states each core's
    capacity where they differ.
    """
    fast = cpu_list(sources.text("sys/devices/cpu_core/cpus"))
    chosen = [cpu for cpu in cores if not allowed or cpu in allowed]
    if not fast:
        capacity = {cpu: sources.number(f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity") or 0 for cpu in chosen}
        most = max(capacity.values(), default=0)
        fast = frozenset(cpu for cpu, found in capacity.items() if 4 * found >= 3 * most)
    every = {cores[cpu] for cpu in chosen}
    performance = {cores[cpu] for cpu in chosen if cpu in fast} or every
    return len(performance), len(every - performance)
