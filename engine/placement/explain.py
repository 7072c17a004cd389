"""The arithmetic of a plan in plain words."""

from __future__ import annotations

from typing import Any

from engine.hardware.simulated import is_simulated
from engine.models.spec import KV_TYPES, LatentAttentionSpec
from engine.placement import sizes
from engine.placement.amounts import addition, rounded_parts
from engine.placement.candidates import Candidate, Problem, Room
from engine.placement.estimate import cache_hits, cached_share
from engine.placement.plan import LABELS, Prediction, label_with_cache
from engine.units import size_down, size_up, unit_for
from engine.words import say


def label(problem: Problem, chosen: Candidate, mode: str) -> str:
    """The label of LABELS, completed with what is missing, or how many experts have a copy in VRAM."""
    if mode == "hybrid" and (percent := _cached_percent(problem, chosen)):
        return label_with_cache(percent)
    if mode != "tight":
        return LABELS[mode]
    ram, vram = _missing(chosen.ram_total, chosen.ram_room), _missing(chosen.vram_total, chosen.vram_room)
    if not chosen.missing_vram:
        return say("Tight: needs {ram} more free RAM", ram=ram)
    if not chosen.missing_ram:
        return say("Tight: needs {vram} more free VRAM", vram=vram)
    return say("Tight: needs {ram} more free RAM and {vram} more free VRAM", ram=ram, vram=vram)


def explanation(
    problem: Problem, chosen: Candidate, mode: str, prediction: Prediction, rival: Prediction | None = None
) -> list[str]:
    """One sentence each: why this mode, the sums, the KV cache, what happens to the weights.

    rival: of a slower plan with the GPU that was not taken, or of a faster one on the CPU
    """
    lines = [_why(problem, chosen, mode) if rival is None else _why_this(problem, mode, prediction, rival)]
    wishes = problem.wishes
    keeper = say("the system") if wishes.leave_ram is None else say("other programs, as asked for")
    lines.append(_sum("RAM", keeper, chosen.ram, chosen.ram_room, chosen.missing_ram, mode))
    if chosen.vram:
        keeper = say("the desktop") if wishes.leave_vram is None else say("other programs, as asked for")
        lines.append(_sum("VRAM", keeper, chosen.vram, chosen.vram_room, chosen.missing_vram, mode))
    if is_simulated(chosen.device):
        lines.append(
            say(
                "The simulated accelerator is played by the processor, operation by operation: it is slow, its speeds "
                "are rough guesses, and they say nothing about a real GPU."
            )
        )
    lines += _cached(problem, chosen)
    lines.append(_context(problem, chosen))
    if chosen.kv_type == "bf16" and problem.wishes.kv_type == "auto" and not chosen.vram:
        lines.append(say("It is kept in bf16: this CPU multiplies twice as many of these numbers at once as in f16."))
    lines += _weights(problem, chosen)
    if problem.wishes.unload_bytes:
        freed = size_down(problem.wishes.unload_bytes)
        lines.append(say("The free RAM counts {freed} of the model loaded now.", freed=freed))
    return lines


def _cached_percent(problem: Problem, chosen: Candidate) -> int:
    return int(100 * cached_share(problem, chosen))


def _cached(problem: Problem, chosen: Candidate) -> list[str]:
    """What the slots in VRAM are taken to bring."""
    share = cached_share(problem, chosen)
    if chosen.mode != "hybrid" or not share:
        return []
    experts = sum(moe.experts for moe, _ in problem.inventory.experts)
    if share == 1:
        return [
            say(
                "VRAM has room for copies of all %n experts; they lie in RAM as well.",
                n=experts,
                one="VRAM has room for a copy of its %n expert; it lies in RAM as well.",
            )
        ]
    hits = cache_hits(problem, chosen)
    return [
        say(
            "VRAM has room for copies of {slots} of {experts} experts, those used last and most; the prediction "
            "assumes that about {likely:.0%} of all uses find one there ({even:.0%} to {steady:.0%}).",
            slots=chosen.hot_slots,
            experts=experts,
            likely=hits.likely,
            even=hits.even,
            steady=hits.steady,
        )
    ]


