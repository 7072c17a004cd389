"""What a model's files say about how it wants to be talked to. Read on the engine's thread, once for each load."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

from app import planning
from engine.regular_files import open_to_read

log = logging.getLogger(__name__)

#: Names below "general.sampling." in GGUF files.
_GGUF = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
#: By the names of SamplingParams, which are those of generation_config.json too.
_RANGES = {
    "temperature": (0.0, 5.0),
    "top_k": (0, 1_000_000),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 10.0),
}
#: Bytes of a generation_config.json that are read; they have a few hundred.
_MOST = 1_000_000


def thinking_choices(checkpoint: Any) -> tuple[str, ...]:
    """What can be wished of its thinking, as `Engine.encode` takes it: ("off", "on"), ("low", "medium", "high"), ()."""
    try:
        choices = checkpoint.chat_template().thinking
    except Exception:
        log.exception("the chat template was not asked about thinking")
        return ()
    wishes: dict[str, None] = {}
    for choice in choices:
        for value in choice.values:
            if value is not None:
                wishes[("on" if value else "off") if isinstance(value, bool) else str(value)] = None
    return tuple(wishes)


def suggested_sampling(checkpoint: Any) -> dict[str, float]:
    """The sampling that the model's makers put beside its weights; {} when there is none that makes sense."""
    found: dict[str, float] = {}
    for name, value in _raw_sampling(checkpoint).items():
        low, high = _RANGES[name]
        if type(value) in (int, float) and math.isfinite(value) and low <= value <= high:
            found[name] = value
    return found


def limit_of(checkpoint: Any) -> int:
    """The most tokens of context the model was made for; 0 where that is not known."""
    try:
        return planning.context_limit(checkpoint)
    except Exception:
        log.info("the model's longest context is not known", exc_info=True)
        return 0


def _raw_sampling(checkpoint: Any) -> dict[str, Any]:
    config = checkpoint.config
    own = {
        name: config[f"general.sampling.{key}"] for key, name in _GGUF.items() if f"general.sampling.{key}" in config
    }
    if own:
        return own
    path = Path(checkpoint.path)
    beside = (path if path.is_dir() else path.parent) / "generation_config.json"
    if checkpoint.form == "gguf":
        return {}  # what lies beside a .gguf may belong to another model
    try:
        with open_to_read(beside) as file:
            data = file.read(_MOST + 1)
        if len(data) > _MOST:
            return {}
        values = json.loads(data.decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    # A model that is not to be sampled says so, and what else stands there are a library's defaults.
    if not isinstance(values, dict) or values.get("do_sample") is not True:
        return {}
    return {name: values[name] for name in _RANGES if name in values}
