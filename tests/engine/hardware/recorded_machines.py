"""How a recorded machine is written down, and those that are more than a processor: containers, laptops, others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.hardware.child import Reply
from engine.hardware.sources import Counters, Sources

AVX512 = ["sse2", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"]
AMX = [*AVX512, "avx512bf16", "amx_tile", "amx_int8", "amx_bf16"]
AVX2 = ["sse2", "avx2", "fma", "f16c"]
GIB = 1 << 30


def native(brand: str, vendor: str, cpu: list[str], usable: list[str] | None = None, tier: str = "avx2") -> Reply:
    return Reply(
        {
            "vendor": vendor,
            "brand": brand,
            "cpu": cpu,
            "usable": cpu if usable is None else usable,
            "kernels": {"int4": tier, "int8": tier, "bf16": tier},
        }
    )


NO_NVIDIA = Reply({"gpus": [], "driver": "", "error": ""})


def nvidia(name: str, total: int, free: int, driver: str = "580.95.05") -> Reply:
    gpus = [{"name": name, "total": total, "free": free, "integrated": False}]
    return Reply({"gpus": gpus, "driver": driver, "error": ""})


@dataclass
class Machine:
    """files: path under the root -> text. replies: part -> Reply; a part that is not there must not be asked."""

    files: Mapping[str, str | bytes] = field(default_factory=dict)
    replies: Mapping[str, Reply] = field(default_factory=dict)
    affinity: frozenset[int] | None = None
    system: str = "Linux"
    machine: str = "x86_64"
    counters: Counters | None = None
    torch: Mapping[str, str] = field(default_factory=dict)
    memlock: int | None = 8 << 20
    environment: Mapping[str, str] = field(default_factory=dict)

    def sources(self, root: Path) -> Sources:
        for path, text in self.files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text if isinstance(text, bytes) else text.encode())

        def ask(part: str, timeout: float) -> Reply:
            assert timeout > 0
            return self.replies[part]

        def counters() -> Counters:
            assert self.counters is not None, "this machine's /proc says everything"
            return self.counters

        return Sources(
            root=root,
            system=self.system,
            machine=self.machine,
            release="6.1",
            python="3.12.1",
            counters=counters,
            affinity=lambda: self.affinity,
            ask=ask,
            disk_usage=lambda _: (1000, 400, 600),
            torch_build=lambda: dict(self.torch),
            memlock=lambda: self.memlock,
            environment=self.environment,
        )


def cpuinfo(name: str, vendor: str, flags: str, cpus: int) -> str:
    blocks = (
        f"processor\t: {cpu}\nvendor_id\t: {vendor}\nmodel name\t: {name}\nflags\t\t: {flags}\n" for cpu in range(cpus)
    )
    return "\n".join(blocks)


def topology(cores: int, threads_per_core: int = 2) -> dict[str, str]:
    """Linux numbers the second threads of all cores behind the first ones."""
    files = {"sys/devices/system/cpu/online": f"0-{cores * threads_per_core - 1}"}
    for cpu in range(cores * threads_per_core):
        siblings = ",".join(str(cpu % cores + cores * thread) for thread in range(threads_per_core))
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = siblings
    return files


def meminfo(total: int, available: int, swap: int = 0) -> str:
    return (
        f"MemTotal:       {total // 1024} kB\nMemFree:        1000 kB\nMemAvailable:   {available // 1024} kB\n"
        f"SwapTotal:      {swap // 1024} kB\nSwapFree:       {swap // 1024} kB\nHugePages_Total:       0\n"
    )


def smbios(modules: int, kind: int, speed: int, locator: str, bank: str) -> bytes:
    """A firmware table of `modules` filled memory slots and as many empty ones. {0} counts, {1} is a letter."""
    table = b""
    for index in range(2 * modules):
        # Empty slots stand between the filled ones: DIMM 0 of each channel is free.
        size = 16384 if index % 2 else 0
        fields = bytearray(0x28)
        fields[:4] = bytes([17, len(fields), index, 0])
        fields[0x0C:0x0E] = size.to_bytes(2, "little")
        fields[0x10:0x12] = b"\x01\x02"
        fields[0x12] = kind
        fields[0x15:0x17] = (speed + 400).to_bytes(2, "little")
        fields[0x20:0x22] = speed.to_bytes(2, "little")
        letter = chr(ord("A") + index // 2)
        words = [text.format(index, letter).encode() for text in (locator, bank)]
        table += bytes(fields) + b"\0".join(words) + b"\0\0"
    return table + bytes([127, 4, 0, 0]) + b"\0\0"


def dual_xeon() -> Machine:
    name = "Intel(R) Xeon(R) Gold 6454S"
    nodes = {}
    for node in range(2):
        folder = f"sys/devices/system/node/node{node}"
        nodes[f"{folder}/cpulist"] = f"{32 * node}-{32 * node + 31},{64 + 32 * node}-{64 + 32 * node + 31}"
        nodes[f"{folder}/meminfo"] = f"Node {node} MemTotal:       {256 * GIB // 1024} kB\nNode {node} MemFree: 5 kB"
    return Machine(
        files={
            "proc/cpuinfo": cpuinfo(name, "GenuineIntel", "sse2 avx2 avx512f amx_tile", 128),
            "proc/meminfo": meminfo(512 * GIB, 500 * GIB),
            **topology(64),
            **nodes,
        },
        replies={
            "native": native(name, "GenuineIntel", AMX, tier="avx512vnni"),
            "nvml": nvidia("NVIDIA GeForce RTX 4090 D", 24 * GIB, 23 * GIB),
        },
        affinity=frozenset(range(128)),
    )


def container() -> Machine:
    """4 of 64 CPUs by cpuset, 8 of 256 GB by memory.max; the group's path is not visible from inside."""
    name = "AMD EPYC 7543 32-Core Processor"
    return Machine(
        files={
            "proc/cpuinfo": cpuinfo(name, "AuthenticAMD", "sse2 avx2", 64),
            "proc/meminfo": meminfo(256 * GIB, 200 * GIB),
            "proc/self/cgroup": "0::/system.slice/docker-1234.scope\n",
            "sys/fs/cgroup/memory.max": str(8 * GIB),
            "sys/fs/cgroup/memory.current": str(3 * GIB),
            "sys/fs/cgroup/memory.stat": f"anon {2 * GIB}\ninactive_file {1 * GIB}\nactive_file 5\n",
            "sys/fs/cgroup/cpu.max": "max 100000",
            **topology(32),
        },
        replies={"native": native(name, "AuthenticAMD", AVX2), "nvml": NO_NVIDIA},
        affinity=frozenset([0, 1, 32, 33]),
    )


