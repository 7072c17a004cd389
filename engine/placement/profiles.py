"""What an engine makes of a machine, and ours as this machine was measured with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.hardware.kernel_speed import NARROW, PROMPT, SHAPES, TOP_K, Shape, layer_experts
from engine.hardware.report import Calibration, HardwareReport


@dataclass(frozen=True)
class EngineProfile:
    """What one engine makes of a machine. Shares are of a plain read loop's bandwidth, times in seconds.

    share_small, share_large: achieved at one token, for small and large experts per layer
    cpu_layer_s: fixed cost of a layer whose attention runs on the CPU
    region_s:    and of each thread that takes part in one of its regions of work: they wait for each other
    expert_s:    of each routed expert that the CPU computes: its first rows are not on their way yet
    gpu_layer_s: fixed cost of a layer's launches on the GPU
    handoff_s:   GPU -> CPU experts -> GPU, per layer
    gpu_share:   achieved share of VRAM bandwidth
    gops_per_core: 10^9 operations per second and core of wide matrices while a prompt is read, by (code, tier)
    between_s:     of a core, for each number that stands between two matrices then: norms, rounding, activations
    core_gbs:      what one core gets through at one token where arithmetic, not the RAM, is the limit
    kv_core_gbs:   what one core gets through of keys and values at one token, by attention's own tier
    attention_gops: 10^9 operations per second and core of attention while a prompt is read, likewise
    gpu_prefill_share: of the GPU's 16-bit matrix rate
    gpu_expert_s: launches per expert and prompt chunk, where the GPU computes experts one after the other
    gpu_code_bytes: VRAM traffic per weight that is stored in codes and turned into numbers before it is multiplied;
                 0 where kernels read the codes themselves
    link_share:  achieved share of the link's bandwidth while experts are sent to the GPU, computing beside
    spread:      (low, high) factors on the likely decode figure that come from the engine, not the machine
    prefill_spread: the same for prefill, where clock rates differ too
    """

    share_small: float
    share_large: float
    cpu_layer_s: float
    region_s: float
    expert_s: float
    gpu_layer_s: float
    handoff_s: float
    gpu_share: float
    gops_per_core: Mapping[tuple[str, str], float]
    between_s: Mapping[str, float]
    core_gbs: Mapping[tuple[str, str], float]
    kv_core_gbs: Mapping[str, float]
    attention_gops: Mapping[str, float]
    gpu_prefill_share: float
    gpu_expert_s: float
    gpu_code_bytes: float
    link_share: float
    spread: tuple[float, float]
    prefill_spread: tuple[float, float]


#: Ours, where nothing was measured. On a Zen 5 virtual machine without other programs
#: (docs/engineering/performance.md) decode reached 80 to 87 % of the read loop beside what layers and experts cost. In
#: prompts wide matrices took 750 to 800 GOP/s a core on int4 and 700 on int8 codes, capped at AVX2 330 and 190; a
#: number between two matrices 0.17 to 0.35 ns; attention 200, 110 and 12 GOP/s, and 375 where pairs of bf16 are
#: multiplied; keys and values in f16 20 to 26 GB/s with 3 to 8 heads to each of them, 11 to 20 capped at AVX2. Most
#: CPUs are slower and more threads share less well, so the likely figures lie below. The GPU's are estimates from the
#: number of launches (5 to 10 us each) until they are measured.
GREENROOM = EngineProfile(
    share_small=0.78,
    share_large=0.84,
    cpu_layer_s=12e-6,
    # 1 us measured with 2 threads; published runs with 32 to 64 threads lose 50 to 150 us a layer to waiting.
    region_s=0.5e-6,
    # Measured with 1 and with 2 threads: together they wait no shorter.
    expert_s=2e-6,
    gpu_layer_s=250e-6,
    handoff_s=80e-6,
    gpu_share=0.6,
    # AMX is not measured yet: no less than the tier below it.
    gops_per_core={
        ("int4", "portable"): 26,
        ("int4", "avx2"): 270,
        ("int4", "avxvnni"): 320,
        ("int4", "avx512vnni"): 640,
        ("int4", "amx"): 640,
        ("int8", "portable"): 26,
        ("int8", "avx2"): 160,
        ("int8", "avxvnni"): 320,
        ("int8", "avx512vnni"): 610,
        ("int8", "amx"): 610,
        ("bf16", "portable"): 14,
        ("bf16", "avx2"): 75,
        ("bf16", "avx512vnni"): 200,
        ("bf16", "avx512bf16"): 390,
        ("bf16", "amx"): 390,
        # Not measured end to end: its kernels multiply as those of bf16 do.
        ("e4m3", "portable"): 8,
        ("e4m3", "avx2"): 60,
        ("e4m3", "avx512vnni"): 110,
        ("e4m3", "avx512bf16"): 180,
        ("e4m3", "amx"): 180,
        ("f16", "portable"): 2,
        ("f16", "avx2"): 75,
        ("f16", "avx512vnni"): 180,
        ("f32", "portable"): 18,
        ("f32", "avx2"): 100,
        ("f32", "avx512vnni"): 195,
    },
    between_s={"portable": 0.8e-9, "avx2": 0.5e-9, "avx512": 0.4e-9},
    core_gbs={("int4", "portable"): 1.4, ("int8", "portable"): 2.6, ("bf16", "portable"): 14.0},
    kv_core_gbs={"portable": 1.0, "avx2": 10.0, "avx512": 18.0, "avx512bf16": 28.0},
    attention_gops={"portable": 10.0, "avx2": 90.0, "avx512": 165.0, "avx512bf16": 300.0},
    gpu_prefill_share=0.25,
    gpu_expert_s=80e-6,
    # Taken apart by torch's operations one after the other it is more, by how much is measured with the card.
    gpu_code_bytes=0.0,
    link_share=0.75,
    spread=(0.7, 1.25),
    prefill_spread=(0.5, 1.6),
)
#: For a tier the table does not name.
SLOWEST_GOPS = 4.0


#: Regions of work in a layer: attention's projections, itself, the experts.
REGIONS = 4
#: What a whole model leaves of the kernels' speed, at one token and in a prompt (0.93 to 0.99, and 0.78 to 1.0, less
#: with small matrices and two threads).
WHOLE_MODEL_SHARE, WHOLE_PROMPT_SHARE = 0.95, 0.9
#: What is left of a region when nobody waits for anybody: `cpu_layer_s` has it already.
ALONE_S = 3e-6
#: The engine's part of the uncertainty once its kernels were timed here.
MEASURED_SPREAD = (0.8, 1.2)
#: Further off than this from the table is a disturbed measurement.
SANE_FACTOR = (0.2, 5.0)


def measured_profile(report: HardwareReport, profile: EngineProfile = GREENROOM) -> EngineProfile:
    """The profile with what was measured here in the place of the table's figures, as far as it was.

    Shares of the bandwidth come from our kernels and a read loop; arithmetic scales all codes of the table by how much
    faster or slower than it one of them is, and what stands between matrices by how much a narrow one loses to it.
    """
    found = report.calibration
    if found is None or not found.threads:
        return profile
    if found.region_us is not None:
        waited = max(0.0, found.region_us * 1e-6 - ALONE_S)
        profile = replace(profile, region_s=waited / found.threads)
    shares = {shape.name: _share(found, shape, profile) for shape in SHAPES}
    factor = _arithmetic(report, found, profile)
    tier = report.cpu.kernels.int4
    gops = profile.gops_per_core.get(("int4", tier), SLOWEST_GOPS) * factor
    between = _between(found, gops, profile.between_s[attention_tier(tier)] / factor)
    scale = between / profile.between_s[attention_tier(tier)]
    return replace(
        profile,
        share_small=shares["small"] or profile.share_small,
        share_large=shares["large"] or profile.share_large,
        gops_per_core={kind: gops * factor * WHOLE_PROMPT_SHARE for kind, gops in profile.gops_per_core.items()},
        attention_gops={tier: gops * factor * WHOLE_PROMPT_SHARE for tier, gops in profile.attention_gops.items()},
        between_s={tier: seconds * scale / WHOLE_PROMPT_SHARE for tier, seconds in profile.between_s.items()},
        spread=MEASURED_SPREAD if shares["small"] else profile.spread,
    )


def multiplies_pairs(report: HardwareReport, isa: str | None) -> bool:
    """Whether attention multiplies pairs of bf16 here, twice as many numbers at once as of float32."""
    able = ("avx512bf16", "amx")
    return report.cpu.kernels.bf16 in able and (isa is None or isa in able)


def attention_tier(tier: str) -> str:
    """Attention and what stands between matrices have no kernels of their own for tiers that only multiply faster; but
    see `multiplies_pairs`.
    """
    if tier.startswith(("avx512", "amx")):
        return "avx512"
    return "avx2" if tier.startswith("avx") else "portable"


def _share(found: Calibration, shape: Shape, profile: EngineProfile) -> float | None:
    """Of a plain read's bandwidth, without what experts and the layer cost on top."""
    kernel, read = found.kernels.get(shape.name), found.bandwidth_gbs.get(str(found.threads))
    if kernel is None or not read:
        return None
    nbytes = TOP_K * shape.stored_bytes
    seconds = nbytes / (kernel.decode_gbs * 1e9) - TOP_K * profile.expert_s
    speed = nbytes / max(seconds, 0.5 * nbytes / (kernel.decode_gbs * 1e9)) / 1e9
    # A kernel that seems faster than a plain read says that the read was disturbed.
    return min(1.0, speed / read) * WHOLE_MODEL_SHARE


