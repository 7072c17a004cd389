"""The families Greenroom computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.checkpoints.checkpoint import Checkpoint
from engine.errors import GreenroomError
from engine.models import llama, qwen2_moe, qwen3_moe
from engine.models.spec import ModelSpec


@dataclass(frozen=True)
class Family:
    """architectures: the names that files of each form give themselves."""

    name: str
    architectures: dict[str, tuple[str, ...]]
    build: Callable[[Checkpoint], ModelSpec]


FAMILIES = tuple(
    Family(module.FAMILY, module.ARCHITECTURES, module.model_spec) for module in (llama, qwen2_moe, qwen3_moe)
)


def supported(form: str) -> tuple[str, ...]:
    """Architecture names that files of this form may carry."""
    return tuple(name for family in FAMILIES for name in family.architectures[form])


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    """What the checkpoint computes.

    Raises GreenroomError for an unknown architecture, a header value that is missing or absurd, and a tensor that is
    missing or has another shape than the header implies.
    """
    for family in FAMILIES:
        if checkpoint.architecture in family.architectures[checkpoint.form]:
            return family.build(checkpoint)
    raise GreenroomError(
        f"{checkpoint.name} cannot be used",
        f'Greenroom does not know its architecture "{checkpoint.architecture}"',
        f"Choose a model of one of these: {', '.join(supported(checkpoint.form))}.",
    )