def _why_this(problem: Problem, mode: str, taken: Prediction, rival: Prediction) -> str:
    """Where both devices were weighed, with both figures."""
    facts: dict[str, Any] = {
        "label": LABELS[mode],
        "gpu": problem.gpu[1].name if problem.gpu is not None else "",
        "here": tps(taken.decode_tps.likely),
        "there": tps(rival.decode_tps.likely),
    }
    if mode == "cpu":
        return say(
            "{label}: by prediction faster here, about {here} tok/s against {there} with the experts in RAM and the "
            "rest on {gpu}.",
            **facts,
        )
    if mode == "hybrid":
        return say(
            "{label}, as asked for: by prediction about {here} tok/s with {gpu} against {there} on the CPU alone.",
            **facts,
        )
    return say(
        "{label}: the whole model fits in the free memory of {gpu}. By prediction that gives about {here} tok/s "
        "against {there} on the CPU, which stays free for other work.",
        **facts,
    )


def tps(speed: float) -> str:
    return f"{speed:.1f}" if speed < 10 else f"{speed:.0f}"


def _why(problem: Problem, chosen: Candidate, mode: str) -> str:
    gpu = problem.gpu[1].name if problem.gpu is not None else ""
    short = LABELS[mode]
    if mode == "too_large":
        return say("{label}: it would not fit even if no other program ran.", label=short)
    if mode == "tight":
        return say("{label}; it would fit if other programs were closed.", label=label(problem, chosen, mode))
    if mode == "all_gpu" and is_simulated(chosen.device):
        return say("{label}: the whole model fits in the free memory of {gpu}.", label=short, gpu=gpu)
    if mode == "all_gpu":
        return say(
            "{label}: the whole model fits in the free memory of {gpu}, where it is fastest.", label=short, gpu=gpu
        )
    if mode == "hybrid":
        return say(
            "{label}: the whole model does not fit in the free memory of {gpu}; all but its experts does.",
            label=short,
            gpu=gpu,
        )
    if problem.wishes.device == "cpu":
        return say("{label}, as asked for.", label=short)
    if problem.gpu is None:
        return say("{label}: {why}.", label=short, why=problem.no_gpu_reason)
    if not problem.spec.is_moe:
        return say(
            "{label}: the model does not fit in the free memory of {gpu}, and it has no experts to keep in RAM.",
            label=short,
            gpu=gpu,
        )
    return say(
        "{label}: even without its experts the model does not fit in the free memory of {gpu}.", label=short, gpu=gpu
    )


def _sum(memory: str, keeper: str, parts: dict[str, int], room: Room, missing: int, mode: str) -> str:
    need = sum(parts.values())
    unit = unit_for(need)
    facts: dict[str, Any] = {"memory": memory, "sum": addition(parts, unit), "keeper": keeper}
    if not missing:
        return say(
            "{memory}: {sum}, and {reserve} is kept back for {keeper}; {free} is free.",
            reserve=size_up(room.reserve),
            free=size_down(room.free),
            **facts,
        )
    # From here on the numbers must give the last one as written, so all are in one unit.
    facts["reserve"] = unit.write(unit.up(room.reserve))
    if mode == "too_large" and need + room.reserve > room.total:
        lacking = unit.up(need) + unit.up(room.reserve) - unit.down(room.total)
        return say(
            "{memory}: {sum}, and {reserve} is kept back for {keeper}; the PC has {total}, {lacking} too little.",
            total=unit.write(unit.down(room.total)),
            lacking=unit.write(lacking),
            **facts,
        )
    return say(
        "{memory}: {sum}, and {reserve} is kept back for {keeper}; {free} is free, {lacking} too little.",
        free=unit.write(unit.down(room.free)),
        lacking=_missing(need, room),
        **facts,
    )


def _missing(need: int, room: Room) -> str:
    """So rounded that needed + kept back - free, as written, gives it."""
    unit = unit_for(need)
    return unit.write(unit.up(need) + unit.up(room.reserve) - unit.down(room.free))