def laptop() -> Machine:
    """A hybrid CPU (6 P-cores with two threads, 8 E-cores) with its own graphics beside an NVIDIA GPU."""
    name = "13th Gen Intel(R) Core(TM) i7-13700H"
    files = {"sys/devices/system/cpu/online": "0-19", "sys/devices/cpu_core/cpus": "0-11"}
    for cpu in range(20):
        siblings = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}" if cpu < 12 else str(cpu)
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = siblings
    return Machine(
        files={
            "proc/cpuinfo": cpuinfo(name, "GenuineIntel", "sse2 avx2 avx_vnni", 20),
            "proc/meminfo": meminfo(32 * GIB, 20 * GIB, swap=2 * GIB),
            **files,
            "sys/class/drm/card0/device/vendor": "0x8086",
            "sys/class/drm/card0/device/device": "0xa7a0",
            "sys/class/drm/card0/device/uevent": "DRIVER=i915\nPCI_SLOT_NAME=0000:00:02.0\n",
            "sys/class/drm/card0-eDP-1/status": "connected",
            "sys/class/drm/card1/device/vendor": "0x10de",
            "sys/class/drm/card1/device/device": "0x28a0",
            "usr/share/hwdata/pci.ids": (
                "# comment\n10de  NVIDIA Corporation\n\ta7a0  Wrong vendor\n8086  Intel Corporation\n"
                "\ta7a0  Raptor Lake-P [Iris Xe Graphics]\n\t\t1028 0c4d  A subsystem\n"
            ),
        },
        replies={
            "native": native(name, "GenuineIntel", [*AVX2, "avxvnni"]),
            "nvml": nvidia("NVIDIA GeForce RTX 4060 Laptop GPU", 8 * GIB, 7 * GIB),
        },
        affinity=frozenset(range(20)),
    )


