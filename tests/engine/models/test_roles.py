"""Roles of stacked experts are made when asked for, and look like any others."""

from __future__ import annotations

import pytest
from header_only import HeaderOnly, gguf_config, gguf_shapes

from engine.models import model_spec
from engine.models.roles import WeightRoles, counted
from engine.models.spec import TensorRef


def roles() -> WeightRoles:
    made = WeightRoles()
    made.add("embed", TensorRef("token_embd.weight"))
    made.add_experts(3, "gate", TensorRef("blk.3.ffn_gate_exps.weight", rows=(0, 8)), 2)
    made.add("layers.4.moe.experts.0.gate", TensorRef("one of its own"))
    return made


def test_every_expert_has_its_slice() -> None:
    assert dict(roles()) == {
        "embed": TensorRef("token_embd.weight"),
        "layers.3.moe.experts.0.gate": TensorRef("blk.3.ffn_gate_exps.weight", 0, (0, 8)),
        "layers.3.moe.experts.1.gate": TensorRef("blk.3.ffn_gate_exps.weight", 1, (0, 8)),
        "layers.4.moe.experts.0.gate": TensorRef("one of its own"),
    }
    assert len(roles()) == 4


@pytest.mark.parametrize(
    "missing",
    [
        "layers.3.moe.experts.2.gate",
        "layers.3.moe.experts.01.gate",
        "layers.3.moe.experts.0.up",
        "layers.4.moe.experts.1.gate",
        "lm_head",
        "",
    ],
)
def test_what_is_not_there_is_not_there(missing: str) -> None:
    assert missing not in roles()
    with pytest.raises(KeyError):
        roles()[missing]


def test_counting_names_a_stack_once() -> None:
    header = HeaderOnly("gguf", "qwen3moe", gguf_config("qwen3moe"), gguf_shapes(qk_norm=True))
    weights = model_spec(header).weights
    found = list(counted(weights))
    assert sum(count for _, _, count in found) == len(weights)
    assert {role: count for role, _, count in found if "experts" in role} == {
        f"layers.{layer}.moe.experts.0.{part}": 4 for layer in range(2) for part in ("gate", "up", "down")
    }
    assert [count for _, _, count in counted(dict(weights))] == [1] * len(weights)
