"""Experts in RAM: loading, its progress and its interruption, room checks, memory given back, the hand-over."""

from __future__ import annotations

import gc
import math
import re
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tiny_families
import torch
from tiny_models import Tiny, make_plan

from engine import _native
from engine.checkpoints.opening import open_checkpoint
from engine.errors import Cancelled, GreenroomError
from engine.executors import load, loading
from engine.executors.devices import HostDevice
from engine.executors.loading import Loader
from engine.executors.native import expert_store
from engine.executors.native.expert_store import ExpertStore
from engine.executors.opening import open_device
from engine.models import model_spec
from engine.models.spec import TensorRef
from engine.progress import Progress, ignore_progress

CPU = HostDevice()

MakeTiny = Callable[[str, str], Tiny]


@pytest.fixture
def pool() -> _native.ThreadPool:
    return _native.ThreadPool(1)


def held() -> int:
    """Bytes of RAM this process holds for itself, once garbage (also of earlier tests) has been given back.

    Counted page by page: the kernel's running total (rss) lags behind by megabytes.
    """
    gc.collect()
    CPU.release()
    return int(psutil.Process().memory_full_info().uss)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Experts of 50 MB in four layers, enough to be seen in the process's memory."""
    model = tiny_families.build(
        "qwen3_moe", hidden_size=256, moe_intermediate_size=256, num_experts=32, num_hidden_layers=4
    ).bfloat16()
    return tiny_families.save(model, tmp_path_factory.mktemp("large") / "model")


@pytest.mark.parametrize("form", ["safetensors", "fused", "gguf-F32", "gguf-Q8_0"])
def test_every_expert_arrives_in_its_place(tiny: MakeTiny, pool: _native.ThreadPool, form: str) -> None:
    model = tiny("qwen2_moe", form)
    loader = Loader(model.checkpoint, model.spec, ignore_progress)
    store = ExpertStore.load(pool, CPU, loader, recode="float32")
    for layer in (0, 2):
        for expert in range(8):
            for part in ("gate", "up", "down"):
                expected = loader.float32(f"layers.{layer}.moe.experts.{expert}.{part}")
                np.testing.assert_array_equal(store._layers[layer].dequantise(expert, part), expected)
    assert store.nbytes >= 2 * 8 * 3 * 64 * 32 * 4
    store.close()


def test_submit_and_wait_give_what_forward_gives(tiny: MakeTiny, pool: _native.ThreadPool) -> None:
    model = tiny("qwen3_moe", "gguf-Q8_0")
    loader = Loader(model.checkpoint, model.spec, ignore_progress)
    sim = open_device("sim")
    direct, handed = ExpertStore.load(pool, CPU, loader), ExpertStore.load(pool, sim, loader)
    generator = torch.Generator().manual_seed(0)
    for tokens in (1, 7, 3):
        x = torch.randn(tokens, 64, generator=generator)
        ids = torch.randint(0, 8, (tokens, 2), generator=generator, dtype=torch.int32)
        weights = torch.rand(tokens, 2, generator=generator)
        expected = torch.ones(tokens, 64)
        direct.forward(1, x, ids, weights, expected)
        with sim.working():
            there = [sim.upload(part) for part in (x, ids, weights)]
            got = torch.ones(tokens, 64)
            handed.submit(1, *there)
            handed.wait(got)
            result = sim.download(got)
        torch.testing.assert_close(result, expected)
    # One job at a time, and only where there is an accelerator to overlap with.
    handed.submit(1, *there)
    with pytest.raises(RuntimeError):
        handed.submit(1, *there)
    handed.drain()
    with pytest.raises(RuntimeError):
        handed.wait(got)
    with pytest.raises(RuntimeError):
        direct.submit(1, x, ids, weights)
    # An error in the worker reaches whoever waits.
    handed.submit(1, there[0], sim.upload(ids + 8), there[2])
    with pytest.raises(ValueError, match="expert"):
        handed.wait(got)
    names = {thread.name for thread in threading.enumerate()}
    assert any(name.startswith("experts") for name in names)
    handed.close()
    sim.close()
    assert not any(thread.name.startswith(("experts", "sim")) for thread in threading.enumerate())


def test_progress_tells_layer_speed_and_time_left(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "REPORT_INTERVAL", 0.0)
    monkeypatch.setattr(loading, "SETTLED", 0.0)
    reports: list[Progress] = []
    checkpoint = open_checkpoint(large)
    load(checkpoint, model_spec(checkpoint), make_plan(dense_dtype="quantised"), reports.append).close()
    assert [report.done for report in reports] == sorted(report.done for report in reports)
    assert reports[-1].fraction == 1.0
    assert reports[-1].done == reports[-1].total
    pattern = re.compile(r"Reading experts of layer (\d) of 4, [\d.]+ [GM]B/s, \d+ s left")
    layers = {match[1] for report in reports if (match := pattern.fullmatch(report.message))}
    assert layers >= {"2", "3", "4"}  # at the start of the first nothing has been read yet


def test_progress_counts_a_tied_embedding_twice_because_it_is_read_twice(tiny: MakeTiny) -> None:
    reports: list[Progress] = []
    model = tiny("llama", "gguf-F32")
    load(model.checkpoint, model.spec, make_plan(), reports.append).close()
    assert reports[-1].done == reports[-1].total


