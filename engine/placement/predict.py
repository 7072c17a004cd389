"""How fast a plan should be, from bytes and bandwidth.

Decode reads every active weight once per token, so its time is bytes / achieved bandwidth plus a fixed cost per layer
and expert; weights that the last-level cache kept from the token before cost less, and what the GPU computes of a
layer's experts it computes beside the CPU. Reading a prompt re-uses each weight for many tokens, so its time is
arithmetic / achieved operations per second and the work on the numbers between two matrices, or that of sending the
experts to the GPU once. Decode is said for a short conversation and once more for a full one, because attention grows
with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from engine.placement.machines import Bandwidth
from engine.placement.plan import Prediction, Range
from engine.placement.profiles import GREENROOM, REGIONS, SLOWEST_GOPS, EngineProfile, attention_tier
from engine.placement.sizes import PREFILL_CHUNK as CHUNK
from engine.words import say

#: Tokens in the conversation that a prediction speaks of, and in the prompt.
CONVERSATION = 512
#: Of the last-level cache this share holds weights from one token to the next, and what is read there takes this share
#: of the time (measured with 2 cores and 32 MiB: 15 to 30 MB were kept, at 0.4 to 0.5 of the time).
CACHE_KEEPS, CACHED_COST = 0.6, 0.4
#: Active expert bytes per layer up to which the fixed costs rule, and from which bandwidth does.
SMALL_LAYER_BYTES = 25e6
LARGE_LAYER_BYTES = 100e6


@dataclass(frozen=True)
class Hits:
    """Shares of a token's experts that lie in VRAM: when choices are even, usually, and when they stay among a few."""

    even: float
    likely: float
    steady: float


NO_HITS = Hits(0.0, 0.0, 0.0)


def expected_hits(share: float, active: float) -> Hits:
    """Where the most recently used `share` of all experts is cached in VRAM; active: the share that one token uses.

    Published: 12 % of 512 experts served 67 % of the uses, 25 % of them 81 %; 10 % of another model's a third. A choice
    without any habit would be served by its share, and so is one where not even a token's experts have room.
    """
    share = min(1.0, max(0.0, share))
    room = min(1.0, share / active) if active > 0 else 1.0
    return Hits(share, max(share, room * share**0.5), max(share, room * share**0.2))


