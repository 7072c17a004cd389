"""What the time of one token is made of: seconds, and the arithmetic that gives them, in words.

The seconds of all parts together are the predicted time of a token, so each sentence has every number of its own part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from engine.placement.plan import TimePart
from engine.placement.profiles import REGIONS, EngineProfile
from engine.placement.work import Speeds, Work
from engine.units import size_fine
from engine.words import say

#: Of the last-level cache this share holds weights from one token to the next, and what is read there takes this share
#: of the time (measured with 2 cores and 32 MiB: 15 to 30 MB were kept, at 0.4 to 0.5 of the time).
CACHE_KEEPS, CACHED_COST = 0.6, 0.4
#: Active expert bytes per layer up to which the fixed costs rule, and from which bandwidth does.
SMALL_LAYER_BYTES = 25e6
LARGE_LAYER_BYTES = 100e6


def achieved_share(profile: EngineProfile, layer_bytes: float) -> float:
    """Between the two measured regimes, linear in the logarithm of the active bytes per layer."""
    if layer_bytes <= 0:
        return profile.share_small
    position = math.log(layer_bytes / SMALL_LAYER_BYTES) / math.log(LARGE_LAYER_BYTES / SMALL_LAYER_BYTES)
    return profile.share_small + (profile.share_large - profile.share_small) * min(1.0, max(0.0, position))


def core_limit(work: Work, profile: EngineProfile) -> float:
    """GB/s that the cores get through, however fast the RAM is."""
    return work.threads * profile.core_gbs.get((work.code, work.tier), math.inf)


def token_time(
    work: Work, speeds: Speeds, profile: EngineProfile, ram_gbs: float, kv: int, hits: float
) -> list[TimePart]:
    """The parts of a token's time. kv: what attention reads of the KV cache, in bytes; hits: share of the experts' uses
    that VRAM serves.
    """
    parts: list[TimePart] = []

    def add(kind: str, seconds: float, said: str) -> None:
        if seconds > 0:
            parts.append(TimePart(kind, seconds, said))

    from_ram = _from_ram(work, profile, ram_gbs, hits)
    parts += from_ram
    if not work.kv_on_gpu:
        cores = work.threads * profile.kv_core_gbs[work.attention_tier]
        rate = min(ram_gbs * profile.share_small, cores)
        if rate == cores:
            how = say("the limit of {threads}", threads=_threads(work))
        else:
            how = say("{share:.1%} of the RAM's {ram:.1f} GB/s", share=profile.share_small, ram=ram_gbs)
        add(
            "attention",
            kv / (rate * 1e9),
            say("attention: {read} of the KV cache at {rate:.1f} GB/s, {how}", read=size_fine(kv), rate=rate, how=how),
        )
    if work.uses_gpu:
        _on_the_gpu(work, speeds, profile, kv, hits, sum(part.seconds for part in from_ram), add)
    else:
        waits = REGIONS * profile.region_s * work.threads
        add(
            "layers",
            work.layers * (profile.cpu_layer_s + waits),
            say(
                "fixed costs of %n layers: {each:.1f} µs each, and {waits:.1f} µs of waiting with {threads}",
                n=work.layers,
                one="fixed costs of %n layer: {each:.1f} µs, and {waits:.1f} µs of waiting with {threads}",
                each=profile.cpu_layer_s * 1e6,
                waits=waits * 1e6,
                threads=_threads(work),
            ),
        )
    missed = work.cpu_experts * (1 - hits)
    add(
        "layers",
        missed * profile.expert_s,
        say(
            "starting experts on the CPU, {experts:.4g} of them: {each:.1f} µs each",
            experts=missed,
            each=profile.expert_s * 1e6,
        ),
    )
    return parts


def _from_ram(work: Work, profile: EngineProfile, ram_gbs: float, hits: float) -> list[TimePart]:
    experts = round(work.cpu_expert_bytes * (1 - hits))
    read = experts + work.cpu_dense_bytes
    if not read:
        return []
    share = achieved_share(profile, read / max(1, work.layers))
    cores = core_limit(work, profile)
    rate = min(ram_gbs * share, cores)
    if rate == cores:
        how = say("the limit of {threads} with the {tier} kernels", threads=_threads(work), tier=work.tier)
    else:
        how = say("{share:.1%} of the RAM's {ram:.1f} GB/s", share=share, ram=ram_gbs)
    what = say("weights") if work.cpu_dense_bytes else say("experts")
    kept = min(work.cached_bytes, read)
    parts = []
    if read > kept:
        said = say(
            "{read} of {what} from RAM at {rate:.1f} GB/s, {how}",
            read=size_fine(read - kept),
            what=what,
            rate=rate,
            how=how,
        )
        parts.append(TimePart("ram", (read - kept) / (rate * 1e9), said))
    if kept:
        said = say(
            "{read} of {what} that the CPU's cache kept, at {cost:.0%} of the time: {rate:.1f} GB/s, {how}",
            read=size_fine(kept),
            what=what,
            cost=CACHED_COST,
            rate=rate,
            how=how,
        )
        parts.append(TimePart("ram", CACHED_COST * kept / (rate * 1e9), said))
    return parts


def _on_the_gpu(
    work: Work,
    speeds: Speeds,
    profile: EngineProfile,
    kv: int,
    hits: float,
    cpu_s: float,
    add: Callable[[str, float, str], None],
) -> None:
    """cpu_s: while which the GPU computes its own experts."""
    rate = speeds.vram_gbs * 1e9 * profile.gpu_share
    how: dict[str, Any] = {"rate": rate / 1e9, "share": profile.gpu_share, "vram": speeds.vram_gbs}
    alone = work.gpu_bytes - work.gpu_beside_bytes
    add(
        "vram",
        alone / rate,
        say(
            "{read} of weights from VRAM at {rate:.1f} GB/s, {share:.1%} of its {vram:.1f} GB/s",
            read=size_fine(alone),
            **how,
        ),
    )
    if work.kv_on_gpu:
        add(
            "vram",
            kv / rate,
            say("attention: {read} of the KV cache from VRAM at {rate:.1f} GB/s", read=size_fine(kv), rate=rate / 1e9),
        )
    beside = work.gpu_beside_bytes + hits * work.hit_bytes
    add(
        "vram",
        max(0.0, beside / rate - cpu_s),
        say(
            "{read} of experts on the GPU at {rate:.1f} GB/s, less the {cpu:.3f} ms that the CPU computes beside it",
            read=size_fine(round(beside)),
            rate=rate / 1e9,
            cpu=cpu_s * 1e3,
        ),
    )
    add(
        "layers",
        work.layers * profile.gpu_layer_s,
        say(
            "starting the GPU's work in %n layers: {each:.1f} µs each",
            n=work.layers,
            one="starting the GPU's work in %n layer: {each:.1f} µs",
            each=profile.gpu_layer_s * 1e6,
        ),
    )
    if work.uses_cpu:
        waits = profile.region_s * work.threads
        add(
            "layers",
            work.layers * (profile.handoff_s + waits),
            say(
                "handing over between GPU and CPU in %n layers: {each:.1f} µs each, and {waits:.1f} µs of waiting "
                "with {threads}",
                n=work.layers,
                one="handing over between GPU and CPU in %n layer: {each:.1f} µs, and {waits:.1f} µs of waiting with "
                "{threads}",
                each=profile.handoff_s * 1e6,
                waits=waits * 1e6,
                threads=_threads(work),
            ),
        )


def _threads(work: Work) -> str:
    return say("%n threads", n=work.threads, one="%n thread")
