"""How fast a plan should be, from bytes and bandwidth.

Decode reads every active weight once per token, so its time is bytes / achieved bandwidth plus a fixed cost per layer.
Reading a prompt re-uses each weight for many tokens, so its time is arithmetic / achieved operations per second.
Both are said for a short conversation, and decode once more for a full one, because attention grows with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from engine.placement.machines import Bandwidth
from engine.placement.plan import Prediction, Range
from engine.placement.sizes import PREFILL_CHUNK

#: Tokens in the conversation that a prediction speaks of, and in the prompt.
CONVERSATION = 512
#: Active expert bytes per layer up to which the fixed costs rule, and from which bandwidth does.
SMALL_LAYER_BYTES = 25e6
LARGE_LAYER_BYTES = 100e6


@dataclass(frozen=True)
class EngineProfile:
    """What one engine makes of a machine. Shares are of a plain read loop's bandwidth, times in seconds.

    share_small, share_large: achieved at one token, for small and large experts per layer
    cpu_layer_s: fixed cost of a layer whose attention runs on the CPU
    gpu_layer_s: fixed cost of a layer's launches on the GPU
    handoff_s:   GPU -> CPU experts -> GPU, per layer
    gpu_share:   achieved share of VRAM bandwidth
    gops_per_core: 10^9 operations per second and core while a prompt is read, by (code, tier)
    core_gbs:      what one core gets through at one token where arithmetic, not the RAM, is the limit
    kv_core_gbs:   what one core gets through of keys and values at one token, by attention's own tier
    attention_gops: 10^9 operations per second and core of attention while a prompt is read, likewise
    gpu_prefill_share: of the GPU's 16-bit matrix rate
    gpu_expert_s: launches per expert and prompt chunk, where the GPU computes experts one after the other
    spread:      (low, high) factors on the likely decode figure that come from the engine, not the machine
    prefill_spread: the same for prefill, where clock rates differ too
    """

    share_small: float
    share_large: float
    cpu_layer_s: float
    gpu_layer_s: float
    handoff_s: float
    gpu_share: float
    gops_per_core: Mapping[tuple[str, str], float]
    core_gbs: Mapping[tuple[str, str], float]
    kv_core_gbs: Mapping[str, float]
    attention_gops: Mapping[str, float]
    gpu_prefill_share: float
    gpu_expert_s: float
    spread: tuple[float, float]
    prefill_spread: tuple[float, float]


#: Ours. The CPU's figures were measured end to end, prefill and decode with torch's part included, by processor time of
#: one thread on a busy Zen 5 virtual machine (read loop 41 GB/s): 84 % of the read bandwidth plus 25 to 40 us a layer;
#: keys and values in f16 20 to 26 GB/s with 3 to 8 heads to each of them, 11 to 20 capped at AVX2, 0.9 to 2 portable;
#: prefill of 512 tokens int4 250 (576 wide) to 450 (2048 wide), int8 363, bf16 296 GOP/s; capped at AVX2 165 to 195,
#: 133, 90; portable 22 and 18; attention in it 155, 92 and 9. Most CPUs are slower and more threads share less well, so
#: the likely figures lie below. The GPU's are estimates from the number of launches (5 to 10 us each) until they are
#: measured.
GREENROOM = EngineProfile(
    share_small=0.70,
    share_large=0.80,
    cpu_layer_s=45e-6,
    gpu_layer_s=250e-6,
    handoff_s=80e-6,
    gpu_share=0.6,
    # AMX is not measured yet: no less than the tier below it.
    gops_per_core={
        ("int4", "portable"): 18,
        ("int4", "avx2"): 160,
        ("int4", "avxvnni"): 190,
        ("int4", "avx512vnni"): 320,
        ("int4", "amx"): 320,
        ("int8", "portable"): 18,
        ("int8", "avx2"): 110,
        ("int8", "avxvnni"): 165,
        ("int8", "avx512vnni"): 320,
        ("int8", "amx"): 320,
        ("bf16", "portable"): 14,
        ("bf16", "avx2"): 75,
        ("bf16", "avx512vnni"): 140,
        ("bf16", "avx512bf16"): 220,
        ("bf16", "amx"): 220,
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
    spread=(0.7, 1.25),
    prefill_spread=(0.5, 1.6),
)
#: For a tier the table does not name.
SLOWEST_GOPS = 4.0


@dataclass(frozen=True)
class Work:
    """What one token costs under a plan. Bytes are as they lie in memory.

    cpu_expert_bytes:  routed experts read from RAM
    cpu_dense_bytes:   everything else read from RAM
    gpu_bytes:         everything read from VRAM
    context:           tokens a full KV cache holds
    kv_bytes:          traffic of attention over a full KV cache
    short_kv_bytes:    the same in a conversation of CONVERSATION tokens; None where it grows in proportion
    kv_on_gpu:         which memory it loads, and which device computes attention
    attention_ops:     operations of attention per token and token in the cache, while a prompt is read
    cpu_values, gpu_values: weights multiplied with while a prompt is read
    gpu_experts:       routed experts of all layers that the GPU computes
    code, tier:        of the kernels that read from RAM
    """

    layers: int
    cpu_expert_bytes: int
    cpu_dense_bytes: int
    gpu_bytes: int
    context: int
    kv_bytes: int
    kv_on_gpu: bool
    attention_ops: int
    cpu_values: int
    gpu_values: int
    gpu_experts: int
    code: str
    tier: str
    threads: int
    short_kv_bytes: int | None = None

    @property
    def attention_tier(self) -> str:
        """Attention has no kernels of its own for the tiers that only multiply codes faster."""
        if self.tier.startswith(("avx512", "amx")):
            return "avx512"
        return "avx2" if self.tier.startswith("avx") else "portable"

    @property
    def uses_cpu(self) -> bool:
        return self.cpu_expert_bytes + self.cpu_dense_bytes > 0

    @property
    def uses_gpu(self) -> bool:
        return self.gpu_bytes > 0


@dataclass(frozen=True)
class Speeds:
    """The machine's side: RAM reads with their range, VRAM reads (GB/s) and the GPU's 16-bit matrix rate (TFLOP/s)."""

    ram: Bandwidth
    vram_gbs: float
    teraflops: float


def achieved_share(profile: EngineProfile, layer_bytes: float) -> float:
    """Between the two measured regimes, linear in the logarithm of the active bytes per layer."""
    if layer_bytes <= 0:
        return profile.share_small
    position = math.log(layer_bytes / SMALL_LAYER_BYTES) / math.log(LARGE_LAYER_BYTES / SMALL_LAYER_BYTES)
    return profile.share_small + (profile.share_large - profile.share_small) * min(1.0, max(0.0, position))


def predict(work: Work, speeds: Speeds, profile: EngineProfile = GREENROOM) -> Prediction:
    """Tokens per second with their range, and the sentence that says what limits decode."""
    low, high = profile.spread
    short = work.short_kv_bytes
    if short is None:
        short = round(work.kv_bytes * min(1.0, CONVERSATION / max(1, work.context)))

    def tokens_per_second(ram_gbs: float, kv: int) -> float:
        return 1 / sum(_decode_terms(work, speeds, profile, ram_gbs, kv).values())

    prefill = 1 / _prefill_seconds(work, speeds, profile)
    return Prediction(
        decode_tps=Range(
            low * tokens_per_second(speeds.ram.low, short),
            tokens_per_second(speeds.ram.likely, short),
            high * tokens_per_second(speeds.ram.high, short),
        ),
        prefill_tps=Range(profile.prefill_spread[0] * prefill, prefill, profile.prefill_spread[1] * prefill),
        bottleneck=_bottleneck(_decode_terms(work, speeds, profile, speeds.ram.likely, short), work, speeds, profile),
        full_context_tps=tokens_per_second(speeds.ram.likely, work.kv_bytes),
    )


def _decode_terms(work: Work, speeds: Speeds, profile: EngineProfile, ram_gbs: float, kv: int) -> dict[str, float]:
    """Seconds per token by what they are spent on; kv is what attention reads of the KV cache, in bytes."""
    cpu_bytes = work.cpu_expert_bytes + work.cpu_dense_bytes
    gpu_bytes = work.gpu_bytes + (kv if work.kv_on_gpu else 0)
    terms = {"ram": 0.0, "vram": 0.0, "attention": 0.0, "layers": 0.0}
    if not work.kv_on_gpu:
        rate = work.threads * profile.kv_core_gbs[work.attention_tier]
        terms["attention"] = kv / (min(ram_gbs * profile.share_small, rate) * 1e9)
    if work.uses_cpu:
        share = achieved_share(profile, cpu_bytes / max(1, work.layers))
        rate = min(ram_gbs * share, _core_limit(work, profile))
        terms["ram"] = cpu_bytes / (rate * 1e9)
    if work.uses_gpu:
        terms["vram"] = gpu_bytes / (speeds.vram_gbs * 1e9 * profile.gpu_share)
        layer = profile.gpu_layer_s + (profile.handoff_s if work.uses_cpu else 0.0)
    else:
        layer = profile.cpu_layer_s
    terms["layers"] = work.layers * layer
    return terms


def _prefill_seconds(work: Work, speeds: Speeds, profile: EngineProfile) -> float:
    """Per token of a prompt of CONVERSATION tokens: two operations per weight, attention over half of the prompt on
    average, and a chunk's share of the fixed costs."""
    gops = profile.gops_per_core.get((work.code, work.tier), SLOWEST_GOPS) * work.threads
    seconds = 2 * work.cpu_values / (gops * 1e9) if work.uses_cpu else 0.0
    attention = work.attention_ops * min(CONVERSATION, work.context) / 2
    if work.uses_gpu:
        operations = 2 * work.gpu_values + (attention if work.kv_on_gpu else 0)
        seconds += operations / (speeds.teraflops * 1e12 * profile.gpu_prefill_share)
    if not work.kv_on_gpu:
        seconds += attention / (profile.attention_gops[work.attention_tier] * work.threads * 1e9)
    fixed = work.layers * (profile.gpu_layer_s if work.uses_gpu else profile.cpu_layer_s)
    return seconds + (fixed + work.gpu_experts * profile.gpu_expert_s) / PREFILL_CHUNK


