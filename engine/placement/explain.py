"""The arithmetic of a plan in plain words."""

from __future__ import annotations

from engine.models.spec import KV_TYPES, LatentAttentionSpec
from engine.placement import sizes
from engine.placement.amounts import addition, amount, free_amount, rounded_parts, unit_for
from engine.placement.candidates import Candidate, Problem, Room
from engine.placement.estimate import cache_hits, cached_share
from engine.placement.plan import CACHED, LABELS, Prediction


def label(problem: Problem, chosen: Candidate, mode: str) -> str:
    """The label of LABELS, completed with what is missing, or how many experts have a copy in VRAM."""
    if mode == "hybrid" and (percent := _cached_percent(problem, chosen)):
        return f"{LABELS[mode]}{CACHED}{percent}% of experts cached in VRAM"
    if mode != "tight":
        return LABELS[mode]
    parts = []
    if chosen.missing_ram:
        parts.append(f"{_missing(chosen.ram_total, chosen.ram_room)} more free RAM")
    if chosen.missing_vram:
        parts.append(f"{_missing(chosen.vram_total, chosen.vram_room)} more free VRAM")
    return f"{LABELS[mode]}: needs {' and '.join(parts)}"


def explanation(
    problem: Problem, chosen: Candidate, mode: str, prediction: Prediction, slower: Prediction | None = None
) -> list[str]:
    """One sentence each: why this mode, the sums, the KV cache, what happens to the weights.

    slower: of the plan with the GPU that was not taken
    """
    lines = [_why(problem, chosen, mode) if slower is None else _why_not_gpu(problem, prediction, slower)]
    wishes = problem.wishes
    keeper = "the system" if wishes.leave_ram is None else "other programs, as asked for"
    lines.append(_sum("RAM", keeper, chosen.ram, chosen.ram_room, chosen.missing_ram, mode))
    if chosen.vram:
        keeper = "the desktop" if wishes.leave_vram is None else "other programs, as asked for"
        lines.append(_sum("VRAM", keeper, chosen.vram, chosen.vram_room, chosen.missing_vram, mode))
    lines += _cached(problem, chosen)
    lines.append(_context(problem, chosen))
    lines += _weights(problem, chosen)
    if problem.wishes.unload_bytes:
        lines.append(f"The free RAM counts {free_amount(problem.wishes.unload_bytes)} of the model loaded now.")
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
        return [f"VRAM has room for copies of all {experts} experts; they lie in RAM as well."]
    hits = cache_hits(problem, chosen)
    return [
        f"VRAM has room for copies of {chosen.hot_slots} of {experts} experts, those used last and most; the "
        f"prediction assumes that about {hits.likely:.0%} of all uses find one there ({hits.even:.0%} to "
        f"{hits.steady:.0%})."
    ]


def _why_not_gpu(problem: Problem, taken: Prediction, slower: Prediction) -> str:
    gpu = problem.gpu[1].name if problem.gpu is not None else ""
    fast, slow = taken.decode_tps.likely, slower.decode_tps.likely
    return (
        f"{LABELS['cpu']}: by prediction faster here, about {_tps(fast)} tok/s against {_tps(slow)} with the experts "
        f"in RAM and the rest on {gpu}."
    )


def _tps(speed: float) -> str:
    return f"{speed:.1f}" if speed < 10 else f"{speed:.0f}"


def _why(problem: Problem, chosen: Candidate, mode: str) -> str:
    gpu = problem.gpu[1].name if problem.gpu is not None else ""
    if mode == "too_large":
        return f"{LABELS[mode]}: it would not fit even if no other program ran."
    if mode == "tight":
        return f"{label(problem, chosen, mode)}; it would fit if other programs were closed."
    if mode == "all_gpu":
        return f"{LABELS[mode]}: the whole model fits in the free memory of {gpu}, where it is fastest."
    if mode == "hybrid":
        return f"{LABELS[mode]}: the whole model does not fit in the free memory of {gpu}; all but its experts does."
    if problem.wishes.device == "cpu":
        return f"{LABELS[mode]}, as asked for."
    if problem.gpu is None:
        return f"{LABELS[mode]}: {problem.no_gpu_reason}."
    if not problem.spec.is_moe:
        return (
            f"{LABELS[mode]}: the model does not fit in the free memory of {gpu}, and it has no experts to keep in RAM."
        )
    return f"{LABELS[mode]}: even without its experts the model does not fit in the free memory of {gpu}."


