"""From a checkpoint's header and a machine to a plan."""

from __future__ import annotations

import math
import os
from dataclasses import fields, replace
from typing import Any

from engine.checkpoints.checkpoint import Checkpoint
from engine.errors import GreenroomError
from engine.hardware.report import GpuReport, HardwareReport
from engine.hardware.simulated import is_simulated, simulated
from engine.models import model_spec
from engine.models.shortcuts import can_defer, check_deferral, costs, experts_per_token, with_fewer_experts
from engine.models.sketches import sketch
from engine.models.spec import KV_TYPES, ModelSpec
from engine.placement import sizes
from engine.placement.alternatives import alternatives, other_device
from engine.placement.candidates import Candidate, Problem, candidates, choose, with_wishes
from engine.placement.estimate import TIERS, predict_candidate
from engine.placement.explain import explanation, label
from engine.placement.packing import RECODES, code_of
from engine.placement.plan import OffloadPlan, PlanBytes, Prediction, Wishes
from engine.placement.sizes import Inventory
from engine.words import say

#: Tokens of KV cache when nobody says otherwise: a long conversation, at a price most machines can pay.
DEFAULT_CONTEXT = 8192

#: How the explanation begins of a model that cannot be loaded.
ONLY_A_PLAN = "Only a plan: "

CHOICES = {
    "device": ("auto", "cpu", "cuda", "sim"),
    "dtype": ("auto", "float32", "bfloat16"),
    "kv_type": ("auto", *KV_TYPES),
    "experts": ("stored", "int8", "int4", "int4_g128"),
}
AMOUNTS = (
    *("threads", "ram_free", "vram_free", "max_vram", "unload_bytes", "leave_ram", "leave_vram"),
    *("experts_per_token", "defer_experts", "prompt"),
)
SWITCHES = ("keep_gpu", "prefer_gpu")
#: From what to what.
SHARES = {"experts_share": (0.25, 1.0), "deferred_share": (0.0, 0.75)}
#: Caps the kernels of a whole process; read by the compiled module.
CAP_VARIABLE = "GREENROOM_ISA"


def plan(checkpoint: Checkpoint, report: HardwareReport, context: int | None = None, **wishes: Any) -> OffloadPlan:
    """Where the model will live here and what speed that should give.

    context: tokens of KV cache; None takes 8192, or the model's own limit if that is lower.
    wishes:  fields of `engine.placement.plan.Wishes`.

    Raises GreenroomError for a model that is not supported and for wishes that cannot be fulfilled; a model that does
    not fit is a plan ("tight", "too_large"), not an error.
    """
    spec, unsupported = checkpoint.once("planned", lambda: _spec(checkpoint))
    wanted = for_model(read_wishes(wishes), spec)
    trained = spec
    if wanted.experts_per_token is not None:
        spec = with_fewer_experts(spec, wanted.experts_per_token)
    inventory = checkpoint.once(("inventory", wanted.experts_per_token), lambda: sizes.take_inventory(spec, checkpoint))
    if wanted.defer_experts:
        check_deferral(spec, wanted.defer_experts)
    _check_cap(os.environ.get(CAP_VARIABLE))
    tokens = _context(spec, context)
    _check_experts(wanted, inventory, checkpoint.name)
    gpu, reason = find_usable_gpu(report)
    if is_simulated(wanted.device):
        gpu, reason = (0, simulated(wanted.device).gpu()), ""
    elif wanted.keep_gpu:
        gpu, reason = None, say("the GPU is left to other programs, as asked for")
    if wanted.device == "cuda" and gpu is None:
        raise GreenroomError(say("The model cannot run on a GPU here"), reason, say("Choose the device auto or cpu."))
    if gpu is None:
        wanted = replace(wanted, vram_free=None, max_vram=None, leave_vram=None)
    problem = Problem(spec, inventory, report, tokens, wanted, gpu, reason)
    threads = _threads(wanted, report)
    chosen, mode = choose(problem)
    prediction = predict_candidate(problem, chosen, threads)
    rival = _faster_on_cpu(problem, threads, prediction) if mode in ("all_gpu", "hybrid") else None
    if rival is not None and mode == "hybrid" and wanted.device == "auto" and not wanted.prefer_gpu:
        (chosen, prediction), rival = rival, (chosen, prediction)
        mode = chosen.mode
    return OffloadPlan(
        mode=mode,
        label=label(problem, chosen, mode),
        device=chosen.device,
        context=tokens,
        threads=threads,
        dense_dtype=chosen.dense_dtype,
        kv_type=chosen.kv_type,
        experts=chosen.experts,
        isa=wanted.isa,
        bytes=PlanBytes(
            ram={**chosen.ram, "reserve": chosen.ram_room.reserve},
            vram={**chosen.vram, "reserve": chosen.vram_room.reserve} if chosen.vram else {},
            ram_total=chosen.ram_total,
            vram_total=chosen.vram_total,
        ),
        prediction=prediction,
        explanation=[
            *unsupported,
            *explanation(problem, chosen, mode, prediction, rival[1] if rival is not None else None),
            *costs(trained, wanted.experts_per_token, wanted.defer_experts, hybrid=mode == "hybrid"),
        ],
        alternatives=[*other_device(problem, mode, prediction, rival), *alternatives(problem, chosen, mode)],
        hot_slots=chosen.hot_slots,
        prefill_chunk=chosen.prefill_chunk,
        experts_per_token=wanted.experts_per_token,
        defer_experts=wanted.defer_experts,
    )