@pytest.mark.parametrize("layer", [2, 4])
@pytest.mark.parametrize("plan", [{"dense_dtype": "quantised"}, {"device": "sim", "mode": "all_gpu"}])
def test_cancelling_a_load_gives_the_memory_back(
    large: Path, monkeypatch: pytest.MonkeyPatch, layer: int, plan: dict[str, Any]
) -> None:
    monkeypatch.setattr(loading, "REPORT_INTERVAL", 0.0)
    made: list[weakref.ref[Any]] = []

    def remember(create: Callable[..., Any]) -> Callable[..., Any]:
        def create_and_remember(*args: Any, **kwargs: Any) -> Any:
            thing = create(*args, **kwargs)
            made.append(weakref.ref(thing))
            return thing

        return create_and_remember

    monkeypatch.setattr(_native, "Experts", remember(_native.Experts))
    monkeypatch.setattr(torch, "empty", remember(torch.empty))
    alive_at_cancel = 0

    def cancel(progress: Progress) -> None:
        nonlocal alive_at_cancel
        if f"experts of layer {layer}" in progress.message:
            alive_at_cancel = sum(thing() is not None for thing in made)
            raise Cancelled

    checkpoint = open_checkpoint(large)
    with pytest.raises(Cancelled) as kept:
        load(checkpoint, model_spec(checkpoint), make_plan(**plan), cancel)
    # The error, and with it the traceback, is still held; what it passed through is not.
    assert kept.value is not None
    assert alive_at_cancel >= layer
    gc.collect()
    assert not [thing for thing in made if thing() is not None]
    assert not any(thread.name.startswith(("reader", "experts", "sim")) for thread in threading.enumerate())


def test_load_close_load_gives_all_memory_back(large: Path) -> None:
    checkpoint = open_checkpoint(large)
    spec = model_spec(checkpoint)
    sizes, results = [], []
    for _ in range(4):
        executor = load(checkpoint, spec, make_plan(dense_dtype="quantised"))
        loaded = held()
        results.append(executor.forward(np.arange(5)))
        executor.close()
        sizes.append(held())
        assert loaded - sizes[-1] > 25 << 20
    # The first round also pays for what is made once (imports, thread stacks).
    assert max(sizes[1:]) - sizes[0] < 25 << 20
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_too_little_ram_is_said_before_anything_is_read(
    tiny: MakeTiny, pool: _native.ThreadPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("qwen3_moe", "gguf-F32")
    monkeypatch.setattr(loading, "available_ram", lambda: loading.RAM_RESERVE + 1000)
    loader = Loader(model.checkpoint, model.spec, ignore_progress)
    monkeypatch.setattr(loader, "stored", lambda role: pytest.fail(f"read {role}"))
    with pytest.raises(GreenroomError, match=r"does not fit in memory: .* need 0\.0 GB of RAM and 0\.0 GB is free"):
        ExpertStore.load(pool, CPU, loader)


def test_dense_weights_count_too(tiny: MakeTiny, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama", "gguf-F32")
    needed = sum(math.prod(tensor.shape) for tensor in model.checkpoint.tensors.values()) * 4
    needed += model.spec.kv_bytes(128, "f32")
    free = loading.RAM_RESERVE + needed
    monkeypatch.setattr(loading, "available_ram", lambda: free)
    load(model.checkpoint, model.spec, make_plan(context=128)).close()
    free -= 1
    with pytest.raises(GreenroomError, match="its weights and context"):
        load(model.checkpoint, model.spec, make_plan(context=128))


def test_ram_taken_by_others_meanwhile_stops_the_load(
    tiny: MakeTiny, pool: _native.ThreadPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("qwen3_moe", "gguf-F32")
    free = iter([1 << 40, 1 << 40, 0])
    monkeypatch.setattr(loading, "available_ram", lambda: next(free))
    with pytest.raises(GreenroomError, match="the experts of layer 2"):
        ExpertStore.load(pool, CPU, Loader(model.checkpoint, model.spec, ignore_progress))


def test_a_file_cut_short_after_opening_is_a_clear_error(
    tiny: MakeTiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny("qwen3_moe", "gguf-F32").checkpoint.path.read_bytes())
    checkpoint = open_checkpoint(path)
    spec = model_spec(checkpoint)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises(GreenroomError, match="cannot be read"):
        load(checkpoint, spec, make_plan())


def test_experts_of_one_layer_in_two_formats_are_refused(tiny: MakeTiny, pool: _native.ThreadPool) -> None:
    model = tiny("qwen3_moe", "gguf-Q8_0")
    weights = dict(model.spec.weights)
    # A matrix of the right size in another format.
    weights["layers.1.moe.experts.5.gate"] = TensorRef("blk.1.ffn_gate_inp.weight", None, (0, 32))
    loader = Loader(model.checkpoint, replace(model.spec, weights=weights), ignore_progress)
    with pytest.raises(GreenroomError, match="other experts of this layer are stored as Q8_0"):
        ExpertStore.load(pool, CPU, loader)


def test_locking_is_reported(tiny: MakeTiny, pool: _native.ThreadPool) -> None:
    model = tiny("qwen3_moe", "gguf-Q4_0")
    store = ExpertStore.load(pool, CPU, Loader(model.checkpoint, model.spec, ignore_progress))
    assert store.locked == all(experts.locked for experts in store._layers.values())
    assert expert_store.READERS > 1
    store.close()
