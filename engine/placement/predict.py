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
from collections import defaultdict
from collections.abc import Sequence

from engine.placement.plan import CONVERSATION, Prediction, Range, TimePart
from engine.placement.profiles import GREENROOM, SLOWEST_GOPS, EngineProfile
from engine.placement.sizes import PREFILL_CHUNK as CHUNK
from engine.placement.token_time import achieved_share, core_limit, token_time
from engine.placement.work import Speeds, Work
from engine.units import size_fine
from engine.words import say


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
        return 1 / sum(part.seconds for part in token_time(work, speeds, profile, ram_gbs, kv, hits))

    hits = work.hits
    prefill = 1 / _prefill_seconds(work, speeds, profile, prompt, chunk)
    parts = token_time(work, speeds, profile, speeds.ram.likely, short, hits.likely)
    likely = 1 / sum(part.seconds for part in parts)
    return Prediction(
        decode_tps=Range(
            low * min(likely, tokens_per_second(speeds.ram.low, short, hits.even)),
            likely,
            high * max(likely, tokens_per_second(speeds.ram.high, short, hits.steady)),
        ),
        prefill_tps=Range(profile.prefill_spread[0] * prefill, prefill, profile.prefill_spread[1] * prefill),
        bottleneck=_bottleneck(parts, work, speeds, profile),
        full_context_tps=tokens_per_second(speeds.ram.likely, work.kv_bytes, hits.likely),
        token_time=tuple(parts),
    )


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
        computed += work.cpu_between * profile.between_s[work.between_tier] / work.threads
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


def _bottleneck(parts: Sequence[TimePart], work: Work, speeds: Speeds, profile: EngineProfile) -> str:
    terms: dict[str, float] = defaultdict(float)
    for part in parts:
        terms[part.kind] += part.seconds
    largest = max(terms, key=lambda name: terms[name])
    if largest == "ram":
        read = work.cpu_expert_bytes + work.cpu_dense_bytes
        what = say("weights") if work.cpu_dense_bytes else say("experts")
        read -= round(work.cpu_expert_bytes * work.hits.likely)
        if core_limit(work, profile) < speeds.ram.likely * profile.share_large:
            return say(
                "limited by arithmetic: {read} of {what} per token on the slow {tier} kernels",
                read=size_fine(read),
                what=what,
                tier=work.tier,
            )
        return say(
            "limited by RAM bandwidth: {read} of {what} per token at {rate}",
            read=size_fine(read),
            what=what,
            rate=_rate(speeds),
        )
    if largest == "vram":
        return say(
            "limited by VRAM bandwidth: {read} of weights per token at {rate:.0f} GB/s",
            read=size_fine(work.gpu_bytes),
            rate=speeds.vram_gbs,
        )
    if largest == "attention":
        tokens = min(CONVERSATION, work.context)
        return say(
            "limited by attention over the conversation, %n tokens of it",
            n=tokens,
            one="limited by attention over the conversation, %n token of it",
        )
    each = terms["layers"] / max(1, work.layers)
    return say(
        "limited by the fixed cost of each layer: %n layers at about {each:.0f} µs (an estimate)",
        n=work.layers,
        one="limited by the fixed cost of each layer: %n layer at about {each:.0f} µs (an estimate)",
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
