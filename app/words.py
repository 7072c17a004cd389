"""Figures as the user reads them."""

from __future__ import annotations

import re
from pathlib import Path

from app.language import mark, told, tr
from engine.errors import GreenroomError
from engine.placement.plan import OffloadPlan, Range
from engine.units import size_up

#: Licences that people write otherwise than the hub's ids.
_LICENCES = {
    "apache-2.0": "Apache-2.0",
    "mit": "MIT",
    "bsd-3-clause": "BSD-3-Clause",
    "cc-by-4.0": "CC-BY-4.0",
    "cc-by-nc-4.0": "CC-BY-NC-4.0",
    "lfm1.0": "LFM-1.0",
    "tongyi-qianwen": "Tongyi Qianwen",
    "tencent-hunyuan-a13b": "Tencent Hunyuan",
    "llama4": "Llama 4",
    "llama3": "Llama 3",
    "gemma": "Gemma",
    "other": mark("custom licence"),
}
#: A range wider than this says less than its likely figure.
_VAGUE = 2.5
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")


def file_name(path: Path) -> str:
    """A model by the name of its file or folder: that says the quantisation, and names inside files are careless."""
    if path.suffix in (".safetensors", ".json"):
        path = path.parent
    return _SHARD.sub("", path.stem if path.suffix == ".gguf" else path.name) or path.name


def home_path(path: Path) -> str:
    """A path as people write it: "~/models" for what lies in their home."""
    try:
        return str(Path("~") / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):  # elsewhere, or no home known
        return str(path)


def in_amounts(plan: OffloadPlan) -> str:
    """ "18.4 GB RAM · 9.9 GB VRAM, 27% of experts cached in VRAM"."""
    said = tr("{amount} RAM", amount=size_up(plan.bytes.ram_total))
    if plan.bytes.vram_total:
        said += " · " + tr("{amount} VRAM", amount=size_up(plan.bytes.vram_total))
    return f"{said}, {told(plan.cached)}" if plan.runnable and plan.cached else said


def in_words(error: GreenroomError) -> str:
    """All three parts of it in one line, in the user's language."""
    return f"{told(error.what)}: {told(error.why)}. {told(error.remedy)}"


def sentence(text: str) -> str:
    """With a capital at the start."""
    return text[:1].upper() + text[1:]


def figure(value: float, digits: int = 0) -> str:
    """With a narrow space before each three digits, as counts are written: "1 755"."""
    return f"{value:,.{digits}f}".replace(",", "\u202f")


def rate(tokens_per_second: float) -> str:
    """One figure, as exact as three digits: "58.3", "312", "1 755"."""
    return figure(tokens_per_second, 0 if tokens_per_second >= 99.95 else 1)


def brief(name: str) -> str:
    """A model's name without what stands in brackets behind it."""
    return name.partition(" (")[0].strip() or name


def about(speed: Range) -> str:
    """The likely figure, no more exact than a prediction is: "about 57", "about 3.4"."""
    return tr("about {figure}", figure=_likely(speed))


def _likely(speed: Range) -> str:
    """Two digits, as the command line writes it."""
    if speed.likely < 9.5:
        return figure(speed.likely, 1)
    return figure(float(f"{speed.likely:.2g}"))


def rate_range(speed: Range) -> str:
    """ "49 to 66"; one figure when both ends read the same."""
    low, high = _ends(speed)
    return low if low == high else tr("{low} to {high}", low=low, high=high)


def expected(speed: Range) -> str:
    """ "about 57 tok/s (49 to 66)"; without the range where both ends read the same."""
    low, high = _ends(speed)
    if low == high:
        return tr("{speed} tok/s", speed=about(speed))
    return tr("{speed} tok/s ({ends})", speed=about(speed), ends=rate_range(speed))


def _ends(speed: Range) -> tuple[str, str]:
    digits = 0 if speed.high >= 10 else 1
    return figure(speed.low, digits), figure(speed.high, digits)


def licence_name(identifier: str) -> str:
    """A licence as it is written: "MIT" for the hub's "mit"."""
    return tr(_LICENCES.get(identifier.lower(), identifier))


def predicted(plan: OffloadPlan) -> str:
    """Speed as a list shows it: "49–66", "~15" where the range is wide, "–" for what cannot run here."""
    speed = plan.prediction.decode_tps
    if plan.mode == "too_large":
        return "–"
    if speed.high > _VAGUE * speed.low:
        return f"~{_likely(speed)}"
    low, high = _ends(speed)
    return low if low == high else f"{low}–{high}"
