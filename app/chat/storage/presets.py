"""How answers are sampled: what suits the model, what the user has set, and presets by name.

From the weakest to the strongest: the program's own values, what suits the model, the settings page, the chat's preset,
and what was changed in the chat.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from app.host import DEMO, HostState
from app.language import mark
from app.settings.store import PROMPT_LIMIT, Settings
from engine.clean_text import clean_text
from engine.runtime.events import SamplingParams

NAME_LIMIT = 60
MOST_STOPS, STOP_LIMIT = 16, 200
SUMMARY_LIMIT = 50_000
#: What each field of `Sampling` may be: lowest, highest, and whether it is a whole number.
RANGES: dict[str, tuple[float, float, bool]] = {
    "temperature": (0.0, 2.0, False),
    "top_p": (0.05, 1.0, False),
    "top_k": (0, 1000, True),
    "min_p": (0.0, 1.0, False),
    "repetition_penalty": (0.5, 2.0, False),
    "presence_penalty": (-2.0, 2.0, False),
    "frequency_penalty": (-2.0, 2.0, False),
    "seed": (0, 2**32 - 1, True),
    "max_tokens": (1, 1_048_576, True),
}


@dataclass(frozen=True)
class Sampling:
    """Fields of SamplingParams, each None where it is not chosen."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None

    @property
    def chosen(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}

    def over(self, base: Sampling) -> Sampling:
        """This, and `base` where this leaves something open."""
        return replace(base, **self.chosen)

    @classmethod
    def from_plain(cls, raw: Any) -> Sampling:
        """What makes sense of plain data; the rest is left open."""
        if not isinstance(raw, Mapping):
            return cls()
        values: dict[str, Any] = {}
        for name, (low, high, whole) in RANGES.items():
            value = raw.get(name)
            if type(value) in (int, float) and low <= value <= high and value == (int(value) if whole else value):
                values[name] = int(value) if whole else float(value)
        stop = raw.get("stop")
        if isinstance(stop, list | tuple):
            values["stop"] = tuple(s[:STOP_LIMIT] for s in stop if isinstance(s, str) and s)[:MOST_STOPS]
        return cls(**values)

    def to_plain(self) -> dict[str, Any]:
        return {name: list(value) if name == "stop" else value for name, value in self.chosen.items()}


@dataclass(frozen=True)
class Preset:
    """system, thinking: None leaves them as they are. thinking: one of `HostState.thinking`, where a model has it."""

    name: str
    sampling: Sampling = Sampling()
    system: str | None = None
    thinking: str | None = None

    @classmethod
    def from_plain(cls, raw: Mapping[str, Any]) -> Preset:
        """What makes sense of plain data; the rest is left open, and a name that is none is empty."""
        return cls(
            preset_name(_text(raw.get("name"), PROMPT_LIMIT) or ""),
            Sampling.from_plain(raw.get("sampling")),
            _text(raw.get("system"), PROMPT_LIMIT),
            _text(raw.get("thinking"), NAME_LIMIT),
        )

    def to_plain(self) -> dict[str, Any]:
        values = {"name": self.name, "system": self.system, "thinking": self.thinking}
        return {k: v for k, v in values.items() if v is not None} | {"sampling": self.sampling.to_plain()}


#: The one that leaves everything to the model and the settings page.
RECOMMENDED = Preset(mark("Recommended"))
BUILT_IN = (
    RECOMMENDED,
    Preset(mark("Precise"), Sampling(temperature=0.2, top_p=0.9)),
    Preset(mark("Balanced"), Sampling(temperature=0.7, top_p=0.95)),
    Preset(mark("Creative"), Sampling(temperature=1.1, top_p=1.0, min_p=0.05)),
    Preset(mark("Always the same"), Sampling(temperature=0.0, seed=0)),
)