@dataclass(frozen=True)
class Work:
    """What one token costs under a plan. Bytes are as they lie in memory.

    cpu_expert_bytes:  routed experts read from RAM
    cpu_dense_bytes:   everything else read from RAM
    gpu_bytes:         everything read from VRAM
    gpu_beside_bytes:  of that what is read while the CPU computes experts: shared and cached ones
    streamed_bytes:    routed experts that a prompt can be read with on the GPU, once each has been sent there; 0 = none
    streamed_experts:  how many that are
    context:           tokens a full KV cache holds
    kv_bytes:          traffic of attention over a full KV cache
    short_kv_bytes:    the same in a conversation of CONVERSATION tokens; None where it grows in proportion
    kv_on_gpu:         which memory it loads, and which device computes attention
    attention_ops:     operations of attention per token and token in the cache, while a prompt is read
    cpu_values, gpu_values: weights multiplied with while a prompt is read
    cpu_between:       numbers between the CPU's matrices, per token of a prompt
    cpu_experts:       routed experts of a token over all layers, those that VRAM serves included
    all_expert_bytes:  of all routed experts in RAM; a prompt reads those that any of its tokens chose
    active_share:      of a layer's experts, those that one token chooses
    cached_bytes:      weights of a token that the CPU's cache kept from the one before
    gpu_experts:       routed experts of all layers that the GPU computes
    code, tier:        of the kernels that read from RAM
    hit_bytes:         VRAM traffic of a token whose experts all lie in VRAM
    hits:              share of the experts' uses that VRAM serves; cpu_expert_bytes and gpu_beside_bytes are without it
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
    cpu_between: int = 0
    cpu_experts: int = 0
    all_expert_bytes: int = 0
    active_share: float = 0.0
    cached_bytes: int = 0
    short_kv_bytes: int | None = None
    gpu_beside_bytes: int = 0
    streamed_bytes: int = 0
    streamed_experts: int = 0
    hit_bytes: int = 0
    hits: Hits = NO_HITS

    @property
    def attention_tier(self) -> str:
        return attention_tier(self.tier)

    @property
    def uses_cpu(self) -> bool:
        return self.cpu_expert_bytes + self.cpu_dense_bytes > 0

    @property
    def uses_gpu(self) -> bool:
        return self.gpu_bytes > 0


@dataclass(frozen=True)
class Speeds:
    """The machine's side: RAM reads with their range, VRAM reads (GB/s), the GPU's 16-bit matrix rate (TFLOP/s), and
    what its link carries from page-locked RAM (GB/s).
    """

    ram: Bandwidth
    vram_gbs: float
    teraflops: float
    link_gbs: float = 12.0


def achieved_share(profile: EngineProfile, layer_bytes: float) -> float:
    """Between the two measured regimes, linear in the logarithm of the active bytes per layer."""
    if layer_bytes <= 0:
        return profile.share_small
    position = math.log(layer_bytes / SMALL_LAYER_BYTES) / math.log(LARGE_LAYER_BYTES / SMALL_LAYER_BYTES)
    return profile.share_small + (profile.share_large - profile.share_small) * min(1.0, max(0.0, position))


def predict(
    work: Work, speeds: Speeds, profile: EngineProfile = GREENROOM, *, prompt: int = CONVERSATION, chunk: int = CHUNK
) -> Prediction:
    """Tokens per second with their range, and the sentence that says what limits decode.

    prompt: tokens of it, read in chunks of so many
    """
    low, high = profile.spread
    short = work.short_kv_bytes
    if short is None:
        short = round(work.kv_bytes * min(1.0, CONVERSATION / max(1, work.context)))

    def tokens_per_second(ram_gbs: float, kv: int, hits: float) -> float:
        return 1 / sum(_decode_terms(work, speeds, profile, ram_gbs, kv, hits).values())

    hits = work.hits
    prefill = 1 / _prefill_seconds(work, speeds, profile, prompt, chunk)
    likely = tokens_per_second(speeds.ram.likely, short, hits.likely)
    return Prediction(
        decode_tps=Range(
            low * min(likely, tokens_per_second(speeds.ram.low, short, hits.even)),
            likely,
            high * max(likely, tokens_per_second(speeds.ram.high, short, hits.steady)),
        ),
        prefill_tps=Range(profile.prefill_spread[0] * prefill, prefill, profile.prefill_spread[1] * prefill),
        bottleneck=_bottleneck(
            _decode_terms(work, speeds, profile, speeds.ram.likely, short, hits.likely), work, speeds, profile
        ),
        full_context_tps=tokens_per_second(speeds.ram.likely, work.kv_bytes, hits.likely),
    )


def _decode_terms(
    work: Work, speeds: Speeds, profile: EngineProfile, ram_gbs: float, kv: int, hits: float
) -> dict[str, float]:
    """Seconds per token by what they are spent on; kv is what attention reads of the KV cache, in bytes."""
    missed = round(work.cpu_expert_bytes * (1 - hits))
    cpu_bytes = missed + work.cpu_dense_bytes
    vram_rate = speeds.vram_gbs * 1e9 * profile.gpu_share
    terms = {"ram": 0.0, "vram": 0.0, "attention": 0.0, "layers": 0.0}
    if not work.kv_on_gpu:
        rate = work.threads * profile.kv_core_gbs[work.attention_tier]
        terms["attention"] = kv / (min(ram_gbs * profile.share_small, rate) * 1e9)
    if work.uses_cpu:
        share = achieved_share(profile, cpu_bytes / max(1, work.layers))
        rate = min(ram_gbs * share, _core_limit(work, profile))
        terms["ram"] = (cpu_bytes - (1 - CACHED_COST) * min(work.cached_bytes, cpu_bytes)) / (rate * 1e9)
    if work.uses_gpu:
        beside = (work.gpu_beside_bytes + hits * work.hit_bytes) / vram_rate
        alone = work.gpu_bytes - work.gpu_beside_bytes + (kv if work.kv_on_gpu else 0)
        terms["vram"] = alone / vram_rate + max(0.0, beside - terms["ram"])
        layer = profile.gpu_layer_s
        if work.uses_cpu:
            layer += profile.handoff_s + profile.region_s * work.threads
    else:
        layer = profile.cpu_layer_s + REGIONS * profile.region_s * work.threads
    terms["layers"] = work.layers * layer + work.cpu_experts * (1 - hits) * profile.expert_s
    return terms


def _prefill_seconds(work: Work, speeds: Speeds, profile: EngineProfile, prompt: int, chunk: int) -> float:
    """Per token of a prompt: two operations per weight, the numbers between, attention over half of the prompt on
    average, and a chunk's share of reading the weights and of the fixed costs. Experts are computed on the CPU, or sent
    to the GPU once a chunk where that is quicker.
    """
    prompt = min(prompt, work.context)
    chunk = min(chunk, prompt)
    gops = profile.gops_per_core.get((work.code, work.tier), SLOWEST_GOPS) * work.threads
    matrix_rate = speeds.teraflops * 1e12 * profile.gpu_prefill_share
    on_cpu = 0.0
    if work.uses_cpu:
        computed = 2 * work.cpu_values / (gops * 1e9)
        computed += work.cpu_between * profile.between_s[work.attention_tier] / work.threads
        chosen = work.all_expert_bytes * (1 - (1 - work.active_share) ** chunk)
        rate = speeds.ram.likely * achieved_share(profile, (chosen + work.cpu_dense_bytes) / max(1, work.layers))
        read = (chosen + work.cpu_dense_bytes) / (rate * 1e9 * chunk)
        # Reading runs ahead of computing, but not all the time: between the longer of the two and their sum. Measured
        # from 16 to 2048 tokens this is within 10 %.
        on_cpu = math.hypot(computed, read)
    if work.streamed_bytes:
        sent = work.streamed_bytes / (chunk * speeds.link_gbs * 1e9 * profile.link_share)
        launched = work.streamed_experts * profile.gpu_expert_s / chunk
        on_cpu = min(on_cpu, max(sent, 2 * work.cpu_values / matrix_rate + launched))
    seconds = on_cpu
    attention = work.attention_ops * prompt / 2
    if work.uses_gpu:
        operations = 2 * work.gpu_values + (attention if work.kv_on_gpu else 0)
        seconds += operations / matrix_rate
    if not work.kv_on_gpu:
        seconds += attention / (profile.attention_gops[work.attention_tier] * work.threads * 1e9)
    fixed = work.layers * (profile.gpu_layer_s if work.uses_gpu else profile.cpu_layer_s)
    return seconds + (fixed + work.gpu_experts * profile.gpu_expert_s) / chunk


def _core_limit(work: Work, profile: EngineProfile) -> float:
    """GB/s that the cores get through, however fast the RAM is."""
    return work.threads * profile.core_gbs.get((work.code, work.tier), math.inf)


def _bottleneck(terms: Mapping[str, float], work: Work, speeds: Speeds, profile: EngineProfile) -> str:
    largest = max(terms, key=lambda name: terms[name])
    if largest == "ram":
        read = work.cpu_expert_bytes + work.cpu_dense_bytes
        what = say("weights") if work.cpu_dense_bytes else say("experts")
        read -= round(work.cpu_expert_bytes * work.hits.likely)
        if _core_limit(work, profile) < speeds.ram.likely * profile.share_large:
            return say(
                "limited by arithmetic: {read} of {what} per token on the slow {tier} kernels",
                read=_gb(read),
                what=what,
                tier=work.tier,
            )
        return say(
            "limited by RAM bandwidth: {read} of {what} per token at {rate}",
            read=_gb(read),
            what=what,
            rate=_rate(speeds),
        )
    if largest == "vram":
        return say(
            "limited by VRAM bandwidth: {read} of weights per token at {rate:.0f} GB/s",
            read=_gb(work.gpu_bytes),
            rate=speeds.vram_gbs,
        )
    if largest == "attention":
        tokens = min(CONVERSATION, work.context)
        return say("limited by attention over the conversation, {tokens} tokens of it", tokens=tokens)
    each = terms["layers"] / max(1, work.layers)
    return say(
        "limited by the fixed cost of each layer: {layers} layers at about {each:.0f} us (an estimate)",
        layers=work.layers,
        each=each * 1e6,
    )


def _rate(speeds: Speeds) -> str:
    """With where it is from, unless it was measured."""
    rate, source = speeds.ram.likely, speeds.ram.source
    if source == "measured":
        return f"{rate:.0f} GB/s"
    if source:
        return say("{rate:.0f} GB/s (not measured: assumed from {source})", rate=rate, source=source)
    return say("{rate:.0f} GB/s (not measured: a guess for an unknown CPU)", rate=rate)


def _gb(nbytes: int) -> str:
    return f"{nbytes / 1e9:.2f} GB" if nbytes >= 1e8 else f"{nbytes / 1e6:.0f} MB"
