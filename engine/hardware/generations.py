"""Which generation a processor is of, by the numbers CPUID gives it.

Models as Linux's own lists name them (arch/x86/include/asm/intel-family.h, arch/x86/kernel/cpu/amd.c).
"""

from __future__ import annotations

_INTEL = {
    0x1A: "Nehalem",
    0x1E: "Nehalem",
    0x2E: "Nehalem",
    0x25: "Westmere",
    0x2C: "Westmere",
    0x2F: "Westmere",
    0x2A: "Sandy Bridge",
    0x2D: "Sandy Bridge",
    0x3A: "Ivy Bridge",
    0x3E: "Ivy Bridge",
    0x3C: "Haswell",
    0x3F: "Haswell",
    0x45: "Haswell",
    0x46: "Haswell",
    0x3D: "Broadwell",
    0x47: "Broadwell",
    0x4F: "Broadwell",
    0x56: "Broadwell",
    0x4E: "Skylake",
    0x5E: "Skylake",
    0x8E: "Kaby Lake",
    0x9E: "Kaby Lake",
    0xA5: "Comet Lake",
    0xA6: "Comet Lake",
    0x7D: "Ice Lake",
    0x7E: "Ice Lake",
    0x6A: "Ice Lake-SP",
    0x6C: "Ice Lake-SP",
    0xA7: "Rocket Lake",
    0x8C: "Tiger Lake",
    0x8D: "Tiger Lake",
    0x97: "Alder Lake",
    0x9A: "Alder Lake",
    0xBE: "Alder Lake-N",
    0xB7: "Raptor Lake",
    0xBA: "Raptor Lake",
    0xBF: "Raptor Lake",
    0xAA: "Meteor Lake",
    0xAC: "Meteor Lake",
    0xBD: "Lunar Lake",
    0xC5: "Arrow Lake",
    0xC6: "Arrow Lake",
    0xCC: "Panther Lake",
    0x8F: "Sapphire Rapids",
    0xCF: "Emerald Rapids",
    0xAD: "Granite Rapids",
    0xAE: "Granite Rapids",
    0xAF: "Sierra Forest",
}
#: Processors that have AVX or less: no setting of the BIOS gives them AVX2.
BEFORE_AVX2 = frozenset({"Nehalem", "Westmere", "Sandy Bridge", "Ivy Bridge", "Bulldozer"})


def generation(vendor: str, family: int, model: int, stepping: int = 0) -> str:
    """Its name, "" when the numbers are not known."""
    if vendor == "GenuineIntel" and family == 6:
        if model == 0x55:
            # Three generations of servers share a model.
            return "Skylake-SP" if stepping < 5 else "Cascade Lake" if stepping < 10 else "Cooper Lake"
        return _INTEL.get(model, "")
    if vendor == "AuthenticAMD":
        return _amd(family, model)
    return ""


def _amd(family: int, model: int) -> str:
    if family == 0x15:
        return "Bulldozer" if model < 0x60 else "Excavator"
    if family == 0x17:
        return "Zen" if model < 0x30 and model not in (0x08, 0x18) else "Zen+" if model < 0x30 else "Zen 2"
    if family == 0x19:
        return "Zen 4" if 0x10 <= model <= 0x1F or 0x60 <= model <= 0xAF else "Zen 3"
    if family == 0x1A:
        # The models in between are of the next generation.
        return "Zen 5" if model < 0x50 or 0x60 <= model <= 0x7F else ""
    return ""