def _context(problem: Problem, chosen: Candidate) -> str:
    spec = problem.spec
    number, scale = KV_TYPES[chosen.kv_type]
    tokens = say("%n tokens", n=problem.context, one="%n token")
    if problem.context != spec.context_length:
        tokens = say(
            "%n tokens of the {most} this model allows",
            n=problem.context,
            one="%n token of the {most} this model allows",
            most=spec.context_length,
        )
    traffic = sizes.kv_traffic(spec, 1, chosen.kv_type)
    line = say(
        "The KV cache is the memory of the conversation: {tokens} at {traffic} each",
        tokens=tokens,
        traffic=_bytes(traffic),
    )
    kept = [attention.kept(problem.context) for attention in spec.attentions]
    short = [tokens for tokens in kept if tokens < problem.context]
    if short:
        line = say(
            "The KV cache is the memory of the conversation: {kv_bytes} for {tokens}; layers with a window, {short} "
            "of {layers}, keep only the last {last} of them, and a copy to go back to",
            kv_bytes=size_up(spec.kv_bytes(problem.context, chosen.kv_type)),
            tokens=tokens,
            short=len(short),
            layers=len(spec.layers),
            last=max(short),
        )
    layers = say("%n layers", n=len(spec.layers), one="%n layer")
    facts: dict[str, Any] = {
        "line": line,
        "layers": layers,
        "number": _bytes(number),
        "scale": scale,
        "kv_type": chosen.kv_type,
    }
    latent = {(a.latent, a.rotated) for a in spec.attentions if isinstance(a, LatentAttentionSpec)}
    if len(latent) == 1 and len(spec.attentions) == len(spec.layers):
        kept_numbers, rotated = latent.pop()
        facts |= {"latent": kept_numbers, "rotated": rotated}
        facts["total"] = size_up(spec.kv_bytes(problem.context, chosen.kv_type))
        if scale:
            return say(
                "{line}: {layers} x ({latent} latent + {rotated} position numbers) x {number} + {scale} bytes of "
                "scale ({kv_type}), {total} in all.",
                **facts,
            )
        return say(
            "{line}: {layers} x ({latent} latent + {rotated} position numbers) x {number} ({kv_type}), {total} in all.",
            **facts,
        )
    kinds = {(attention.kv_heads, attention.head_dim) for attention in spec.attentions}
    if not short and len(kinds) == 1 and len(spec.attentions) == len(spec.layers):
        heads, facts["dim"] = kinds.pop()
        facts["heads"] = say("%n heads", n=heads, one="%n head")
        if scale:
            return say(
                "{line}: {layers} x 2 (keys, values) x {heads} x ({dim} numbers + {scale} bytes of scale) ({kv_type}).",
                **facts,
            )
        return say(
            "{line}: {layers} x 2 (keys, values) x {heads} x {dim} numbers x {number} ({kv_type}).",
            **facts,
        )
    return say("{line}.", line=line)


def _bytes(count: int) -> str:
    return say("%n bytes", n=count, one="%n byte")


def _weights(problem: Problem, chosen: Candidate) -> list[str]:
    """What happens to the weights on their way into memory."""
    inventory, wishes = problem.inventory, problem.wishes
    lines = []
    if chosen.vram:
        lines.append(_dense_weights(problem, chosen))
        if "experts" in chosen.vram:
            lines.append(say("Routed experts keep the codes that the file stores."))
    if "experts" not in chosen.ram:
        if wishes.experts != "stored":
            lines.append(
                say("Re-coding to {code} is not needed: the experts fit on the GPU unchanged.", code=wishes.experts)
            )
        return lines
    packed = chosen.ram["experts"]
    # As the sum above writes it.
    unit = unit_for(chosen.ram_total)
    written = unit.write(rounded_parts(chosen.ram, unit)["experts"])
    stored = sum(shape.stored_bytes * count for _, shapes in inventory.experts for shape, count in shapes.items())
    if chosen.experts not in ("stored", "float32"):
        formats = ", ".join(sorted(inventory.expert_formats()))
        lines.append(
            say(
                "Experts are re-coded from {formats} to {code} while loading ({stored} become {written}); this loses "
                "some accuracy.",
                formats=formats,
                code=chosen.experts,
                stored=size_up(stored),
                written=written,
            )
        )
    elif abs(packed - stored) > stored // 50:
        line = say(
            "The file stores the experts in {stored}; laid out for the kernels they take {written}",
            stored=size_up(stored),
            written=written,
        )
        kinds = sorted({shape.widened for _, shapes in inventory.experts for shape in shapes if shape.widened})
        if kinds:
            lines.append(
                say(
                    "{line}: those stored as {kinds} are held in wider codes, with the same values.",
                    line=line,
                    kinds=", ".join(kinds),
                )
            )
        else:
            lines.append(say("{line}.", line=line))
    return lines


def _dense_weights(problem: Problem, chosen: Candidate) -> str:
    held, loses = chosen.dense_dtype, chosen.dense_dtype in ("int4", "int8")
    if problem.spec.is_moe:
        line = say("On the GPU all weights but routed experts are held as {held}, whatever the file stores", held=held)
    else:
        line = say("On the GPU all weights are held as {held}, whatever the file stores", held=held)
    return say("{line}; this loses some accuracy.", line=line) if loses else say("{line}.", line=line)