def old_desktop() -> Machine:
    """A CPU without AVX2 and an AMD card."""
    name = "Intel(R) Core(TM) i5-2500K CPU @ 3.30GHz"
    return Machine(
        files={
            "proc/cpuinfo": cpuinfo(name, "GenuineIntel", "sse2 avx", 4),
            "proc/meminfo": meminfo(16 * GIB, 12 * GIB),
            **topology(4, 1),
            "sys/class/drm/card0/device/vendor": "0x1002",
            "sys/class/drm/card0/device/device": "0x73bf",
            "sys/class/drm/card0/device/mem_info_vram_total": str(16 * GIB),
            "sys/class/drm/card0/device/mem_info_vram_used": str(1 * GIB),
            "sys/class/drm/card0/device/mem_info_vram_vendor": "samsung",
            "sys/class/drm/card0/device/uevent": "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n",
        },
        replies={"native": native(name, "GenuineIntel", ["sse2"], tier="portable"), "nvml": NO_NVIDIA},
        affinity=frozenset(range(4)),
    )


def apu() -> Machine:
    """Graphics inside the CPU that call 4 GB of the RAM their own; cgroup v1 limits both CPU time and memory."""
    name = "AMD Ryzen 7 7840U w/ Radeon 780M Graphics"
    return Machine(
        files={
            "proc/cpuinfo": cpuinfo(name, "AuthenticAMD", "sse2 avx2 avx512f avx512_vnni", 16),
            "proc/meminfo": meminfo(28 * GIB, 20 * GIB),
            "proc/self/cgroup": "4:memory:/job/7\n3:cpu,cpuacct:/job\n1:name=systemd:/\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str((1 << 63) - 4096),
            "sys/fs/cgroup/memory/job/7/memory.limit_in_bytes": str(16 * GIB),
            "sys/fs/cgroup/memory/job/7/memory.usage_in_bytes": str(2 * GIB),
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "350000",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000",
            **topology(8),
            "sys/class/drm/card1/device/vendor": "0x1002",
            "sys/class/drm/card1/device/device": "0x15bf",
            "sys/class/drm/card1/device/mem_info_vram_total": str(4 * GIB),
            "sys/class/drm/card1/device/mem_info_vram_used": "1000",
            "sys/class/drm/card1/device/mem_info_vram_vendor": "unknown",
        },
        replies={"native": native(name, "AuthenticAMD", AVX512, AVX2), "nvml": NO_NVIDIA},
        affinity=frozenset(range(16)),
    )


def windows() -> Machine:
    name = "AMD Ryzen 5 5600X 6-Core Processor"
    return Machine(
        replies={
            "native": native(name + "            ", "AuthenticAMD", AVX2),
            "nvml": nvidia("NVIDIA GeForce RTX 3060", 12 * GIB, 11 * GIB, "560.94"),
            "system": Reply(
                {
                    "performance_cores": 6,
                    "efficiency_cores": 0,
                    "sockets": 1,
                    "smt": True,
                    "caches": {"l1d": 6 * 32 << 10, "l2": 6 * 512 << 10, "l3": 32 << 20},
                    "smbios": smbios(2, 0x1A, 3600, "DIMM {0}", "P0 CHANNEL {1}").hex(),
                    "adapters": [
                        {
                            "name": "NVIDIA GeForce RTX 3060",
                            "device": "pci\\ven_10de&dev_2504&subsys_397e1462",
                            "total": 12 * GIB,
                            "driver": "32.0.15.6094",
                        },
                        {
                            "name": "AMD Radeon RX 6600",
                            "device": "pci\\ven_1002&dev_73ff&rev_c7",
                            "total": 8 * GIB,
                            "driver": "31.0.24033.1003",
                        },
                    ],
                }
            ),
        },
        affinity=frozenset(range(12)),
        system="Windows",
        machine="AMD64",
        counters=Counters(32 * GIB, 24 * GIB, 8 * GIB, 8 * GIB, logical_cores=12, physical_cores=6),
        torch={"torch": "2.13.0", "torch_cuda": "none"},
    )


def macbook() -> Machine:
    """The compiled module knows no name on arm64, so py-cpuinfo is asked."""
    return Machine(
        replies={
            "native": native("", "", [], tier="portable"),
            "nvml": NO_NVIDIA,
            "cpuinfo": Reply({"brand": "Apple M2 Pro", "vendor": "Apple"}),
            "system": Reply({"performance_cores": 6, "efficiency_cores": 4, "sockets": 1, "caches": {"l2": 32 << 20}}),
        },
        affinity=None,
        system="Darwin",
        machine="arm64",
        counters=Counters(16 * GIB, 9 * GIB, 0, 0, logical_cores=10, physical_cores=10),
    )


MACHINES = {make.__name__: make for make in (dual_xeon, container, laptop, old_desktop, apu, windows, macbook)}
