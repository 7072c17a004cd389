"""The parts of a plan and their sizes, rounded so that visible sums add up."""

from __future__ import annotations

from collections.abc import Mapping

from engine.units import Unit
from engine.words import joined, say

#: How each role is called in a sentence.
ROLE_NAMES = {
    "experts": say("routed experts"),
    "hot_experts": say("copies of routed experts"),
    "shared_experts": say("shared experts"),
    "dense_mlp": say("MLP layers"),
    "attention": say("attention"),
    "router_and_norms": say("router and norms"),
    "embeddings": say("embeddings"),
    "lm_head": say("output head"),
    "kv_cache": say("KV cache"),
    "buffers": say("program and buffers"),
}


def rounded_parts(parts: Mapping[str, int], unit: Unit) -> dict[str, int]:
    """Steps per part such that they add up to the rounded-up total (largest remainders get the spare steps)."""
    total = unit.up(sum(parts.values()))
    steps = {name: nbytes // unit.step for name, nbytes in parts.items()}
    by_remainder = sorted(parts, key=lambda name: parts[name] % unit.step, reverse=True)
    for name in by_remainder[: total - sum(steps.values())]:
        steps[name] += 1
    return steps


def addition(parts: Mapping[str, int], unit: Unit) -> str:
    """ "routed experts 17.2 GB + attention 0.8 GB = 18.0 GB"; parts that round to nothing are left out."""
    steps = {name: count for name, count in rounded_parts(parts, unit).items() if count}
    terms = [joined(" ", (title, unit.write(steps[name]))) for name, title in ROLE_NAMES.items() if name in steps]
    if len(terms) < 2:
        return terms[0] if terms else unit.write(0)
    return joined(" = ", (joined(" + ", terms), unit.write(sum(steps.values()))))
