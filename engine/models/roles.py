"""Roles of a model's weights. Experts that lie in one tensor are one entry, however many there are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from engine.models.spec import TensorRef

_EXPERT = re.compile(r"layers\.(\d+)\.moe\.experts\.(0|[1-9]\d*)\.(\w+)\Z")


class WeightRoles(Mapping[str, TensorRef]):
    """`ModelSpec.weights`. A model of 40,000 experts' matrices would need as many references, which nobody but the
    loader looks at, so those of stacked experts are made when they are asked for.
    """

    def __init__(self) -> None:
        self._single: dict[str, TensorRef] = {}
        #: (layer, part): the reference to expert 0, and how many experts there are.
        self._stacks: dict[tuple[int, str], tuple[TensorRef, int]] = {}

    def add(self, role: str, ref: TensorRef) -> None:
        self._single[role] = ref

    def add_experts(self, layer: int, part: str, ref: TensorRef, experts: int) -> None:
        """Roles layers.{layer}.moe.experts.{e}.{part} of all experts e, which are the slices of ref's tensor."""
        self._stacks[layer, part] = replace(ref, index=0), experts

    def counted(self) -> Iterator[tuple[str, TensorRef, int]]:
        """(role, reference, how many): stacked experts by the first of them, since all have one shape."""
        for role, ref in self._single.items():
            yield role, ref, 1
        for (layer, part), (ref, experts) in self._stacks.items():
            yield _role(layer, 0, part), ref, experts

    def __getitem__(self, role: str) -> TensorRef:
        single = self._single.get(role)
        if single is not None:
            return single
        match = _EXPERT.match(role)
        ref, experts = self._stacks.get((int(match[1]), match[3]), (None, 0)) if match else (None, 0)
        if match is None or ref is None or int(match[2]) >= experts:
            raise KeyError(role)
        return replace(ref, index=int(match[2]))

    def __iter__(self) -> Iterator[str]:
        yield from self._single
        for (layer, part), (_, experts) in self._stacks.items():
            yield from (_role(layer, expert, part) for expert in range(experts))

    def __len__(self) -> int:
        return len(self._single) + sum(experts for _, experts in self._stacks.values())


def _role(layer: int, expert: int, part: str) -> str:
    return f"layers.{layer}.moe.experts.{expert}.{part}"


def counted(weights: Mapping[str, TensorRef]) -> Iterator[tuple[str, TensorRef, int]]:
    """`WeightRoles.counted` of any mapping."""
    if isinstance(weights, WeightRoles):
        yield from weights.counted()
    else:
        yield from ((role, ref, 1) for role, ref in weights.items())
