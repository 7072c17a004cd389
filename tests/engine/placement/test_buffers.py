"""RAM beside the weights, against figures measured by tests/benchmarks/memory.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import engine
from engine.models import model_spec
from engine.placement.buffers import cpu_buffers, work_bytes
from engine.placement.sizes import Layout, take_inventory

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import random_moe

PACKED = Layout("packed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("buffers")


def written(folder: Path, form: str, **changes: int) -> tuple:  # type: ignore[type-arg]
    shape = random_moe.Shape(layers=1, hidden=256, intermediate=64, experts=8, heads=8, kv_heads=2, **changes)
    path = folder / f"{form}-{sum(changes.values())}.gguf"
    random_moe.write(path, shape, form)
    checkpoint = engine.open_checkpoint(path)
    spec = model_spec(checkpoint)
    return spec, take_inventory(spec, checkpoint)


def test_work_space_of_a_chunk_by_hand(folder: Path) -> None:
    spec, inventory = written(folder, "Q4_0", vocab=512)
    # Residual stream, its copy, the mixer's result; q, k, v and the heads' results, 128 each.
    floats = 3 * 256 + (8 + 2 + 2 + 8) * 128
    codes = 256 + 8 * 64
    assert work_bytes(spec, inventory, 8192, PACKED) == 512 * (4 * floats + 2 * codes)
    assert work_bytes(spec, inventory, 100, PACKED) == 100 * (4 * floats + 2 * codes + 4 * 512)


def test_floating_point_weights_want_floats(folder: Path) -> None:
    spec, inventory = written(folder, "BF16", vocab=512)
    wide = work_bytes(spec, inventory, 8192, PACKED)
    assert wide - work_bytes(spec, inventory, 8192, Layout("packed", "int8")) == 512 * 2 * (256 + 8 * 64)


def test_a_large_vocabulary_costs_logits_and_tables(folder: Path) -> None:
    spec, inventory = written(folder, "Q4_0", vocab=512)
    large_spec, large = written(folder, "Q4_0", vocab=40_000)
    more = cpu_buffers(large_spec, large, 8192, PACKED, PACKED) - cpu_buffers(spec, inventory, 8192, PACKED, PACKED)
    assert more > 400 * 39_488


def test_torch_takes_more(folder: Path) -> None:
    spec, inventory = written(folder, "Q4_0", vocab=512)
    ours = cpu_buffers(spec, inventory, 8192, PACKED, PACKED)
    assert cpu_buffers(spec, inventory, 8192, Layout("bfloat16"), PACKED) > ours + 100_000_000
