"""From a placement to its prediction: what a token costs, on which device, at the speeds known of this machine."""

from __future__ import annotations

from engine.hardware.report import HardwareReport
from engine.hardware.simulated import is_simulated, simulated
from engine.placement import sizes
from engine.placement.candidates import (
    Candidate,
    Problem,
    dense_layout,
    device_expert_layout,
    expert_layout,
    streaming_slots,
)
from engine.placement.machines import link_bandwidth, ram_bandwidth
from engine.placement.packing import code_of
from engine.placement.parts import UNKNOWN_GPU, find_gpu
from engine.placement.plan import CONVERSATION, Prediction
from engine.placement.predict import predict
from engine.placement.profiles import (
    SIMULATED_THREAD_TERAFLOPS,
    EngineProfile,
    measured_profile,
    multiplies_pairs,
    simulated_profile,
)
from engine.placement.sizes import Layout, Shapes
from engine.placement.token_time import CACHE_KEEPS
from engine.placement.work import NO_HITS, Hits, Speeds, Work, expected_hits

#: Instruction sets a plan can be capped at, lowest first.
TIERS = ("portable", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "amx")
#: Codes whose activations are rounded to int8.
INTEGER_CODES = ("int4", "int8")


def predict_candidate(problem: Problem, chosen: Candidate, threads: int) -> Prediction:
    """What one token costs under this placement, and how long that takes here."""
    inventory, spec = problem.inventory, problem.spec
    on_gpu, all_gpu = bool(chosen.vram), chosen.mode == "all_gpu"
    dense = sizes.dense_bytes(inventory, dense_layout(problem, chosen.dense_dtype))
    dense.pop("embeddings", None)
    dense_total = sum(dense.values())
    experts_ram = 0 if all_gpu else sizes.active_expert_bytes(inventory, expert_layout(problem))
    profile = measured_profile(problem.report)
    if is_simulated(chosen.device):
        profile = simulated_profile(profile, simulated(chosen.device).latency)
    speeds = _speeds(problem, chosen, threads)
    code_bytes = _code_bytes(problem, chosen, speeds, profile)
    there = _device_traffic(problem, device_expert_layout(chosen.dense_dtype), code_bytes)
    experts_gpu = there if all_gpu else 0
    short, prompt = (min(tokens, problem.context) for tokens in (CONVERSATION, problem.wishes.prompt))
    # Of a prompt only the last token goes through the output head.
    dense_values = sizes.dense_values(inventory) - sizes.head_values(inventory)
    expert_values = sizes.active_expert_values(inventory)
    code = _main_code(problem, chosen)
    between_routed, between_rest = sizes.passing_values(spec)
    moes = [moe for moe, _ in inventory.experts]
    hybrid = on_gpu and not all_gpu
    work = Work(
        layers=len(spec.layers),
        cpu_expert_bytes=experts_ram,
        cpu_dense_bytes=0 if on_gpu else dense_total,
        gpu_bytes=experts_gpu + (dense_total if on_gpu else 0),
        context=problem.context,
        kv_bytes=sizes.kv_traffic(spec, problem.context, chosen.kv_type),
        kv_on_gpu=on_gpu,
        attention_ops=sizes.attention_ops(spec, prompt),
        cpu_values=(0 if all_gpu else expert_values) + (0 if on_gpu else dense_values),
        gpu_values=(expert_values if all_gpu else 0) + (dense_values if on_gpu else 0),
        gpu_experts=sum(moe.experts for moe, _ in inventory.experts) if all_gpu else 0,
        code=code,
        tier=kernel_tier(problem.report, code, problem.wishes.isa),
        threads=threads,
        cpu_between=(0 if all_gpu else between_routed) + (0 if on_gpu else between_rest),
        cpu_experts=0 if all_gpu else sum(moe.top_k for moe in moes),
        all_expert_bytes=0 if all_gpu else chosen.ram.get("experts", 0),
        active_share=sum(moe.top_k for moe in moes) / max(1, sum(moe.experts for moe in moes)),
        cached_bytes=0 if on_gpu else _kept_in_cache(problem, experts_ram + dense_total, chosen.ram.get("experts", 0)),
        short_kv_bytes=sizes.kv_traffic(spec, short, chosen.kv_type),
        kv_pairs=chosen.kv_type == "bf16" and multiplies_pairs(problem.report, problem.wishes.isa),
        gpu_beside_bytes=dense.get("shared_experts", 0) if hybrid else 0,
        hit_bytes=there if hybrid else 0,
        hits=cache_hits(problem, chosen) if hybrid else NO_HITS,
        **_streamed(problem, chosen),
    )
    return predict(work, speeds, profile, prompt=prompt, chunk=chosen.prefill_chunk)


def _kept_in_cache(problem: Problem, active: int, all_experts: int) -> int:
    """Of a token's weights, in bytes, what the last-level cache still has of the token before.

    all_experts: any of them may have been used meanwhile, so that the cache holds an even share of everything
    """
    kept = CACHE_KEEPS * problem.report.cpu.caches.get("l3", 0)
    return round(active * min(1.0, kept / max(1, active, all_experts)))


