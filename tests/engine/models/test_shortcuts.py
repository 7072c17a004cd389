"""Shortcuts that change answers: only what the model can, only when asked for, and the cost in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.errors import GreenroomError
from engine.models.shortcuts import check_deferral, costs, experts_per_token, with_fewer_experts
from engine.models.spec import LayerSpec, MlpSpec, ModelSpec, MoeSpec


@pytest.fixture
def spec() -> ModelSpec:
    made = object.__new__(ModelSpec)
    moe = LayerSpec(None, MoeSpec(experts=16, top_k=8, intermediate=32))  # type: ignore[arg-type]
    dense = LayerSpec(None, MlpSpec(32))  # type: ignore[arg-type]
    for name in ModelSpec.__dataclass_fields__:
        object.__setattr__(made, name, None)
    object.__setattr__(made, "layers", (dense, moe, replace(moe, ffn=replace(moe.ffn, top_k=4))))
    return made


def test_every_layer_uses_fewer_experts(spec: ModelSpec) -> None:
    assert experts_per_token(spec) == 8
    fewer = with_fewer_experts(spec, 5)
    assert [layer.ffn.top_k for layer in fewer.layers[1:]] == [5, 4]
    assert fewer.layers[0] is spec.layers[0]
    assert experts_per_token(spec) == 8


@pytest.mark.parametrize("number", [0, 9])
def test_more_experts_than_trained_are_refused(spec: ModelSpec, number: int) -> None:
    with pytest.raises(GreenroomError, match="trained with 8") as caught:
        with_fewer_experts(spec, number)
    assert "1 to 8" in caught.value.remedy


def test_dense_models_have_no_experts_to_leave_out(spec: ModelSpec) -> None:
    object.__setattr__(spec, "layers", spec.layers[:1])
    with pytest.raises(GreenroomError, match="no routed experts"):
        with_fewer_experts(spec, 4)


def test_the_strongest_experts_are_never_deferred(spec: ModelSpec) -> None:
    check_deferral(spec, 6)
    with pytest.raises(GreenroomError, match="at most 6 of the 8"):
        check_deferral(spec, 7)


@pytest.mark.parametrize("change", [{"weigh_input": True}, {"dense": MlpSpec(8)}])
def test_models_that_change_the_sum_cannot_defer(spec: ModelSpec, change: dict) -> None:
    moe = replace(spec.layers[1], ffn=replace(spec.layers[1].ffn, **change))
    object.__setattr__(spec, "layers", (moe,))
    with pytest.raises(GreenroomError, match="changes the experts' sum"):
        check_deferral(spec, 1)


def test_costs_are_told_only_for_what_was_asked(spec: ModelSpec) -> None:
    assert costs(spec, None, 0, hybrid=True) == []
    assert costs(spec, 8, 0, hybrid=True) == []
    (line,) = costs(spec, 6, 0, hybrid=False)
    assert "6 experts per token instead of the 8" in line
    assert "worse" in line
    (line,) = costs(spec, None, 2, hybrid=True)
    assert "1.45" in line
    assert "half a percent" in line
    (line,) = costs(spec, None, 2, hybrid=False)
    assert "changes nothing" in line
