"""Routing traces: how often each step of an answer called each expert, and nothing of what was said.

For simulating caches with what real routers do. Counts are taken from `Engine.usage` between steps, so every executor
can be recorded.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.errors import GreenroomError
from engine.models.spec import MoeSpec
from engine.regular_files import open_to_read
from engine.runtime.events import Message, SamplingParams

if TYPE_CHECKING:
    from engine.runtime.engine import Engine

VERSION = 1
#: Steps x layers x experts of the largest trace that is read: 1 GB in memory.
MOST_COUNTS = 1 << 29
_MOST_BYTES = 1 << 28


@dataclass(frozen=True)
class RoutingTrace:
    """layers: int32 [L], the model's numbers
    tokens: int32 [S] of each step: a chunk of a prompt, or 1
    answer: bool [S], steps of answers
    counts: uint16 [S, L, E], tokens of the step that went to each expert
    """

    layers: npt.NDArray[np.int32]
    tokens: npt.NDArray[np.int32]
    answer: npt.NDArray[np.bool_]
    counts: npt.NDArray[np.uint16]

    def __post_init__(self) -> None:
        steps = len(self.tokens)
        if (
            self.counts.ndim != 3
            or self.counts.shape[:2] != (steps, len(self.layers))
            or self.tokens.ndim != 1
            or self.layers.ndim != 1
            or self.answer.shape != (steps,)
            or (steps and self.tokens.min() < 1)
        ):
            raise ValueError("the parts of the trace do not belong together")

    def save(self, path: Path) -> None:
        parts = {"layers": self.layers, "tokens": self.tokens, "answer": self.answer, "counts": self.counts}
        np.savez_compressed(path, version=np.int32(VERSION), **parts)

    @classmethod
    def load(cls, path: Path) -> RoutingTrace:
        """Raises GreenroomError for a file that is not a trace."""
        try:
            if path.stat().st_size > _MOST_BYTES:
                raise ValueError("it is too large")
            with open_to_read(path) as stored, np.load(stored, allow_pickle=False) as file:
                if int(file["version"]) != VERSION:
                    raise ValueError(f"it is of version {int(file['version'])}, not {VERSION}")
                _check_size(path)
                types = {"layers": np.int32, "tokens": np.int32, "answer": np.bool_, "counts": np.uint16}
                return cls(**{name: np.ascontiguousarray(file[name], kind) for name, kind in types.items()})
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise GreenroomError(
                f"The routing trace {path.name} cannot be read", str(error), "Record it again."
            ) from error


def record_routing(
    engine: Engine, prompts: Iterable[str | Sequence[Message]], params: SamplingParams | None = None
) -> RoutingTrace:
    """Answers each prompt and keeps which experts every step called. Guessing ahead is off: a step is one token.

    Raises GreenroomError for a model without routed experts, and what `Engine.generate` raises.
    """
    params = params or SamplingParams(temperature=0.7, seed=0, max_tokens=256)
    params = replace(params, lookup=False)
    before = engine.usage()
    if before is None:
        raise GreenroomError(
            "There is no routing to record", "this model has no routed experts", "Choose a Mixture-of-Experts model."
        )
    top_k = next(layer.ffn.top_k for layer in engine.spec.layers if isinstance(layer.ffn, MoeSpec))
    tokens: list[int] = []
    answers: list[bool] = []
    counts: list[npt.NDArray[np.uint16]] = []
    layers, last = before.layers, before.counts
    for prompt in prompts:
        engine.reset()
        for event in engine.generate(prompt, params):
            usage = engine.usage()
            if usage is None:
                break
            step = usage.counts - last
            last = usage.counts
            # Events without a step behind them: the first token comes from the prompt's last logits.
            if step.any():
                answers.append(bool(event.token_ids))
                tokens.append(int(step[0].sum()) // top_k)
                counts.append(np.minimum(step, np.iinfo(np.uint16).max).astype(np.uint16))
    shape = (0, *before.counts.shape)
    return RoutingTrace(
        np.array(layers, np.int32),
        np.array(tokens, np.int32),
        np.array(answers, np.bool_),
        np.stack(counts) if counts else np.zeros(shape, np.uint16),
    )


def _check_size(path: Path) -> None:
    """Before anything is allocated: what the headers of the arrays say."""
    with zipfile.ZipFile(path) as archive:
        for name in ("layers.npy", "tokens.npy", "answer.npy", "counts.npy"):
            head = io.BytesIO(archive.open(name).read(1024))
            if np.lib.format.read_magic(head) != (1, 0):
                raise ValueError(f"{name} is of an unknown kind")
            shape, _, kind = np.lib.format.read_array_header_1_0(head)
            if kind.hasobject or np.prod(shape, dtype=np.float64) > MOST_COUNTS:
                raise ValueError(f"{name} is too large")
