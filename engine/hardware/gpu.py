"""Graphics cards with memory of their own, and the integrated ones, whose memory is the system's RAM."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from engine.hardware.child import Reply
from engine.hardware.report import GpuReport
from engine.hardware.sources import Sources
from engine.words import say

VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}

#: PCI device ids of AMD processors with graphics inside (public amdgpu and pci.ids listings).
AMD_INTEGRATED = {
    "0x13c0",  # Granite Ridge
    "0x1435",  # Sephiroth
    "0x1506",  # Mendocino
    "0x150e",  # Strix Point
    "0x1586",  # Strix Halo
    "0x15bf",  # Phoenix
    "0x15c8",  # Phoenix 2
    "0x15d8",  # Picasso
    "0x15dd",  # Raven Ridge
    "0x15e7",  # Barcelo
    "0x1636",  # Renoir
    "0x1638",  # Cezanne
    "0x163f",  # Van Gogh
    "0x164c",  # Lucienne
    "0x164d",  # Rembrandt
    "0x164e",  # Raphael
    "0x1681",  # Rembrandt
    "0x1900",  # Hawk Point
    "0x1901",  # Hawk Point
    "0x1114",  # Krackan Point
}


#: Lowest driver (first number) that runs torch built for this CUDA, by NVIDIA's compatibility tables.
DRIVER_FOR_CUDA = {11: 450, 12: 525, 13: 580}
#: Lowest compute capability that such a torch has kernels for.
CAPABILITY_FOR_CUDA = {11: (3, 7), 12: (5, 0), 13: (7, 5)}


def read_gpus(
    sources: Sources, nvml: Reply, system: Reply, torch: Mapping[str, str], cpu_name: str, timeout: float
) -> tuple[list[GpuReport], list[str]]:
    """NVIDIA cards from the driver, AMD and Intel ones from the system, Apple's from the CPU's name, others from torch.

    torch: what `Sources.torch_build` said. torch itself is asked, in a child, only when nothing else knows a card.
    """
    gpus, warnings = _nvidia(nvml, torch)
    drm, drm_warnings = _drm(sources, nvidia_answered=bool(gpus) or bool(nvml.failure or nvml.value.get("error")))
    if sources.system == "Darwin" and cpu_name.startswith("Apple"):
        drm.append(GpuReport(name=cpu_name, vendor="apple", total_bytes=0, free_bytes=0, integrated=True))
    gpus += drm + _adapters(system)
    builds = (torch.get("torch_cuda", "none"), torch.get("torch_hip", "none"), torch.get("torch_xpu", "none"))
    if all(gpu.integrated for gpu in gpus) and any(build != "none" for build in builds):
        gpus += _by_torch(sources.ask("torch", timeout))
    for gpu in gpus:
        if gpu.unusable:
            warnings.append(say("{gpu} {unusable}.", gpu=gpu.name, unusable=gpu.unusable))
    return gpus, warnings + drm_warnings


def _nvidia(nvml: Reply, torch: Mapping[str, str]) -> tuple[list[GpuReport], list[str]]:
    warnings = []
    if nvml.failure:
        warnings.append(
            say("NVIDIA GPUs could not be asked (NVML): {why}; restart the PC or update the driver.", why=nvml.failure)
        )
    elif error := nvml.value.get("error"):
        warnings.append(
            say(
                "The NVIDIA driver answered with an error (NVML): {error}; restart the PC, or install the driver "
                "again.",
                error=error,
            )
        )
    driver = str(nvml.value.get("driver", ""))
    gpus = [
        GpuReport(
            name=str(gpu["name"]),
            vendor="nvidia",
            total_bytes=0 if gpu["integrated"] else int(gpu["total"]),
            free_bytes=0 if gpu["integrated"] else int(gpu["free"]),
            integrated=bool(gpu["integrated"]),
            driver=driver,
            pcie_generation=int(gpu.get("pcie_generation", 0)),
            pcie_width=int(gpu.get("pcie_width", 0)),
            compute_capability=str(gpu.get("compute_capability", "")),
            drives_display=gpu.get("drives_display"),
            unusable=_unusable(driver, str(gpu.get("compute_capability", "")), torch.get("torch_cuda", "")),
        )
        for gpu in nvml.value.get("gpus", [])
    ]
    return gpus, warnings


def _unusable(driver: str, capability: str, cuda: str) -> str:
    """Why the installed torch cannot compute on the card, "" when it can or when nothing says otherwise."""
    major = cuda.partition(".")[0]
    if not major.isdigit():
        return ""
    needed = DRIVER_FOR_CUDA.get(int(major), 0)
    version = driver.partition(".")[0]
    if version.isdigit() and int(version) < needed:
        return say(
            "stays unused: its driver {driver} is too old for CUDA {cuda}; install NVIDIA's driver {needed} or newer",
            driver=driver,
            cuda=cuda,
            needed=needed,
        )
    parts = capability.split(".")
    lowest = CAPABILITY_FOR_CUDA.get(int(major), (0, 0))
    if len(parts) == 2 and all(part.isdigit() for part in parts) and (int(parts[0]), int(parts[1])) < lowest:
        return say(
            "stays unused: CUDA {cuda} no longer supports cards of its age (compute capability {capability}); run the "
            "set-up again for an older CUDA",
            cuda=cuda,
            capability=capability,
        )
    return ""


def _by_torch(reply: Reply) -> list[GpuReport]:
    return [
        GpuReport(
            name=str(gpu["name"]),
            vendor=str(gpu["vendor"]),
            total_bytes=0 if gpu["integrated"] else int(gpu["total"]),
            free_bytes=0 if gpu["integrated"] else int(gpu["free"]),
            integrated=bool(gpu["integrated"]),
        )
        for gpu in reply.value.get("gpus", [])
    ]


def _adapters(system: Reply) -> list[GpuReport]:
    """AMD's and Intel's of Windows, which says how much memory they have but not how much is free."""
    gpus = []
    for adapter in system.value.get("adapters", []):
        ids = dict(part.split("_", 1) for part in str(adapter["device"]).rpartition("\\")[2].split("&") if "_" in part)
        vendor = VENDORS.get(f"0x{ids.get('ven', '')}", "")
        if vendor not in ("amd", "intel"):
            continue
        name = str(adapter["name"])
        if vendor == "amd":
            integrated = f"0x{ids.get('dev', '')}" in AMD_INTEGRATED
        else:
            # Cards are called Arc A770, B580 or Pro; the graphics of Core Ultra processors are called just Arc.
            integrated = not re.search(r"arc.*\b(pro|[ab]\d{2,3})", name.lower())
        total = 0 if integrated else int(adapter["total"])
        gpus.append(GpuReport(name, vendor, total, total, integrated, str(adapter["driver"])))
    return gpus


def _drm(sources: Sources, *, nvidia_answered: bool) -> tuple[list[GpuReport], list[str]]:
    gpus: list[GpuReport] = []
    warnings: list[str] = []
    folder = "sys/class/drm"
    for card in sources.entries(folder):
        # card0 is a device, card0-HDMI-A-1 one of its outputs.
        if not (card.startswith("card") and card[4:].isdigit()):
            continue
        device = f"{folder}/{card}/device"
        vendor = VENDORS.get(sources.text(f"{device}/vendor").lower(), "")
        if vendor == "nvidia" and not nvidia_answered:
            name = _name(sources, device, "NVIDIA GPU")
            warnings.append(
                say("{name} is present, but no NVIDIA driver answers; install the driver to use it.", name=name)
            )
        elif vendor == "amd":
            gpus.append(_linked(sources, folder, card, _amd(sources, device)))
        elif vendor == "intel":
            gpus.append(_linked(sources, folder, card, _intel(sources, f"{folder}/{card}")))
    return gpus, warnings


#: GT/s per lane of each PCIe generation.
_LINK_SPEEDS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}


def _linked(sources: Sources, folder: str, card: str, gpu: GpuReport) -> GpuReport:
    """The card with its link and its screens; graphics inside a processor have no link worth a word."""
    outputs = [entry for entry in sources.entries(folder) if entry.startswith(f"{card}-")]
    states = [sources.text(f"{folder}/{output}/status") for output in outputs]
    shown = "connected" in states if states else None
    if gpu.integrated:
        return replace(gpu, drives_display=shown)
    speed = sources.text(f"{folder}/{card}/device/max_link_speed").partition(" ")[0]
    width = sources.number(f"{folder}/{card}/device/current_link_width") or 0
    return replace(gpu, drives_display=shown, pcie_generation=_LINK_SPEEDS.get(speed, 0), pcie_width=width)


def _amd(sources: Sources, device: str) -> GpuReport:
    total = sources.number(f"{device}/mem_info_vram_total") or 0
    used = sources.number(f"{device}/mem_info_vram_used") or 0
    # Chips with graphics inside call a slice of RAM their VRAM, and know no maker of memory chips.
    maker = sources.text(f"{device}/mem_info_vram_vendor")
    carved = maker in ("", "unknown") and total <= 4 << 30
    integrated = sources.text(f"{device}/device").lower() in AMD_INTEGRATED or carved
    return GpuReport(
        name=_name(sources, device, "AMD GPU"),
        vendor="amd",
        total_bytes=0 if integrated else total,
        free_bytes=0 if integrated else max(0, total - used),
        integrated=integrated,
        driver=_driver(sources, device),
    )


def _intel(sources: Sources, card: str) -> GpuReport:
    device = f"{card}/device"
    # Intel's processors show their graphics at this one bus address; cards never lie there.
    integrated = _uevent(sources, device).get("PCI_SLOT_NAME", "") == "0000:00:02.0"
    total = sources.number(f"{card}/lmem_total_bytes") or 0
    free = sources.number(f"{card}/lmem_avail_bytes")
    if not total and not _uevent(sources, device):
        integrated = True
    return GpuReport(
        name=_name(sources, device, "Intel GPU"),
        vendor="intel",
        total_bytes=0 if integrated else total,
        free_bytes=0 if integrated else (total if free is None else free),
        integrated=integrated,
        driver=_driver(sources, device),
    )


def _uevent(sources: Sources, device: str) -> dict[str, str]:
    lines = sources.text(f"{device}/uevent").splitlines()
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def _driver(sources: Sources, device: str) -> str:
    return _uevent(sources, device).get("DRIVER", "")


def _name(sources: Sources, device: str, otherwise: str) -> str:
    """The marketing name from the system's PCI id list, else the ids."""
    vendor = sources.text(f"{device}/vendor").lower().removeprefix("0x")
    number = sources.text(f"{device}/device").lower().removeprefix("0x")
    for path in ("usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids"):
        within = False
        for line in sources.text(path).splitlines():
            if line and line[0] not in "\t#":
                within = line.startswith(f"{vendor} ")
            elif within and line.startswith(f"\t{number} "):
                return line.strip().partition(" ")[2].strip()
    return f"{otherwise} ({vendor}:{number})" if number else otherwise
