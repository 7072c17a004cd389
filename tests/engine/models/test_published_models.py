"""The config.json of published models, whose parameters then add up to the published number.

Tiny models are written by transformers, which puts every header into its own latest words; published files have older
ones, and values that transformers would fill in are missing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import tiny_families
from header_only import HeaderOnly
from safetensors import safe_open

from engine.checkpoints.checkpoint import TensorInfo
from engine.models import model_spec
from engine.models.families import FAMILIES
from engine.models.weights import WeightMap

#: name -> billions of parameters of its language model, family, what matters of its config.json
MODELS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("published_configs.json").read_text())


class AnyShape(tuple[int, ...]):
    """Equal to every shape: the real files are not at hand."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None


class AnyTensors(dict[str, TensorInfo]):
    """Has every tensor whose name differs from a known one only in its numbers.

    The few specs that ask for a tensor's rows are told the vocabulary for embeddings, the MLP's width for others.
    """

    def __init__(self, known: Iterable[str], config: Mapping[str, Any]) -> None:
        self._kinds = {kind(name) for name in known}
        if config.get("tie_word_embeddings") is False:  # which not every tiny model says
            self._kinds.add("lm_head.weight")
        self._config = config

    def __contains__(self, name: object) -> bool:
        return kind(str(name)) in self._kinds

    def get(self, name: str, default: Any = None) -> Any:
        rows = self._config["vocab_size" if "embed" in name else "intermediate_size"]
        return TensorInfo(name, AnyShape((rows, rows)), "BF16", Path("published"), 0, 0) if name in self else default


def kind(name: str) -> str:
    return re.sub(r"\d+", "#", name)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_add_up(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, config = MODELS[name], MODELS[name]["config"]
    path = tiny_families.save(tiny_families.build(model["family"]), tmp_path / "tiny")
    with safe_open(path / "model.safetensors", "np") as file:
        tensors = AnyTensors(file.keys(), config.get("text_config", config))
    header = HeaderOnly("safetensors", config["model_type"], config, {})
    header.tensors = tensors
    sizes: dict[str, int] = {}
    check = WeightMap.check

    def counted(self: WeightMap, role: str, layer: int, expert: int, shapes: Iterable[tuple[int, ...]]) -> str:
        accepted = list(shapes)
        found = check(self, role, layer, expert, accepted)
        sizes[found] = math.prod(accepted[0])
        return found

    monkeypatch.setattr(WeightMap, "check", counted)
    assert model_spec(header).family == model["family"]
    assert sum(sizes.values()) / 1e9 == pytest.approx(model["billions"], rel=0.005)


def test_every_family_has_a_published_model_here() -> None:
    assert {model["family"] for model in MODELS.values()} == {family.name for family in FAMILIES}
