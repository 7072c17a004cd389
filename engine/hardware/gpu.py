"""Graphics cards with memory of their own, and the integrated ones, whose memory is the system's RAM."""

from __future__ import annotations

from engine.hardware.child import Reply
from engine.hardware.report import GpuReport
from engine.hardware.sources import Sources

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


def read_gpus(sources: Sources, nvml: Reply, cpu_name: str) -> tuple[list[GpuReport], list[str]]:
    """NVIDIA cards from the driver, AMD and Intel ones from sysfs (Linux), Apple's from the CPU's name."""
    gpus, warnings = _nvidia(nvml)
    drm, drm_warnings = _drm(sources, nvidia_answered=bool(gpus) or bool(nvml.failure or nvml.value.get("error")))
    if sources.system == "Darwin" and cpu_name.startswith("Apple"):
        drm.append(GpuReport(name=cpu_name, vendor="apple", total_bytes=0, free_bytes=0, integrated=True))
    return gpus + drm, warnings + drm_warnings


def _nvidia(nvml: Reply) -> tuple[list[GpuReport], list[str]]:
    warnings = []
    if nvml.failure:
        warnings.append(f"NVIDIA GPUs could not be asked (NVML): {nvml.failure}.")
    elif nvml.value.get("error"):
        warnings.append(f"The NVIDIA driver answered with an error (NVML): {nvml.value['error']}.")
    driver = str(nvml.value.get("driver", ""))
    gpus = [
        GpuReport(
            name=str(gpu["name"]),
            vendor="nvidia",
            total_bytes=0 if gpu["integrated"] else int(gpu["total"]),
            free_bytes=0 if gpu["integrated"] else int(gpu["free"]),
            integrated=bool(gpu["integrated"]),
            driver=driver,
        )
        for gpu in nvml.value.get("gpus", [])
    ]
    return gpus, warnings


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
            warnings.append(f"{name} is present, but no NVIDIA driver answers; install the driver to use it.")
        elif vendor == "amd":
            gpus.append(_amd(sources, device))
        elif vendor == "intel":
            gpus.append(_intel(sources, f"{folder}/{card}"))
    return gpus, warnings


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