def _faster_on_cpu(problem: Problem, threads: int, on_gpu: Prediction) -> tuple[Candidate, Prediction] | None:
    """The plan without the GPU, where it fits and is faster: a card of little memory can cost more than it gives."""
    if is_simulated(problem.wishes.device):
        return None
    weighed = with_wishes(problem, device="auto")
    for candidate in candidates(weighed):
        if candidate.mode == "cpu" and candidate.fits:
            prediction = predict_candidate(weighed, candidate, threads)
            if prediction.decode_tps.likely > on_gpu.decode_tps.likely:
                return candidate, prediction
    return None


def _spec(checkpoint: Checkpoint) -> tuple[ModelSpec, list[str]]:
    """And a sentence where the model is only planned."""
    try:
        return model_spec(checkpoint), []
    except GreenroomError as error:
        found = sketch(checkpoint) if checkpoint.described else None
        if found is None:
            raise
        return found, [say("Only a plan: {why}.", why=error.why)]


def read_wishes(wishes: dict[str, Any]) -> Wishes:
    """Checked against what can be wished for. Raises GreenroomError."""
    known = [field.name for field in fields(Wishes)]
    for name, value in wishes.items():
        if name not in known:
            raise GreenroomError(
                say('The wish "{name}" is not known', name=name),
                say("no plan has such a setting"),
                say("Known are {known}.", known=", ".join(known)),
            )
        if name == "device" and isinstance(value, str) and is_simulated(value):
            simulated(value)
        elif name in CHOICES and value not in CHOICES[name]:
            raise GreenroomError(
                say('{name} "{value}" cannot be planned', name=name, value=value),
                say("there is no such choice"),
                say("Choose {value}.", value=_either(CHOICES[name])),
            )
        if name == "isa" and value is not None and value not in TIERS:
            raise GreenroomError(
                say('isa "{value}" cannot be planned', value=value),
                say("no kernels have that name"),
                say("Choose {tiers}.", tiers=_either(TIERS)),
            )
        if name in SWITCHES and not isinstance(value, bool):
            raise GreenroomError(
                say("{name} {value!r} cannot be planned", name=name, value=value),
                say("it is neither yes nor no"),
                say("Correct it."),
            )
        if name in AMOUNTS and value is not None:
            lowest = 1 if name in ("threads", "experts_per_token", "prompt") else 0
            if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
                raise GreenroomError(
                    say("{name} {value!r} cannot be planned", name=name, value=value),
                    say("it is not a whole number from {lowest}", lowest=lowest),
                    say("Correct it."),
                )
        if name in SHARES:
            least, most = SHARES[name]
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
                raise GreenroomError(
                    say("{name} {value!r} cannot be planned", name=name, value=value),
                    say("it is not a share from {least} to {most}", least=least, most=most),
                    say("Correct it."),
                )
    return Wishes(**wishes)


def for_model(wanted: Wishes, spec: ModelSpec) -> Wishes:
    """Shares as numbers of this model's experts, where it can do what they ask and no number was asked for itself."""
    trained = experts_per_token(spec)
    fewer = math.ceil(wanted.experts_share * trained)
    if wanted.experts_per_token is None and 0 < fewer < trained:
        wanted = replace(wanted, experts_per_token=fewer)
    deferred = int(wanted.deferred_share * (wanted.experts_per_token or trained))
    if wanted.defer_experts == 0 and deferred and can_defer(spec):
        wanted = replace(wanted, defer_experts=deferred)
    return wanted


