"""Tiny models on disk with their transformers oracle, each made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_families
import tiny_models
import torch
from tiny_models import TOKENS, Tiny, make_plan

from engine.checkpoints.opening import open_checkpoint
from engine.executors import load
from engine.executors.hybrid.executor import TorchExecutor
from engine.models import model_spec
from engine.progress import ignore_progress


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Tiny]:
    """tiny(name, form) of a name in tiny_families.CONFIGS.

    form: "safetensors" (float32), "bfloat16", "float16", "sharded", "fused", "split", "mxfp4", or "gguf-<GGML type>".
    """
    made: dict[tuple[str, str], Tiny] = {}

    def make(name: str, form: str) -> Tiny:
        if (name, form) not in made:
            model = tiny_families.build(name)
            path = _save(model, tmp_path_factory.mktemp("tiny") / "model", form)
            checkpoint = open_checkpoint(path)
            made[name, form] = Tiny(checkpoint, model_spec(checkpoint), tiny_families.logits(model, TOKENS))
        return made[name, form]

    return make


def _save(model: Any, path: Path, form: str) -> Path:
    if form == "fused":
        return tiny_models.save_fused(model, path)
    if form == "sharded":
        return tiny_families.save(model, path, max_shard_size="100KB")
    if form in ("bfloat16", "float16"):
        return tiny_models.save_rounded(model, path, getattr(torch, form))
    if form == "split":
        return tiny_models.save_split(model, path)
    if form == "mxfp4":
        return tiny_models.save_mxfp4(model, path)
    if form == "safetensors":
        return tiny_families.save(model, path)
    return tiny_models.save_gguf(model, path.with_suffix(".gguf"), form.removeprefix("gguf-"))


@pytest.fixture
def run() -> Iterator[Callable[..., Any]]:
    """run(tiny, **plan changes) loads an executor that is closed after the test.

    by_blocks: calls blocks one by one even where the native executor would take the plan
    """
    loaded: list[Any] = []

    def start(model: Tiny, *, by_blocks: bool = False, **changes: Any) -> Any:
        if by_blocks:
            loaded.append(TorchExecutor(model.checkpoint, model.spec, make_plan(**changes), ignore_progress))
        else:
            loaded.append(load(model.checkpoint, model.spec, make_plan(**changes)))
        return loaded[-1]

    yield start
    for executor in loaded:
        executor.close()