def _arithmetic(report: HardwareReport, found: Calibration, profile: EngineProfile) -> float:
    """How much faster than by the table a core computes: by the best shape, for programs beside only slow one down."""
    tier = report.cpu.kernels.int4
    table = profile.gops_per_core.get(("int4", tier))
    if table is None:
        return 1.0
    factors = []
    for shape in SHAPES:
        if (kernel := found.kernels.get(shape.name)) is None:
            continue
        operations = 2 * PROMPT * TOP_K * shape.values
        seconds = operations / (kernel.prefill_gops * 1e9)
        # Every expert is read once meanwhile, see `engine.placement.predict`; where that takes most of the time, no
        # more than a half of it is believed.
        loading = layer_experts(shape) * shape.stored_bytes / (kernel.decode_gbs * 1e9)
        computing = math.sqrt(seconds**2 - min(loading, 0.5 * seconds) ** 2)
        by_table = operations / (table * found.threads * 1e9)
        by_table += PROMPT * shape.between * profile.between_s[attention_tier(tier)] / found.threads
        factors.append(by_table / computing)
    factor = max(factors, default=1.0)
    return factor if SANE_FACTOR[0] <= factor <= SANE_FACTOR[1] else 1.0


def _between(found: Calibration, gops: float, by_table: float) -> float:
    """Seconds of a core per number between matrices: what a narrow MLP takes beyond its arithmetic."""
    if found.narrow_gops is None:
        return by_table
    operations = 2 * NARROW.values
    seconds = operations / (found.narrow_gops * 1e9) - operations / (gops * found.threads * 1e9)
    each = seconds * found.threads / NARROW.dense_between
    return min(max(each, by_table / 3), 3 * by_table)


#: A GPU that the CPU plays: torch's operations one by one, each looked at before it is done. On a busy Zen 5 virtual
#: machine a token took 5 to 12 ms a layer; the other two figures were so chosen that prompts come out as they were
#: measured, 63 to 240 tok/s. Rough, so the range is wide.
SIMULATED_LAYER_S, SIMULATED_EXPERT_S = 6e-3, 1.5e-3
SIMULATED_SPREAD = (0.35, 3.0)
SIMULATED_THREAD_TERAFLOPS = 0.03
#: Copies of a layer that its work waits for.
_COPIES = 2


def simulated_profile(profile: EngineProfile, latency: float) -> EngineProfile:
    """latency: of the simulated copies, in seconds."""
    return replace(
        profile,
        gpu_layer_s=SIMULATED_LAYER_S,
        gpu_expert_s=SIMULATED_EXPERT_S,
        gpu_prefill_share=1.0,
        handoff_s=profile.handoff_s + _COPIES * latency,
        spread=SIMULATED_SPREAD,
        prefill_spread=SIMULATED_SPREAD,
    )
