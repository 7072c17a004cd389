"""The families Greenroom computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.checkpoints.checkpoint import Checkpoint
from engine.errors import GreenroomError
from engine.models import (
    bailing_moe2,
    dots1,
    ernie4_5_moe,
    gemma4,
    glm4_moe,
    gpt_oss,
    granitemoe,
    hunyuan_v1_moe,
    lfm2_moe,
    llama,
    llama4,
    minimax_m2,
    mixtral,
    olmoe,
    phimoe,
    qwen2,
    qwen2_moe,
    qwen3,
    qwen3_moe,
)
from engine.models.spec import ModelSpec
from engine.models.unsupported import described
from engine.words import say


@dataclass(frozen=True)
class Family:
    """title: what people call it
    architectures: the names that files of each form give themselves
    accepts: tells families apart whose files bear one name
    """

    name: str
    title: str
    architectures: dict[str, tuple[str, ...]]
    build: Callable[[Checkpoint], ModelSpec]
    accepts: Callable[[Checkpoint], bool]

    def reads(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.architecture in self.architectures[checkpoint.form] and self.accepts(checkpoint)


#: The first that reads a checkpoint builds its spec.
FAMILIES = tuple(
    Family(
        module.FAMILY,
        module.TITLE,
        module.ARCHITECTURES,
        module.model_spec,
        getattr(module, "accepts", lambda _: True),
    )
    for module in (
        qwen3_moe,
        gpt_oss,
        glm4_moe,
        gemma4,
        minimax_m2,
        mixtral,
        qwen2_moe,
        olmoe,
        ernie4_5_moe,
        hunyuan_v1_moe,
        granitemoe,
        phimoe,
        dots1,
        bailing_moe2,
        llama4,
        lfm2_moe,
        qwen3,
        qwen2,
        llama,
    )
)


def model_spec(checkpoint: Checkpoint) -> ModelSpec:
    """What the checkpoint computes; worked out once and kept in it.

    Raises GreenroomError for an unknown architecture, a header value that is missing or absurd, and a tensor that is
    missing or has another shape than the header implies.
    """
    return checkpoint.once("spec", lambda: _build(checkpoint))


def _build(checkpoint: Checkpoint) -> ModelSpec:
    for family in FAMILIES:
        if family.reads(checkpoint):
            return family.build(checkpoint)
    raise GreenroomError(
        say("{name} cannot be used", name=checkpoint.name),
        described(checkpoint.architecture),
        say("Choose a model of one of these families: {value}.", value=", ".join(family.title for family in FAMILIES)),
    )