def find_usable_gpu(report: HardwareReport) -> tuple[tuple[int, GpuReport] | None, str]:
    """The NVIDIA GPU with most free memory and its index among them, or None and why there is none."""
    nvidia = [gpu for gpu in report.gpus if gpu.vendor == "nvidia"]
    present = [(index, gpu) for index, gpu in enumerate(nvidia) if not gpu.integrated and gpu.total_bytes > 0]
    usable = [(index, gpu) for index, gpu in present if not gpu.unusable]
    if present and not usable:
        return None, say("{gpu} {unusable}", gpu=present[0][1].name, unusable=present[0][1].unusable)
    if usable and report.os.get("torch_cuda") == "none":
        return None, say("the installed torch is a CPU build, so {gpu} cannot be used", gpu=usable[0][1].name)
    if usable:
        return max(usable, key=lambda entry: entry[1].free_bytes), ""
    others = [gpu for gpu in report.gpus if not gpu.integrated and gpu.vendor != "nvidia"]
    if others:
        return None, say("{gpu} is not used: this version computes on NVIDIA GPUs only", gpu=others[0].name)
    if report.gpus:
        shared = report.gpus[0].name
        return None, say("{gpu} is integrated and shares the RAM, so it has no memory of its own", gpu=shared)
    return None, say("no GPU was found")


def _check_cap(tier: str | None) -> None:
    if tier and tier not in TIERS:
        raise GreenroomError(
            say('{cap_variable} "{tier}" cannot be used', cap_variable=CAP_VARIABLE, tier=tier),
            say("no kernels have that name"),
            say("Set it to {tiers}.", tiers=_either(TIERS)),
        )


def _context(spec: ModelSpec, context: int | None) -> int:
    if context is None:
        return min(DEFAULT_CONTEXT, spec.context_length)
    if not isinstance(context, int) or isinstance(context, bool) or context < 1:
        raise GreenroomError(
            say("A context of {context!r} tokens cannot be planned", context=context),
            say("it is not a whole number above zero"),
            say("Correct it."),
        )
    if context > spec.context_length:
        raise GreenroomError(
            say("A context of {context} tokens cannot be planned", context=context),
            say("the model was made for at most {context_length}", context_length=spec.context_length),
            say("Choose {context_length} or fewer.", context_length=spec.context_length),
        )
    return context


def _threads(wishes: Wishes, report: HardwareReport) -> int:
    cpu = report.cpu
    if wishes.threads is None:
        return max(1, cpu.performance_cores or min(cpu.physical_cores, cpu.usable_cores))
    if wishes.threads > cpu.logical_cores:
        raise GreenroomError(
            say("%n threads cannot be used", n=wishes.threads, one="%n thread cannot be used"),
            say(
                "this CPU has %n logical cores, and more threads than cores are only slower",
                n=cpu.logical_cores,
                one="this CPU has %n logical core, and more threads than cores are only slower",
            ),
            say("Choose {logical_cores} or fewer.", logical_cores=cpu.logical_cores),
        )
    return wishes.threads


def _check_experts(wishes: Wishes, inventory: Inventory, name: str) -> None:
    if wishes.experts == "stored":
        return
    asked = say("Experts of {name} cannot be re-coded to {experts}", name=name, experts=wishes.experts)
    if not inventory.experts:
        raise GreenroomError(asked, say("the model has no routed experts"), say("Leave the experts as stored."))
    if wishes.dtype == "float32":
        raise GreenroomError(asked, say("float32 asks for exact weights"), say("Choose one of the two."))
    formats = inventory.expert_formats()
    if not formats & sizes.RECODABLE:
        stored = ", ".join(sorted(formats))
        raise GreenroomError(
            asked, say("they are quantised already ({stored})", stored=stored), say("Leave the experts as stored.")
        )
    group = RECODES[wishes.experts].group
    for _, shapes in inventory.experts:
        for shape in shapes:
            if shape.rows and shape.columns % group and code_of(shape.format, wishes.experts).group == group:
                raise GreenroomError(
                    asked,
                    say(
                        "its groups of {group} weights do not divide rows of {columns}",
                        group=group,
                        columns=shape.columns,
                    ),
                    say("Choose int4.")
                    if group > 32 and shape.columns % 32 == 0
                    else say("Leave the experts as stored."),
                )


def _either(choices: tuple[str, ...]) -> str:
    return say("{first} or {last}", first=", ".join(choices[:-1]), last=choices[-1])