def _code_bytes(problem: Problem, chosen: Candidate, speeds: Speeds, profile: EngineProfile) -> float:
    """VRAM traffic per coded weight: of the profile, or as it was measured with this card."""
    calibration = problem.report.calibration
    found = calibration.devices.get(chosen.device) if calibration is not None else None
    if found is None or not found.code_gweights:
        return profile.gpu_code_bytes
    return speeds.vram_gbs * profile.gpu_share / found.code_gweights


def _device_traffic(problem: Problem, layout: Layout, code_bytes: float) -> int:
    """VRAM traffic of one token's experts: plain numbers are read as they lie there, codes are turned into numbers."""
    total = 0.0
    for moe, shapes in problem.inventory.experts:
        for shape, count in shapes.items():
            coded = shape.rows > 0 and shape.format not in sizes.FLOATS and code_bytes > 0
            each = shape.values * code_bytes if coded else layout.nbytes(shape)
            total += each * count * moe.top_k / moe.experts
    return round(total)


def _streamed(problem: Problem, chosen: Candidate) -> dict[str, int]:
    """Experts that a prompt can be read with on the GPU: those without a copy there, which pass through its slots."""
    if chosen.mode != "hybrid" or chosen.hot_slots < streaming_slots(problem.inventory):
        return {}
    missing = 1 - cached_share(problem, chosen)
    experts = sum(moe.experts for moe, _ in problem.inventory.experts)
    return {
        "streamed_bytes": round(missing * chosen.ram["experts"]),
        "streamed_experts": experts,
    }


def cache_hits(problem: Problem, chosen: Candidate) -> Hits:
    """Of the slots in VRAM."""
    moes = [moe for moe, _ in problem.inventory.experts]
    experts = sum(moe.experts for moe in moes)
    return (
        expected_hits(cached_share(problem, chosen), sum(moe.top_k for moe in moes) / experts) if experts else NO_HITS
    )


def cached_share(problem: Problem, chosen: Candidate) -> float:
    """Of all routed experts, those that have a slot in VRAM."""
    experts = sum(moe.experts for moe, _ in problem.inventory.experts)
    return chosen.hot_slots / experts if experts else 0.0


def _speeds(problem: Problem, chosen: Candidate, threads: int) -> Speeds:
    """Measured where it was, else by the card's name."""
    report = problem.report
    ram = ram_bandwidth(report, threads)
    if problem.gpu is None:
        return Speeds(ram, UNKNOWN_GPU.bandwidth_gbs, UNKNOWN_GPU.teraflops)
    card = problem.gpu[1]
    if is_simulated(chosen.device):
        # The CPU computes what the device would; only the copies are its own.
        copies = simulated(chosen.device).copy / 1e9
        return Speeds(ram, ram.likely, threads * SIMULATED_THREAD_TERAFLOPS, copies)
    model = find_gpu(card.name, card.total_bytes)
    calibration = report.calibration
    found = calibration.devices.get(chosen.device) if calibration is not None else None
    memory = found.memory_gbs if found is not None else None
    matrices = found.teraflops if found is not None else None
    link = found.to_pinned_gbs or found.to_pageable_gbs if found is not None else None
    return Speeds(ram, memory or model.bandwidth_gbs, matrices or model.teraflops, link or link_bandwidth(card))


def kernel_tier(report: HardwareReport, code: str, isa: str | None) -> str:
    """The tier of this code's kernels here, at most `isa`."""
    kernels = report.cpu.kernels
    tier = {"int4": kernels.int4, "int8": kernels.int8, "bf16": kernels.bf16, "e4m3": kernels.bf16}.get(
        code, kernels.int8
    )
    if isa is not None and tier in TIERS:
        tier = min(tier, isa, key=TIERS.index)
    # A name without kernels of its own for a code stands for the next lower ones.
    if code in INTEGER_CODES:
        has_vnni = "avxvnni" in report.cpu.isa.usable
        lower = {"avx512bf16": "avx512vnni"} | dict.fromkeys(("avx512", "avxvnni"), "avxvnni" if has_vnni else "avx2")
    else:
        lower = {"avx512": "avx2", "avxvnni": "avx2"}
        if code not in ("bf16", "e4m3"):
            lower |= dict.fromkeys(("amx", "avx512bf16"), "avx512vnni")
    return lower.get(tier, tier)


def _main_code(problem: Problem, chosen: Candidate) -> str:
    """The code of most weights that are computed on the CPU."""
    inventory = problem.inventory
    groups: list[Shapes] = [shapes for _, shapes in inventory.experts]
    if not groups and chosen.dense_dtype != "quantised":
        return "f32" if chosen.dense_dtype == "float32" else "bf16"
    recode = expert_layout(problem).recode if groups else None
    groups = groups or [shapes for role, shapes in inventory.roles.items() if role != "embeddings"]
    values: dict[str, int] = {}
    for shapes in groups:
        for shape, count in shapes.items():
            code = code_of(shape.format, recode).name
            values[code] = values.get(code, 0) + shape.values * count
    return max(values, key=lambda code: values[code])
