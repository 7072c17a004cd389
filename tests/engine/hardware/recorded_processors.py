"""Recorded PCs and servers by generation: CPUID's numbers, the flags that matter, caches, nodes, disks, cards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from recorded_machines import AMX, AVX2, AVX512, GIB, MACHINES, NO_NVIDIA, Machine, meminfo, smbios

from engine.hardware.child import Reply

OLD_FLAGS = "fpu sse sse2 ssse3 sse4_1 sse4_2 popcnt aes xsave avx"
AVX2_FLAGS = f"{OLD_FLAGS} f16c fma bmi1 avx2 bmi2"
AVX512_FLAGS = f"{AVX2_FLAGS} avx512f avx512dq avx512bw avx512vl avx512_vnni"
AMX_FLAGS = f"{AVX512_FLAGS} avx_vnni avx512_bf16 amx_bf16 amx_tile amx_int8"
SSD = "36 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"


@dataclass(frozen=True)
class Processor:
    """numbers: family, model, stepping. caches: KiB of a core's L1d and L2, and of the L3 that `l3_cores` share."""

    name: str
    vendor: str
    numbers: tuple[int, int, int]
    flags: str
    cores: int
    threads: int = 2
    sockets: int = 1
    caches: tuple[int, int, int] = (32, 256, 8192)
    l3_cores: int = 0
    nodes: int = 1

    def files(self, ram: int) -> dict[str, str]:
        """Linux numbers the cores of all sockets first, then their second threads."""
        total = self.cores * self.sockets
        family, model, stepping = self.numbers
        cpus = range(total * self.threads)
        blocks = (
            f"processor\t: {cpu}\nvendor_id\t: {self.vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
            f"model name\t: {self.name}\nstepping\t: {stepping}\nphysical id\t: {cpu % total // self.cores}\n"
            f"flags\t\t: {self.flags}\n"
            for cpu in cpus
        )
        files = {"proc/cpuinfo": "\n".join(blocks), "sys/devices/system/cpu/online": f"0-{len(cpus) - 1}"}
        for cpu in cpus:
            core = cpu % total
            folder = f"sys/devices/system/cpu/cpu{cpu}"
            siblings = self._shared([core])
            files[f"{folder}/topology/thread_siblings_list"] = siblings
            files[f"{folder}/topology/physical_package_id"] = str(core // self.cores)
            group = self.l3_cores or self.cores
            around = self._shared(range(core // group * group, (core // group + 1) * group))
            levels = (("1", "Data", siblings), ("1", "Instruction", siblings), ("2", "Unified", siblings))
            sizes = (self.caches[0], self.caches[0], *self.caches[1:])
            for index, ((level, kind, shared), size) in enumerate(
                zip((*levels, ("3", "Unified", around)), sizes, strict=True)
            ):
                cache = f"{folder}/cache/index{index}"
                files |= {f"{cache}/level": level, f"{cache}/type": kind, f"{cache}/shared_cpu_list": shared}
                files[f"{cache}/size"] = f"{size}K"
        for node in range(self.nodes):
            each = total // self.nodes
            folder = f"sys/devices/system/node/node{node}"
            files[f"{folder}/cpulist"] = self._shared(range(node * each, (node + 1) * each))
            files[f"{folder}/meminfo"] = f"Node {node} MemTotal:       {ram // self.nodes // 1024} kB"
        return files

    def _shared(self, cores: Sequence[int]) -> str:
        total = self.cores * self.sockets
        runs = ((cores[0] + total * thread, cores[-1] + total * thread) for thread in range(self.threads))
        return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


@dataclass(frozen=True)
class Recorded:
    processor: Processor
    ram: int
    isa: Sequence[str]
    tier: str
    bf16: str
    usable: Sequence[str] | None = None
    nvml: Reply = NO_NVIDIA
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    torch: Mapping[str, str] = field(default_factory=dict)
    display: Mapping[str, str] = field(default_factory=dict)
    replies: Mapping[str, Reply] = field(default_factory=dict)

    def machine(self) -> Machine:
        processor = self.processor
        family, model, _ = processor.numbers
        native = {
            "vendor": processor.vendor,
            "brand": processor.name,
            "family": family,
            "model": model,
            "cpu": list(self.isa),
            "usable": list(self.isa if self.usable is None else self.usable),
            "kernels": {"int4": self.tier, "int8": self.tier, "bf16": self.bf16},
        }
        cpus = processor.cores * processor.sockets * processor.threads
        return Machine(
            files={
                "proc/meminfo": meminfo(self.ram, self.ram * 7 // 8),
                "proc/self/mountinfo": SSD,
                "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.1 LTS"\n',
                **processor.files(self.ram),
                **self.files,
            },
            replies={"native": Reply(native), "nvml": self.nvml, **self.replies},
            affinity=frozenset(range(cpus)),
            torch=self.torch,
            environment=self.display,
        )


def card(name: str, gib: int, capability: str, link: tuple[int, int], driver: str = "580.95.05") -> Reply:
    generation, width = link
    gpu = {
        "name": name,
        "total": gib * GIB,
        "free": gib * GIB - 900_000_000,
        "integrated": False,
        "pcie_generation": generation,
        "pcie_width": width,
        "compute_capability": capability,
        "drives_display": True,
    }
    return Reply({"gpus": [gpu], "driver": driver, "error": ""})


INTEL, AMD = "GenuineIntel", "AuthenticAMD"
ZEN4_ISA = [*AVX512, "avx512bf16"]
CUDA = {"torch": "2.13.0", "torch_cuda": "13.0"}

RECORDED = {
    "sandy_bridge": Recorded(
        Processor("Intel(R) Core(TM) i7-2600K CPU @ 3.40GHz", INTEL, (6, 42, 7), OLD_FLAGS, 4),
        8 * GIB,
        ["sse2"],
        "portable",
        "portable",
        nvml=card("NVIDIA GeForce GTX 970", 4, "5.2", (2, 16)),
        torch=CUDA,
        display={"DISPLAY": ":0"},
        files={
            "proc/self/mountinfo": "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n25 21 8:17 / /data rw - xfs /dev/sdb1 rw\n",
            "sys/dev/block/8:1/queue/rotational": "1",
            "sys/class/block/sdb1/queue/rotational": "0",
        },
    ),
    "haswell_home": Recorded(
        Processor("Intel(R) Core(TM) i7-4770 CPU @ 3.40GHz", INTEL, (6, 60, 3), AVX2_FLAGS, 4),
        16 * GIB,
        AVX2,
        "avx2",
        "avx2",
        nvml=card("NVIDIA GeForce GTX 1660", 6, "7.5", (3, 16), "470.256.02"),
        torch=CUDA,
        display={"DISPLAY": ":0"},
    ),
    "zen2": Recorded(
        Processor(
            "AMD Ryzen 7 3700X 8-Core Processor", AMD, (23, 113, 0), AVX2_FLAGS, 8, caches=(32, 512, 16384), l3_cores=4
        ),
        32 * GIB,
        AVX2,
        "avx2",
        "avx2",
        nvml=card("NVIDIA GeForce RTX 2070 SUPER", 8, "7.5", (3, 16)),
        torch=CUDA,
        display={"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"},
    ),
    "zen3": Recorded(
        Processor(
            "AMD Ryzen 9 5950X 16-Core Processor", AMD, (25, 33, 0), AVX2_FLAGS, 16, caches=(32, 512, 32768), l3_cores=8
        ),
        64 * GIB,
        AVX2,
        "avx2",
        "avx2",
        # The administrator may read the firmware's table.
        files={
            "sys/firmware/dmi/tables/DMI": smbios(2, 0x1A, 3600, "DIMM 1", "P0 CHANNEL {1}"),
            "sys/class/drm/card1/device/vendor": "0x1002",
            "sys/class/drm/card1/device/device": "0x744c",
            "sys/class/drm/card1/device/mem_info_vram_total": str(24 * GIB),
            "sys/class/drm/card1/device/mem_info_vram_used": str(2 * GIB),
            "sys/class/drm/card1/device/mem_info_vram_vendor": "samsung",
            "sys/class/drm/card1/device/max_link_speed": "16.0 GT/s PCIe",
            "sys/class/drm/card1/device/current_link_width": "16",
            "sys/class/drm/card1/device/uevent": "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:0b:00.0\n",
            "sys/class/drm/card1-DP-1/status": "connected",
            "sys/class/drm/card1-HDMI-A-1/status": "disconnected",
        },
        torch={"torch": "2.13.0", "torch_cuda": "none", "torch_hip": "7.0"},
        display={"WAYLAND_DISPLAY": "wayland-0"},
    ),
    "zen4": Recorded(
        Processor(
            "AMD Ryzen 7 7700X 8-Core Processor",
            AMD,
            (25, 97, 2),
            f"{AVX512_FLAGS} avx512_bf16",
            8,
            caches=(32, 1024, 32768),
        ),
        64 * GIB,
        ZEN4_ISA,
        "avx512vnni",
        "avx512bf16",
        nvml=card("NVIDIA GeForce RTX 4070", 12, "8.9", (4, 16)),
        torch=CUDA,
        display={"DISPLAY": ":0"},
    ),
    "zen5": Recorded(
        Processor(
            "AMD Ryzen 9 9950X 16-Core Processor",
            AMD,
            (26, 68, 0),
            f"{AVX512_FLAGS} avx_vnni avx512_bf16",
            16,
            caches=(48, 1024, 32768),
            l3_cores=8,
        ),
        192 * GIB,
        [*ZEN4_ISA, "avxvnni"],
        "avx512vnni",
        "avx512bf16",
        nvml=card("NVIDIA GeForce RTX 5090", 32, "12.0", (5, 16)),
        torch=CUDA,
        display={"WAYLAND_DISPLAY": "wayland-0"},
    ),
    "alder_lake": Recorded(
        Processor(
            "12th Gen Intel(R) Core(TM) i9-12900K",
            INTEL,
            (6, 151, 2),
            f"{AVX2_FLAGS} avx_vnni",
            16,
            1,
            caches=(48, 1280, 30720),
        ),
        32 * GIB,
        [*AVX2, "avxvnni"],
        "avxvnni",
        "avx2",
        # Eight P-cores, their second threads off; eight E-cores.
        files={"sys/devices/cpu_core/cpus": "0-7", "sys/devices/cpu_atom/cpus": "8-15"},
        display={"DISPLAY": ":0"},
    ),
    "ice_lake_sp": Recorded(
        Processor(
            "Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz",
            INTEL,
            (6, 106, 6),
            AVX512_FLAGS,
            40,
            caches=(48, 1280, 61440),
        ),
        512 * GIB,
        AVX512,
        "avx512vnni",
        "avx512vnni",
        nvml=card("NVIDIA A100 80GB PCIe", 80, "8.0", (4, 16)),
        torch=CUDA,
    ),
    "sapphire_rapids": Recorded(
        Processor("Intel(R) Xeon(R) Gold 6454S", INTEL, (6, 143, 8), AMX_FLAGS, 32, caches=(48, 2048, 61440)),
        512 * GIB,
        AMX,
        "amx",
        "amx",
        nvml=card("NVIDIA GeForce RTX 4090 D", 24, "8.9", (4, 16)),
        torch=CUDA,
        files={"sys/firmware/dmi/tables/DMI": smbios(8, 0x22, 4800, "CPU1_DIMM_{1}2", "NODE 1")},
    ),
    "old_kernel_without_amx": Recorded(
        Processor("Intel(R) Xeon(R) Gold 6430", INTEL, (6, 143, 8), AMX_FLAGS, 32, caches=(48, 2048, 61440)),
        256 * GIB,
        AMX,
        "avx512vnni",
        "avx512bf16",
        usable=[name for name in AMX if not name.startswith("amx")],
    ),
    "granite_rapids": Recorded(
        Processor("Intel(R) Xeon(R) 6980P", INTEL, (6, 173, 1), AMX_FLAGS, 128, caches=(48, 2048, 516096), nodes=3),
        768 * GIB,
        AMX,
        "amx",
        "amx",
    ),
    "dual_snc": Recorded(
        # Two sockets, each split into two nodes in the BIOS.
        Processor(
            "INTEL(R) XEON(R) PLATINUM 8592+",
            INTEL,
            (6, 207, 2),
            AMX_FLAGS,
            64,
            sockets=2,
            caches=(48, 2048, 327680),
            nodes=4,
        ),
        1024 * GIB,
        AMX,
        "amx",
        "amx",
        nvml=card("NVIDIA H100 PCIe", 80, "9.0", (5, 16)),
        torch=CUDA,
    ),
    "vm_without_avx2": Recorded(
        Processor(
            "QEMU Virtual CPU version 2.5+",
            AMD,
            (15, 107, 1),
            "fpu sse sse2 ssse3 hypervisor",
            4,
            1,
            caches=(64, 512, 16384),
        ),
        16 * GIB,
        ["sse2"],
        "portable",
        "portable",
        files={"proc/self/mountinfo": "30 1 254:1 / / rw - ext4 /dev/vda1 rw\n31 30 0:40 / /models rw - 9p share rw\n"},
    ),
    "torch_only": Recorded(
        # No NVML in this container, but torch sees the card.
        Processor(
            "AMD EPYC 9654 96-Core Processor",
            AMD,
            (25, 17, 1),
            f"{AVX512_FLAGS} avx512_bf16",
            96,
            caches=(32, 1024, 32768),
            l3_cores=8,
        ),
        384 * GIB,
        ZEN4_ISA,
        "avx512vnni",
        "avx512bf16",
        torch={"torch": "2.13.0", "torch_cuda": "none", "torch_hip": "7.0"},
        replies={
            "torch": Reply(
                {
                    "gpus": [
                        {
                            "name": "AMD Instinct MI210",
                            "vendor": "amd",
                            "total": 64 * GIB,
                            "free": 63 * GIB,
                            "integrated": False,
                        }
                    ]
                }
            )
        },
    ),
}

ALL: dict[str, Callable[[], Machine]] = {
    **MACHINES,
    **{name: recorded.machine for name, recorded in RECORDED.items()},
}
