"""What an engine makes of a machine, and ours as this machine was measured with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.hardware.report import Calibration, HardwareReport


@dataclass(frozen=True)
class EngineProfile:
    """What one engine makes of a machine. Shares are of a plain read loop's bandwidth, times in seconds.

    share_small, share_large: achieved at one token, for small and large experts per layer
    cpu_layer_s: fixed cost of a layer whose attention runs on the CPU
    region_s:    and of each thread that takes part in one of its regions of work: they wait for each other
    gpu_layer_s: fixed cost of a layer's launches on the GPU
    handoff_s:   GPU -> CPU experts -> GPU, per layer
    gpu_share:   achieved share of VRAM bandwidth
    gops_per_core: 10^9 operations per second and core while a prompt is read, by (code, tier)
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
    gpu_layer_s: float
    handoff_s: float
    gpu_share: float
    gops_per_core: Mapping[tuple[str, str], float]
    core_gbs: Mapping[tuple[str, str], float]
    kv_core_gbs: Mapping[str, float]
    attention_gops: Mapping[str, float]
    gpu_prefill_share: float
    gpu_expert_s: float
    gpu_code_bytes: float
    link_share: float
    spread: tuple[float, float]
    prefill_spread: tuple[float, float]


#: Ours, where nothing was measured. On an idle Zen 5 virtual machine (see docs/performance.md) decode reached 74 to
#: 87 % of the read loop with all that happens beside, prefill of 512 tokens 620 GOP/s a core on int4 and 610 on int8
#: codes, capped at AVX2 210 and 165; attention in it 155, 92 and 9; keys and values in f16 20 to 26 GB/s with 3 to 8
#: heads to each of them, 11 to 20 capped at AVX2. Most CPUs are slower and more threads share less well, so the likely
#: figures lie below. The GPU's are estimates from the number of launches (5 to 10 us each) until they are measured.
GREENROOM = EngineProfile(
    share_small=0.76,
    share_large=0.84,
    cpu_layer_s=22e-6,
    # 4 us measured with 2 threads; published runs with 32 to 64 threads lose 50 to 150 us a layer to waiting.
    region_s=0.5e-6,
    gpu_layer_s=250e-6,
    handoff_s=80e-6,
    gpu_share=0.6,
    # AMX is not measured yet: no less than the tier below it.
    gops_per_core={
        ("int4", "portable"): 18,
        ("int4", "avx2"): 190,
        ("int4", "avxvnni"): 240,
        ("int4", "avx512vnni"): 520,
        ("int4", "amx"): 520,
        ("int8", "portable"): 18,
        ("int8", "avx2"): 150,
        ("int8", "avxvnni"): 235,
        ("int8", "avx512vnni"): 520,
        ("int8", "amx"): 520,
        ("bf16", "portable"): 14,
        ("bf16", "avx2"): 80,
        ("bf16", "avx512vnni"): 195,
        ("bf16", "avx512bf16"): 350,
        ("bf16", "amx"): 350,
        # Not measured yet end to end: its kernels multiply as those of bf16 do.
        ("e4m3", "portable"): 8,
        ("e4m3", "avx2"): 60,
        ("e4m3", "avx512vnni"): 110,
        ("e4m3", "avx512bf16"): 180,
        ("e4m3", "amx"): 180,
        ("f16", "portable"): 8,
        ("f16", "avx2"): 75,
        ("f16", "avx512vnni"): 140,
        ("f32", "portable"): 14,
        ("f32", "avx2"): 75,
        ("f32", "avx512vnni"): 140,
    },
    core_gbs={("int4", "portable"): 1.4, ("int8", "portable"): 2.6, ("bf16", "portable"): 14.0},
    kv_core_gbs={"portable": 1.0, "avx2": 10.0, "avx512": 18.0},
    attention_gops={"portable": 8.0, "avx2": 80.0, "avx512": 130.0},
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
#: What a whole model leaves of the kernels' speed, at one token and in a prompt: norms, rounding and narrower matrices
#: take the rest (0.95 and 0.70 to 0.93 measured).
WHOLE_MODEL_SHARE, WHOLE_PROMPT_SHARE = 0.95, 0.88
#: Calibration gives small experts a few rows each; the usual chunk has four times as many (measured).
LARGER_CHUNK = 1.27
#: Further off than this from the table is a disturbed measurement.
SANE_FACTOR = (0.2, 5.0)


def measured_profile(report: HardwareReport, profile: EngineProfile = GREENROOM) -> EngineProfile:
    """The profile with what was measured here in the place of the table's figures, as far as it was.

    Shares of the bandwidth come from our kernels and a read loop; arithmetic scales all codes of the table by how much
    faster or slower than it one of them is.
    """
    found = report.calibration
    if found is None or not found.threads:
        return profile
    shares = {name: _share(found, name) for name in ("small", "large")}
    factor = _arithmetic(report, found, profile)
    return replace(
        profile,
        share_small=shares["small"] or profile.share_small,
        share_large=shares["large"] or profile.share_large,
        region_s=profile.region_s if found.region_us is None else found.region_us * 1e-6 / found.threads,
        gops_per_core={kind: gops * factor for kind, gops in profile.gops_per_core.items()},
        attention_gops={tier: gops * factor for tier, gops in profile.attention_gops.items()},
    )


def _share(found: Calibration, shape: str) -> float | None:
    kernel, read = found.kernels.get(shape), found.bandwidth_gbs.get(str(found.threads))
    if kernel is None or not read:
        return None
    # A kernel that seems faster than a plain read says that the read was disturbed.
    return min(1.0, kernel.decode_gbs / read) * WHOLE_MODEL_SHARE


def _arithmetic(report: HardwareReport, found: Calibration, profile: EngineProfile) -> float:
    """Of the best undisturbed shape: other programs can only make one slower."""
    table = profile.gops_per_core.get(("int4", report.cpu.kernels.int4))
    more_rows = {"small": LARGER_CHUNK}
    speeds = [kernel.prefill_gops * more_rows.get(name, 1.0) for name, kernel in found.kernels.items()]
    if table is None or not speeds:
        return 1.0
    factor = max(speeds) * WHOLE_PROMPT_SHARE / (table * found.threads)
    return factor if SANE_FACTOR[0] <= factor <= SANE_FACTOR[1] else 1.0


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