@dataclass(frozen=True)
class ChatSettings:
    """What one chat has of its own.

    preset:   the name of one; a name that is not known any more counts as "Recommended"
    own:      what was changed after the preset was chosen
    system:   the system prompt, None for the preset's or the settings page's
    thinking: one of `HostState.thinking`, None for the preset's or the model's own way
    start:    the id of the first message that is still sent, None for all of them
    summary:  what stands for the messages before `start`
    """

    preset: str = RECOMMENDED.name
    own: Sampling = Sampling()
    system: str | None = None
    thinking: str | None = None
    start: int | None = None
    summary: str = ""

    def without(self, preset: Preset) -> ChatSettings:
        """The same where there is no such preset: what it says is the chat's own."""
        return replace(
            self,
            preset=RECOMMENDED.name,
            own=self.own.over(preset.sampling),
            system=preset.system if self.system is None else self.system,
            thinking=self.thinking or preset.thinking,
        )

    @classmethod
    def from_plain(cls, raw: Mapping[str, Any]) -> ChatSettings:
        start = raw.get("start")
        return cls(
            preset_name(_text(raw.get("preset"), PROMPT_LIMIT) or "") or RECOMMENDED.name,
            Sampling.from_plain(raw.get("own")),
            _text(raw.get("system"), PROMPT_LIMIT),
            _text(raw.get("thinking"), NAME_LIMIT),
            start if type(start) is int else None,
            _text(raw.get("summary"), SUMMARY_LIMIT) or "",
        )

    def to_plain(self) -> dict[str, Any]:
        values = {
            "preset": None if self.preset == RECOMMENDED.name else self.preset,
            "own": self.own.to_plain() or None,
            "system": self.system,
            "thinking": self.thinking,
            "start": self.start,
            "summary": self.summary or None,
        }
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class Family:
    """What makers say about sampling their models (from model cards).

    architectures, names: regular expressions, for the architecture and the model's name; the first match counts
    usual:  for a model that thinks when it is made to, or that never thinks
    silent: where thinking is switched off, if that differs
    """

    architectures: str
    names: str
    usual: Sampling
    silent: Sampling | None = None


_QWEN3_INSTRUCT = Sampling(temperature=0.7, top_p=0.8, top_k=20)
_QWEN3_THINKING = Sampling(temperature=0.6, top_p=0.95, top_k=20)
FAMILIES = (
    Family("qwen3.*moe", r"coder", Sampling(temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.05)),
    Family("qwen3.*moe", r"instruct", _QWEN3_INSTRUCT),
    Family("qwen3.*moe", "", _QWEN3_THINKING, _QWEN3_INSTRUCT),
    Family("qwen3", "", _QWEN3_THINKING, _QWEN3_INSTRUCT),
    Family("qwen2.*", "", Sampling(temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.05)),
    Family("gpt.?oss", "", Sampling(temperature=1.0, top_p=1.0)),
    Family("gemma.*", "", Sampling(temperature=1.0, top_p=0.95, top_k=64)),
    Family("glm4.?moe.*", r"4\.5", Sampling(temperature=0.6, top_p=0.95)),
    Family("glm4.?moe.*", "", Sampling(temperature=1.0, top_p=0.95)),
    Family("minimax.*", "", Sampling(temperature=1.0, top_p=0.95, top_k=40)),
    Family("llama4.*", "", Sampling(temperature=0.6, top_p=0.9)),
    Family("ernie4.*", "", Sampling(temperature=0.8, top_p=0.8)),
    Family("hunyuan.*", "", Sampling(temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.05)),
    Family("lfm2.*", "", Sampling(temperature=0.3, min_p=0.15, repetition_penalty=1.05)),
)
USUAL = Sampling(temperature=0.7, top_p=0.95)
#: A model as small as the demonstration one wanders off when it is warm, and falls into loops without a penalty.
DEMO_USUAL = Sampling(temperature=0.3, top_p=0.9, repetition_penalty=1.1)


def recommended(state: HostState, thinking: str | None = None) -> Sampling:
    """What suits the model in memory. Values in its files come before those of its family's card."""
    if state.path == DEMO:
        return DEMO_USUAL
    silent = thinking in ("off", "none", "no_think")
    family = Sampling()
    for known in FAMILIES:
        if re.fullmatch(known.architectures, state.family.lower()) and re.search(known.names, state.model_name.lower()):
            family = known.silent if silent and known.silent is not None else known.usual
            break
    # The files speak of the model as it is by itself.
    own = Sampling() if silent and family.chosen else Sampling.from_plain(state.suggested)
    return own.over(family).over(USUAL)


def resolve(
    chat: ChatSettings, presets: Mapping[str, Preset], state: HostState, settings: Settings
) -> tuple[Sampling, str, str | None]:
    """What holds for the next answer of a chat: sampling with nothing needed left open, system prompt, thinking."""
    preset = presets.get(chat.preset, RECOMMENDED)
    thinking = chat.thinking or preset.thinking
    if thinking not in state.thinking:
        thinking = None
    page = Sampling(
        temperature=settings.temperature,
        top_p=settings.top_p,
        repetition_penalty=settings.repetition_penalty,
        max_tokens=settings.max_tokens,
    )
    sampling = chat.own.over(preset.sampling).over(page).over(recommended(state, thinking))
    systems = (chat.system, preset.system, settings.system_prompt)
    system = next(text for text in systems if text is not None)
    return sampling, system.strip(), thinking


def params_of(sampling: Sampling) -> SamplingParams:
    return replace(SamplingParams(), **sampling.chosen)


def preset_name(text: str) -> str:
    """Return any text as a preset name: on one line, without control characters or marks of direction."""
    return " ".join(clean_text(text).split())[:NAME_LIMIT].strip()


def _text(value: Any, most: int) -> str | None:
    return value[:most] if isinstance(value, str) else None
