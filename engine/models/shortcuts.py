"""Opt-in shortcuts that change a model's answers for speed, and what each costs in words."""

from __future__ import annotations

from dataclasses import replace

from engine.errors import GreenroomError
from engine.models.spec import ModelSpec, MoeSpec
from engine.words import say

#: How many of a token's experts may be deferred at most: the strongest must be there in time.
MOST_DEFERRED_SHARE = 0.75


def with_fewer_experts(spec: ModelSpec, per_token: int) -> ModelSpec:
    """The same model with so many routed experts per token in every layer.

    Raises GreenroomError for a model without routed experts, and for more than it was trained with.
    """
    trained = experts_per_token(spec)
    asked = say("%n experts per token cannot be used", n=per_token, one="%n expert per token cannot be used")
    if not trained:
        raise GreenroomError(asked, say("the model has no routed experts"), say("Leave that setting alone."))
    if not 1 <= per_token <= trained:
        raise GreenroomError(
            asked,
            say("the model was trained with {trained}, and more make no better answers", trained=trained),
            say("Choose 1 to {trained}.", trained=trained),
        )
    layers = tuple(
        replace(layer, ffn=replace(layer.ffn, top_k=min(per_token, layer.ffn.top_k)))
        if isinstance(layer.ffn, MoeSpec)
        else layer
        for layer in spec.layers
    )
    return replace(spec, layers=layers)


def experts_per_token(spec: ModelSpec) -> int:
    """Most of any layer; 0 without routed experts."""
    return max((layer.ffn.top_k for layer in spec.layers if isinstance(layer.ffn, MoeSpec)), default=0)


def can_defer(spec: ModelSpec) -> bool:
    """Whether a part of the experts' sum may come a layer later."""
    return not any(
        isinstance(layer.ffn, MoeSpec) and (layer.ffn.weigh_input or layer.ffn.dense is not None or layer.post_norms)
        for layer in spec.layers
    )


def check_deferral(spec: ModelSpec, count: int) -> None:
    """Raises GreenroomError unless so many of a token's experts may take effect a layer later."""
    asked = say("%n experts per token cannot be deferred", n=count, one="%n expert per token cannot be deferred")
    why = None
    if not can_defer(spec):
        why = say("this model changes the experts' sum before it goes on, so that a part of it cannot come later")
    most = int(MOST_DEFERRED_SHARE * experts_per_token(spec))
    if why is None and not 0 <= count <= most:
        why = say("at most {most} of the {used} that it uses can", most=most, used=experts_per_token(spec))
    if why is not None:
        raise GreenroomError(asked, why, say("Leave that setting alone, or choose fewer."))


def costs(spec: ModelSpec, per_token: int | None, deferred: int, *, hybrid: bool) -> list[str]:
    """What the user is told of each shortcut in use. spec: as trained."""
    lines = []
    trained = experts_per_token(spec)
    if per_token is not None and per_token < trained:
        lines.append(
            say(
                "Asked for: %n experts per token instead of the {trained} that the model was trained with. Weights "
                "are read in proportion faster; answers get worse, noticeably below three quarters.",
                n=per_token,
                one="Asked for: %n expert per token instead of the {trained} that the model was trained with. Weights "
                "are read in proportion faster; answers get worse, noticeably below three quarters.",
                trained=trained,
            )
        )
    if deferred and hybrid:
        lines.append(
            say(
                "Asked for: of a token's experts that the CPU computes, the weakest ({count}) take effect one layer "
                "later, while the GPU goes on. Published measurements gain up to 1.45 times the speed and lose up to "
                "half a percent of benchmark accuracy; answers differ from the model's own.",
                count=deferred,
            )
        )
    elif deferred:
        lines.append(say("Asked for: deferred experts. Without experts in RAM beside a GPU that changes nothing."))
    return lines