def _sum(memory: str, keeper: str, parts: dict[str, int], room: Room, missing: int, mode: str) -> str:
    need = sum(parts.values())
    unit = unit_for(need)
    line = f"{memory}: {addition(parts, unit)}"
    if not missing:
        return f"{line}, and {amount(room.reserve)} is kept back for {keeper}; {free_amount(room.free)} is free."
    # From here on the numbers must give the last one as written, so all are in one unit.
    line += f", and {unit.write(unit.up(room.reserve))} is kept back for {keeper}"
    if mode == "too_large" and need + room.reserve > room.total:
        lacking = unit.up(need) + unit.up(room.reserve) - unit.down(room.total)
        return f"{line}; the PC has {unit.write(unit.down(room.total))}, {unit.write(lacking)} too little."
    free = unit.write(unit.down(room.free))
    return f"{line}; {free} is free, {_missing(need, room)} too little."


def _missing(need: int, room: Room) -> str:
    """So rounded that needed + kept back - free, as written, gives it."""
    unit = unit_for(need)
    return unit.write(unit.up(need) + unit.up(room.reserve) - unit.down(room.free))


def _context(problem: Problem, chosen: Candidate) -> str:
    spec = problem.spec
    number, scale = KV_TYPES[chosen.kv_type]
    most = "" if problem.context == spec.context_length else f" of the {spec.context_length} this model allows"
    line = (
        f"The KV cache is the memory of the conversation: {problem.context} tokens{most} "
        f"at {sizes.kv_traffic(spec, 1, chosen.kv_type)} bytes each"
    )
    kept = [attention.kept(problem.context) for attention in spec.attentions]
    short = [tokens for tokens in kept if tokens < problem.context]
    if short:
        line = (
            f"The KV cache is the memory of the conversation: {spec.kv_bytes(problem.context, chosen.kv_type)} bytes "
            f"for {problem.context} tokens{most}; {len(short)} of {len(spec.layers)} layers keep only the last "
            f"{max(short)} of them, and a copy to go back to"
        )
    latent = {(a.latent, a.rotated) for a in spec.attentions if isinstance(a, LatentAttentionSpec)}
    if len(latent) == 1 and len(spec.attentions) == len(spec.layers):
        (kept_numbers, rotated), each_scale = latent.pop(), f" + {scale} bytes of scale" if scale else ""
        total = amount(spec.kv_bytes(problem.context, chosen.kv_type))
        line += (
            f": {len(spec.layers)} layers x ({kept_numbers} latent + {rotated} position numbers) x {number} bytes"
            f"{each_scale} ({chosen.kv_type}), {total} in all"
        )
        return f"{line}."
    kinds = {(attention.kv_heads, attention.head_dim) for attention in spec.attentions}
    if not short and len(kinds) == 1 and len(spec.attentions) == len(spec.layers):
        heads, dim = kinds.pop()
        each = f"({dim} numbers + {scale} bytes of scale)" if scale else f"{dim} numbers x {number} bytes"
        line += f": {len(spec.layers)} layers x 2 (keys, values) x {heads} heads x {each} ({chosen.kv_type})"
    return f"{line}."


def _weights(problem: Problem, chosen: Candidate) -> list[str]:
    """What happens to the weights on their way into memory."""
    inventory, wishes = problem.inventory, problem.wishes
    lines = []
    if chosen.vram:
        loss = "; this loses some accuracy" if chosen.dense_dtype in ("int4", "int8") else ""
        kept = " but routed experts" if problem.spec.is_moe else ""
        lines.append(f"On the GPU all weights{kept} are held as {chosen.dense_dtype}, whatever the file stores{loss}.")
        if "experts" in chosen.vram:
            lines.append("Routed experts keep the codes that the file stores.")
    if "experts" not in chosen.ram:
        if wishes.experts != "stored":
            lines.append(f"Re-coding to {wishes.experts} is not needed: the experts fit on the GPU unchanged.")
        return lines
    packed = chosen.ram["experts"]
    # As the sum above writes it.
    unit = unit_for(chosen.ram_total)
    written = unit.write(rounded_parts(chosen.ram, unit)["experts"])
    stored = sum(shape.stored_bytes * count for _, shapes in inventory.experts for shape, count in shapes.items())
    if chosen.experts not in ("stored", "float32"):
        formats = ", ".join(sorted(inventory.expert_formats()))
        lines.append(
            f"Experts are re-coded from {formats} to {chosen.experts} while loading ({amount(stored)} become "
            f"{written}); this loses some accuracy."
        )
    elif abs(packed - stored) > stored // 50:
        line = f"The file stores the experts in {amount(stored)}; laid out for the kernels they take {written}"
        kinds = sorted({shape.widened for _, shapes in inventory.experts for shape in shapes if shape.widened})
        if kinds:
            line += f": those stored as {', '.join(kinds)} are held in wider codes, with the same values"
        lines.append(f"{line}.")
    return lines
