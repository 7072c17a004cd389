"""The stage in words, for who cannot see it and for tool tips."""

from __future__ import annotations

from app.language import tr
from app.stage.activity import Activity


def percent(share: float) -> str:
    """ "41%", "0.4%": below ten with one decimal, but for nothing at all."""
    value = 100 * share
    return f"{value:.0f}%" if value >= 9.95 or value == 0 else f"{value:.1f}%"


def describe_expert(activity: Activity, row: int, expert: int) -> str:
    """Three short sentences about one expert."""
    uses = int(activity.uses[row, expert])
    said = [
        tr("Layer {layer}, expert {expert}", layer=activity.layers[row], expert=expert),
        tr("in VRAM") if activity.in_vram[row, expert] else tr("in RAM"),
    ]
    if uses:
        share = percent(activity.share(row, expert))
        said.append(tr("called %n times, {share} of its layer's calls", n=uses, share=share))
    else:
        said.append(tr("not called in this run"))
    return " · ".join(said)


def summarise(activity: Activity) -> str:
    """The whole stage in a few sentences."""
    layers, experts = tr("%n layers", n=len(activity.layers)), tr("%n experts", n=activity.experts)
    said = [tr("{layers} with {experts} each.", layers=layers, experts=experts)]
    in_vram = int(activity.in_vram.sum())
    if in_vram or activity.from_vram:
        said.append(tr("%n of {all} experts are in VRAM.", n=in_vram, all=activity.cells))
    served = activity.served_from_vram
    if served is None:
        said.append(tr("No expert has been called yet."))
        return " ".join(said)
    if in_vram or activity.from_vram:
        said.append(tr("{share} of the calls were served from VRAM.", share=percent(served)))
    said.append(tr("{share} of the experts were not called in this run.", share=percent(activity.never_used)))
    row, expert = divmod(int(activity.uses.argmax()), activity.experts)
    busiest = percent(activity.share(row, expert))
    said.append(
        tr(
            "The busiest is expert {expert} of layer {layer}, with {share} of that layer's calls.",
            expert=expert,
            layer=activity.layers[row],
            share=busiest,
        )
    )
    return " ".join(said)