def _core_limit(work: Work, profile: EngineProfile) -> float:
    """GB/s that the cores get through, however fast the RAM is."""
    return work.threads * profile.core_gbs.get((work.code, work.tier), math.inf)


def _bottleneck(terms: Mapping[str, float], work: Work, speeds: Speeds, profile: EngineProfile) -> str:
    largest = max(terms, key=lambda name: terms[name])
    if largest == "ram":
        read = work.cpu_expert_bytes + work.cpu_dense_bytes
        what = "weights" if work.cpu_dense_bytes else "experts"
        if _core_limit(work, profile) < speeds.ram.likely * profile.share_large:
            return f"limited by arithmetic: {_gb(read)} of {what} per token on the slow {work.tier} kernels"
        rate = f"{speeds.ram.likely:.0f} GB/s{_source(speeds)}"
        return f"limited by RAM bandwidth: {_gb(read)} of {what} per token at {rate}"
    if largest == "vram":
        return f"limited by VRAM bandwidth: {_gb(work.gpu_bytes)} of weights per token at {speeds.vram_gbs:.0f} GB/s"
    if largest == "attention":
        return f"limited by attention over the conversation, {min(CONVERSATION, work.context)} tokens of it"
    each = terms["layers"] / max(1, work.layers)
    return f"limited by the fixed cost of each layer: {work.layers} layers at about {each * 1e6:.0f} us (an estimate)"


def _source(speeds: Speeds) -> str:
    source = speeds.ram.source
    if source == "measured":
        return ""
    if source:
        return f" (not measured: assumed from {source})"
    return " (not measured: a guess for an unknown CPU)"


def _gb(nbytes: int) -> str:
    return f"{nbytes / 1e9:.2f} GB" if nbytes >= 1e8 else f"{nbytes / 1e6:.0f} MB"
