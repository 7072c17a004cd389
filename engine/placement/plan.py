"""Where a model will live and what that will give, as plain records."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.words import filled, say

#: Tokens in the conversation that a prediction speaks of, and in the prompt.
CONVERSATION = 512
#: Modes, in order of preference, with the label the user reads.
LABELS = {
    "all_gpu": say("All on the GPU"),
    "hybrid": say("Experts in RAM, the rest on the GPU"),
    "cpu": say("On the CPU"),
    "tight": say("Tight"),  # completed with what is missing: "Tight: needs 3.1 GB more free RAM"
    "too_large": say("Too large for this PC"),
}


def label_with_cache(percent: int) -> str:
    """ "Experts in RAM, the rest on the GPU + 9% of experts cached in VRAM"."""
    return say(
        "{place} + {cached}",
        place=LABELS["hybrid"],
        cached=say("{percent}% of experts cached in VRAM", percent=percent),
    )


@dataclass(frozen=True)
class Wishes:
    """What the user asks of a plan. None or "auto" leaves the choice to Greenroom.

    device:  auto | cpu | cuda | sim, with settings as `engine.hardware.simulated.Simulated` has them
    dtype:   auto | float32 | bfloat16 (float32 = exact checks: no activation quantisation anywhere)
    kv_type: auto | f32 | bf16 | f16 | q8 (int8 with a scale per head and token)
    experts: stored | int8 | int4 (a lossy re-coding of float weights at load, asked for by name)
    ram_free, vram_free: what-if overrides in bytes; max_vram: an upper limit in bytes
    leave_ram, leave_vram: bytes to keep back for other programs, instead of what Greenroom would
    keep_gpu: leave the GPU to games and other programs
    prefer_gpu: use it also where the CPU should be faster
    isa:     cap on the kernel tier, e.g. "avx2"
    experts_per_token, defer_experts: shortcuts that change the answers, see `engine.models.shortcuts`
    experts_share, deferred_share: the same as shares of what each model uses, for whoever asks it of all models: those
        that cannot do it take no notice
    prompt:  tokens of the prompt whose reading is predicted
    unload_bytes: RAM that is given back before loading (the model loaded now)
    """

    device: str = "auto"
    dtype: str = "auto"
    kv_type: str = "auto"
    experts: str = "stored"
    threads: int | None = None
    ram_free: int | None = None
    vram_free: int | None = None
    max_vram: int | None = None
    isa: str | None = None
    prompt: int = 512
    unload_bytes: int = 0
    leave_ram: int | None = None
    leave_vram: int | None = None
    keep_gpu: bool = False
    prefer_gpu: bool = False
    experts_per_token: int | None = None
    defer_experts: int = 0
    experts_share: float = 1.0
    deferred_share: float = 0.0


@dataclass(frozen=True)
class Range:
    """A predicted figure with its uncertainty."""

    low: float
    likely: float
    high: float


@dataclass(frozen=True)
class Learned:
    """What answers of this model here taught: factors on what was predicted, from so many answers."""

    answers: int
    decode_factor: float
    prefill_factor: float
    predicted_decode_tps: Range
    predicted_prefill_tps: Range


@dataclass(frozen=True)
class TimePart:
    """One part of the time a token takes, with its arithmetic in words.

    kind: ram | attention | vram | layers (fixed costs) | learned (what answers here took more or less)
    """

    kind: str
    seconds: float
    said: str


@dataclass(frozen=True)
class Prediction:
    """tokens per second in a short conversation, with the words that explain the bottleneck.

    full_context_tps: decode when the whole KV cache is in use; None where nobody computed it
    learned:          set where the figures were corrected by answers measured here
    token_time:       what the time of a token is made of: together 1 / decode_tps.likely
    """

    decode_tps: Range
    prefill_tps: Range
    bottleneck: str
    full_context_tps: float | None = None
    learned: Learned | None = None
    token_time: tuple[TimePart, ...] = ()


@dataclass(frozen=True)
class PlanBytes:
    """Bytes per role.

    Roles: experts, hot_experts (slots in VRAM for copies of experts in RAM), shared_experts, dense_mlp (layers without
    experts), attention, router_and_norms, embeddings, lm_head, kv_cache, buffers, reserve.
    *_total leave the reserve out; the reserve is what is kept back for the system.
    """

    ram: dict[str, int]
    vram: dict[str, int]
    ram_total: int
    vram_total: int


@dataclass(frozen=True)
class OffloadPlan:
    """Everything `engine.load` needs to know, and everything the user is told beforehand."""

    mode: str
    label: str
    #: What runs the dense part: "cpu", "cuda:0", "sim", "sim:vram=2e9".
    device: str
    context: int
    threads: int
    #: "float32" (exact) or "bfloat16": the dense device's arithmetic. On the CPU "quantised" keeps stored codes; on a
    #: GPU "int8" and "int4" hold dense matrices re-coded, for arithmetic in bfloat16.
    dense_dtype: str
    #: "f32", "bf16", "f16" or "q8".
    kv_type: str
    #: "stored", "int8", "int4" or "float32".
    experts: str
    isa: str | None
    bytes: PlanBytes
    prediction: Prediction
    explanation: list[str]
    alternatives: list[str] = field(default_factory=list)
    #: Experts that VRAM has room for beside everything else, over all layers.
    hot_slots: int = 0
    #: Tokens per forward call while a prompt is read.
    prefill_chunk: int = 512
    #: Fewer than the model was trained with, where that was asked for.
    experts_per_token: int | None = None
    #: Of a token's experts on the CPU, so many take effect a layer later, where that was asked for.
    defer_experts: int = 0

    @property
    def runnable(self) -> bool:
        """False when loading would exceed free memory ("tight", "too_large"); `load` still obeys if told to."""
        return self.mode in ("all_gpu", "hybrid", "cpu")

    @property
    def short_label(self) -> str:
        """Without how many experts are cached."""
        return filled(self.label, "place") or self.label

    @property
    def cached(self) -> str:
        """How many experts are cached in VRAM, "" where that is not said."""
        return filled(self.label, "cached")

    def explain(self) -> str:
        """The arithmetic in words, one sentence a line."""
        return "\n".join(self.explanation)

    def time_sum(self) -> list[str]:
        """The parts of a token's time, a line each, so rounded that they add up; the last line is their sum."""
        said = self.prediction
        if not said.token_time:
            return []
        total = 1e3 / said.decode_tps.likely
        decimals = min(3, max(0, 2 - math.floor(math.log10(total))))
        step = 10.0**-decimals
        wanted = [part.seconds * 1e3 / step for part in said.token_time]
        steps = [math.floor(exact) for exact in wanted]
        by_remainder = sorted(range(len(steps)), key=lambda i: wanted[i] - steps[i], reverse=True)
        whole = round(total / step)
        for i in by_remainder[: whole - sum(steps)]:
            steps[i] += 1
        lines = [
            say("{time} ms: {said}", time=f"{count * step:.{decimals}f}", said=part.said)
            for count, part in zip(steps, said.token_time, strict=True)
            if count
        ]
        rate = said.decode_tps.likely
        lines.append(
            say(
                "Together {time} ms for a token in a conversation of %n tokens: {rate} tok/s.",
                n=min(CONVERSATION, self.context),
                one="Together {time} ms for a token in a conversation of %n token: {rate} tok/s.",
                time=f"{whole * step:.{decimals}f}",
                rate=f"{rate:.1f}" if rate < 100 else f"{rate:.0f}",
            )
        )
        return lines

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
