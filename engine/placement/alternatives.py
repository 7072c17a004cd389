"""What else would work, each computed, none offered that would not really fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.placement import sizes
from engine.placement.candidates import Candidate, Problem, candidates, choose, with_wishes
from engine.placement.explain import tps
from engine.placement.plan import LABELS, Prediction
from engine.placement.profiles import multiplies_pairs
from engine.units import size_up
from engine.words import say

RUNNABLE = ("all_gpu", "hybrid", "cpu")
#: Files to look for instead, best first: format of most tensors and how such a file is usually called.
SMALLER_FILES = (("Q8_0", "Q8_0"), ("Q6_K", "Q6_K"), ("Q4_K", "Q4_K_M"), ("Q4_0", "Q4_0"))
SHORTEST_CONTEXT = 512
#: RAM comes in modules of whole powers of two gigabytes.
SMALLEST_MODULE = 8 << 30


def alternatives(problem: Problem, chosen: Candidate, mode: str) -> list[str]:
    """One sentence each, most useful first."""
    lines = []
    if mode not in RUNNABLE:
        lines += _narrower_cache(problem, chosen)
        lines += _shorter_context(problem)
        lines += _recoded(problem, say("would fit"))
        lines += _smaller_file(problem)
        lines += _more_ram(problem, chosen, mode)
    elif mode != "all_gpu":
        lines += _more_on_gpu(problem, mode)
        lines += _recoded(problem, say("would take less room and time"))
    return lines


def other_device(
    problem: Problem, mode: str, taken: Prediction, rival: tuple[Candidate, Prediction] | None
) -> list[str]:
    """The plan that was weighed as well, what it would bring, and how to have it."""
    if rival is None or problem.wishes.device != "auto":
        return []
    candidate, prediction = rival
    speed = prediction.decode_tps
    facts: dict[str, Any] = {
        "likely": tps(speed.likely),
        "low": tps(speed.low),
        "high": tps(speed.high),
        "prompts": tps(prediction.prefill_tps.likely),
        "here": tps(taken.prefill_tps.likely),
        "takes": _takes((candidate, candidate.mode)),
    }
    if mode == "cpu":
        return [
            say(
                "{takes}, would fit too: about {likely} tok/s ({low} to {high}), prompts at {prompts} tok/s instead of "
                '{here}. Choose "Prefer the GPU" in the settings, or --prefer-gpu, to have that.',
                **facts,
            )
        ]
    return [
        say(
            "{takes}, would fit too: about {likely} tok/s ({low} to {high}), prompts at {prompts} tok/s instead of "
            '{here}. Choose "Keep my GPU for games" in the settings, or --keep-gpu, to have that.',
            **facts,
        )
    ]


def _fitting(problem: Problem) -> tuple[Candidate, str] | None:
    candidate, mode = choose(problem)
    return (candidate, mode) if mode in RUNNABLE else None


def _narrower_cache(problem: Problem, chosen: Candidate) -> list[str]:
    if problem.wishes.dtype == "float32":
        return []
    bf16 = chosen.vram or multiplies_pairs(problem.report, problem.wishes.isa)
    kinds = ["bf16" if bf16 else "f16"] if chosen.kv_type == "f32" else []
    if chosen.kv_type != "q8":
        kinds.append("q8")
    for kind in kinds:
        if found := _fitting(with_wishes(problem, kv_type=kind)):
            return [
                say(
                    "A KV cache in {kind} instead of {chosen} would fit: {takes}.",
                    kind=kind,
                    chosen=chosen.kv_type,
                    takes=_takes(found),
                )
            ]
    return []


def _shorter_context(problem: Problem) -> list[str]:
    context = problem.context
    if _fitting(replace(problem, context=min(SHORTEST_CONTEXT, context))) is None:
        return []
    while (context := context // 2) >= SHORTEST_CONTEXT:
        if found := _fitting(replace(problem, context=context)):
            return [say("A context of {context} tokens would fit: {takes}.", context=context, takes=_takes(found))]
    return []


def _recoded(problem: Problem, gain: str) -> list[str]:
    """Experts re-coded at load: the most accurate code that fits, and what it would bring."""
    wishes = problem.wishes
    if wishes.experts != "stored" or wishes.dtype == "float32":
        return []
    if not problem.inventory.expert_formats() & sizes.RECODABLE:
        return []
    for code in ("int8", "int4"):
        found = _fitting(with_wishes(problem, experts=code))
        if found and found[0].experts == code:
            return [
                say(
                    "Experts re-coded to {code} while loading {gain}, with some loss of accuracy: {takes}.",
                    code=code,
                    gain=gain,
                    takes=_takes(found),
                )
            ]
    return []


def _smaller_file(problem: Problem) -> list[str]:
    stored = _stored_bytes(problem)
    for name, title in SMALLER_FILES:
        inventory = problem.inventory.stored_as(name)
        if inventory is None:
            continue
        smaller = with_wishes(replace(problem, inventory=inventory), experts="stored")
        size = _stored_bytes(smaller)
        if size < stored and (found := _fitting(smaller)):
            return [
                say(
                    "A {title} file of this model ({size}) would fit: {takes}.",
                    title=title,
                    size=size_up(size),
                    takes=_takes(found),
                )
            ]
    return []


def _stored_bytes(problem: Problem) -> int:
    inventory = problem.inventory
    groups = [*inventory.roles.values(), *(shapes for _, shapes in inventory.experts)]
    return sum(shape.stored_bytes * count for shapes in groups for shape, count in shapes.items())


def _more_ram(problem: Problem, chosen: Candidate, mode: str) -> list[str]:
    if not chosen.missing_ram or chosen.missing_vram:
        return []
    if mode == "tight":
        needed = size_up(chosen.ram_total + chosen.ram_room.reserve)
        return [say("Close other programs until {needed} of RAM is free.", needed=needed)]
    module = SMALLEST_MODULE
    while module < 1 << 50:
        # What is in use now stays in use; a larger machine also keeps more back.
        total, free = chosen.ram_room.total + module, chosen.ram_room.free + module
        leave = problem.wishes.leave_ram
        if chosen.ram_total + (sizes.ram_reserve(total) if leave is None else leave) <= free:
            return [say("{more} GB more RAM would make it fit.", more=module >> 30)]
        module *= 2
    return []


def _more_on_gpu(problem: Problem, mode: str) -> list[str]:
    """What a shorter conversation leaves room for: everything, or where nothing fits there now all but the experts."""
    if problem.gpu is None or problem.wishes.device == "cpu":
        return []
    wanted = {"all_gpu": say("everything")}
    if mode == "cpu" and all(candidate.missing_vram for candidate in candidates(problem) if candidate.vram):
        wanted["hybrid"] = say("everything but the routed experts")
    shortest = choose(replace(problem, context=min(SHORTEST_CONTEXT, problem.context)))[1]
    if shortest != "all_gpu":
        wanted.pop("all_gpu")
    lines: list[str] = []
    context = problem.context
    while wanted and (context := context // 2) >= SHORTEST_CONTEXT:
        candidate, found = choose(replace(problem, context=context))
        if found in wanted:
            what = wanted.pop(found)
            lines.append(
                say(
                    "With a context of {context} tokens {what} would fit on the GPU: {takes}.",
                    context=context,
                    what=what,
                    takes=_takes((candidate, found)),
                )
            )
        if found == "all_gpu":
            break
    return lines


def _takes(found: tuple[Candidate, str]) -> str:
    candidate, mode = found
    ram = size_up(candidate.ram_total)
    if not candidate.vram:
        return say("{label}, {ram} of RAM", label=LABELS[mode], ram=ram)
    return say(
        "{label}, {ram} of RAM and {vram} of VRAM", label=LABELS[mode], ram=ram, vram=size_up(candidate.vram_total)
    )
