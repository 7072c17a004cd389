"""The processor: name, cores this process may use, instruction sets, kernels."""

from __future__ import annotations

from engine.hardware.cgroup import cpu_quota
from engine.hardware.child import Reply
from engine.hardware.report import CpuReport, Isa, Kernels
from engine.hardware.sources import Sources, cpu_list

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


def read_cpu(sources: Sources, native: Reply, timeout: float) -> tuple[CpuReport, list[str]]:
    """The report and what the user should know about it. `native` is the answer of the compiled module."""
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
            warnings.append(f"The CPU's name could not be read: {slow.failure}.")

    isa = Isa(cpu=list(said.get("cpu", [])), usable=list(said.get("usable", [])))
    kernels = Kernels(**said["kernels"]) if "kernels" in said else Kernels("none", "none", "none")
    if native.failure:
        warnings.append(f"The compiled kernels could not be asked what this CPU can do: {native.failure}.")
    elif "missing" in said:
        warnings.append(f"The compiled kernels are not installed, so no model can run: {said['missing']}.")
    if "cpu" not in said:
        flags = first.get("flags", "").split()
        known = [short for short, flag in LINUX_FLAGS.items() if flag in flags]
        isa = Isa(cpu=known, usable=list(known))
    warnings += _isa_warnings(sources, isa)

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
        warnings.append(f"This process may use {usable} of {logical} logical CPUs (container limit or affinity mask).")
    performance = _performance_cores(sources, cores, allowed) or min(physical, usable)
    report = CpuReport(
        name=" ".join(name.split()) or "unknown CPU",
        vendor=vendor,
        physical_cores=physical,
        logical_cores=logical,
        usable_cores=usable,
        isa=isa,
        kernels=kernels,
        performance_cores=max(1, min(performance, usable)),
    )
    return report, warnings


def _isa_warnings(sources: Sources, isa: Isa) -> list[str]:
    if sources.machine.lower() not in X86:
        return []
    if "avx2" not in isa.usable and (isa.usable or isa.cpu):
        return ["AVX2 is missing, or switched off in the BIOS or VM: models run on the slow portable kernels."]
    blocked = [name for name in isa.cpu if name not in isa.usable]
    if blocked:
        return [f"The operating system does not let programs use {', '.join(blocked)}, though the CPU has it."]
    return []


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


def _performance_cores(sources: Sources, cores: dict[int, str], allowed: frozenset[int] | None) -> int:
    """Physical cores this process may use, efficiency cores left out; 0 when unknown.

    Linux lists the P-cores of a hybrid Intel CPU in its own event source, cpu_core.
    """
    fast = cpu_list(sources.text("sys/devices/cpu_core/cpus"))
    chosen = [cpu for cpu in cores if not allowed or cpu in allowed]
    return len({cores[cpu] for cpu in chosen if cpu in fast} or {cores[cpu] for cpu in chosen})
