"""What lies on a device: as much as planned, less where it turns out shorter, nothing after closing."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from tiny_models import TOKENS, Tiny, make_plan

from engine.checkpoints.checkpoint import Checkpoint
from engine.checkpoints.opening import open_checkpoint
from engine.errors import GreenroomError
from engine.executors import load
from engine.executors.executor import TryAgain
from engine.executors.hybrid.executor import TorchExecutor, narrower
from engine.executors.hybrid.expert_slots import HybridExperts
from engine.executors.simulated.device import SimDevice
from engine.hardware.report import HardwareReport
from engine.models import model_spec
from engine.placement.plan import OffloadPlan
from engine.placement.planner import plan as make
from engine.progress import ignore_progress

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "placement"))
import random_moe
from fake_machines import make_report

MakeTiny = Callable[[str, str], Tiny]
GB = 1_000_000_000
HERE: HardwareReport = make_report(ram=64 * GB, free=60 * GB, cores=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Weights of 60 MB as stored, so that they outweigh activations."""
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    shape = random_moe.Shape(layers=3, hidden=512, intermediate=256, experts=32, heads=8, kv_heads=2, vocab=16384)
    random_moe.write(path, shape, "Q8_0")
    return open_checkpoint(path)


def opened(checkpoint: Checkpoint, plan: OffloadPlan) -> TorchExecutor:
    return TorchExecutor(checkpoint, model_spec(checkpoint), plan, ignore_progress)


def device_of(executor: TorchExecutor) -> SimDevice:
    device = executor._device.device
    assert isinstance(device, SimDevice)
    return device


WISHES = [
    {"device": "sim"},
    {"device": "sim", "dtype": "float32"},
    {"device": "sim", "kv_type": "q8"},
    {"device": "sim:vram=80e6", "leave_vram": 0},
    {"device": "sim:vram=50e6", "leave_vram": 0},
]


@pytest.mark.parametrize("wishes", WISHES, ids=lambda wishes: ",".join(map(str, wishes.values())))
def test_a_device_of_just_the_planned_size_is_enough(model: Checkpoint, wishes: dict[str, Any]) -> None:
    """It is full within 5 % through loading, a full chunk of a prompt, scoring and a token, and nothing is given up."""
    plan = make(model, HERE, 512, **wishes)
    assert plan.runnable
    executor = opened(model, replace(plan, device=f"sim:vram={plan.bytes.vram_total}"))
    try:
        device = device_of(executor)
        ids = np.random.default_rng(0).integers(0, 16384, plan.prefill_chunk)
        weights = plan.bytes.vram_total - plan.bytes.vram["buffers"]
        assert device.memory().held == pytest.approx(weights, rel=0.02)
        if isinstance(executor._experts, HybridExperts):
            # Prompts are streamed where that can be.
            executor._experts.speeds.cpu = dict.fromkeys(range(1, 16), 1.0)
        executor.forward(ids)
        executor.truncate(100)
        executor.forward(ids[:128], "all")
        executor.forward(ids[:1])
        if not plan.hot_slots:  # work space outweighs so few weights
            assert device.memory().peak == pytest.approx(plan.bytes.vram_total, rel=0.05)
        assert executor.chunk == plan.prefill_chunk
        assert not executor.status().notes
    finally:
        executor.close()
    gc.collect()
    assert device.memory().held == 0


def test_less_memory_than_planned_takes_steps_down_and_says_so(model: Checkpoint) -> None:
    plan = make(model, HERE, 512, device="sim")
    assert (plan.mode, plan.dense_dtype, plan.kv_type) == ("all_gpu", "bfloat16", "bf16")
    # Everything; with a quarter of the work space all but half of what a cache in q8 saves; less; much less.
    work, spec = plan.bytes.vram["buffers"], model_spec(model)
    saved = spec.kv_bytes(512, "bf16") - spec.kv_bytes(512, "q8")
    with_q8 = plan.bytes.vram_total - work + work // 4 - saved // 2
    seen = []
    for vram in (110e6, with_q8, 60e6, 35e6):
        executor = opened(model, replace(plan, device=f"sim:vram={vram}"))
        status = executor.status()
        logits = executor.forward(TOKENS[:4])
        assert np.isfinite(logits).all()
        told = [note.partition(": ")[2] for note in status.stepped_down]
        seen.append((status.path, [note for note in told if not note.startswith("prompts are read")]))
        executor.close()
    q8 = "the KV cache is held in q8 instead of bf16, a little less exactly."
    int8 = "dense weights are held as int8 instead of bfloat16, a little less exactly."
    ram = "the experts stay in RAM and are computed by the CPU, which is slower."
    assert ("all_gpu", [q8]) in seen
    assert ("all_gpu", [q8, int8]) in seen
    assert ("hybrid", [q8, int8, ram]) in seen
    with pytest.raises(GreenroomError, match="does not fit in memory"):
        opened(model, replace(plan, device="sim:vram=8e6"))
    gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("sim", "experts"))]


def test_what_is_given_up_in_which_order() -> None:
    def steps(plan: OffloadPlan, *, has_experts: bool) -> list[tuple[str, str, str]]:
        found = []
        while smaller := narrower(plan, has_experts=has_experts):
            plan = smaller[0]
            found.append((plan.mode, plan.dense_dtype, plan.kv_type))
        return found

    hybrid = make_plan(device="sim", mode="hybrid", dense_dtype="bfloat16", kv_type="bf16")
    rounded = [("hybrid", "bfloat16", "q8"), ("hybrid", "int8", "q8"), ("hybrid", "int4", "q8")]
    assert steps(hybrid, has_experts=True) == rounded
    expected = [("all_gpu", "bfloat16", "q8"), ("all_gpu", "int8", "q8"), ("hybrid", "int8", "q8"), rounded[-1]]
    assert steps(replace(hybrid, mode="all_gpu"), has_experts=True) == expected
    dense = steps(replace(hybrid, mode="all_gpu"), has_experts=False)
    assert dense == [("all_gpu", d, "q8") for d in ("bfloat16", "int8", "int4")]
    exact = replace(hybrid, mode="all_gpu", dense_dtype="float32", kv_type="f32")
    assert steps(exact, has_experts=True) == [("hybrid", "float32", "f32")]


@pytest.mark.parametrize("mode", ["hybrid", "all_gpu"])
def test_memory_that_runs_out_in_a_prompt_makes_chunks_smaller(
    tiny: MakeTiny, run: Callable[..., Any], mode: str
) -> None:
    model = tiny("qwen3_moe", "gguf-F32")
    executor = run(model, device="sim", mode=mode)
    device = device_of(executor)
    expected = executor.forward(TOKENS[:6])
    executor.truncate(0)
    # Another program takes what is left but for some tens of kilobytes.
    device.memory_in_use.limit = device.memory().held + 40_000
    attempts = 0
    with pytest.raises(TryAgain):
        executor.forward(TOKENS)
    while True:
        attempts += 1
        try:
            executor.forward(TOKENS[: min(executor.chunk, len(TOKENS))])
            break
        except TryAgain:
            assert executor.length == 0
    assert executor.chunk < 48
    assert f"read {executor.chunk} tokens at a time" in executor.status().notes[0]
    assert executor.status().notes == executor.status().stepped_down
    assert len(executor.status().notes) == 1
    device.memory_in_use.limit = 1 << 40
    executor.truncate(0)
    np.testing.assert_allclose(executor.forward(TOKENS[:6]), expected, atol=1e-5)


def test_memory_that_runs_out_for_one_token_ends_the_answer(tiny: MakeTiny, run: Callable[..., Any]) -> None:
    executor = run(tiny("llama", "gguf-F32"), device="sim", mode="all_gpu")
    device_of(executor).memory_in_use.limit = device_of(executor).memory().held
    with pytest.raises(GreenroomError, match="does not fit in memory"):
        executor.forward(TOKENS[:1])


def test_a_device_that_breaks_down_ends_the_answer_and_the_model(tiny: MakeTiny, run: Callable[..., Any]) -> None:
    model = tiny("qwen3_moe", "gguf-F32")
    for mode in ("hybrid", "all_gpu"):
        executor = run(model, device="sim", mode=mode)
        executor.forward(TOKENS[:5])
        device_of(executor).break_down("the cable was pulled")
        with pytest.raises(GreenroomError, match=r"interrupted: sim has stopped working .*cable.*Load the model"):
            executor.forward(TOKENS[5:6])
        with pytest.raises(GreenroomError, match="Load it again"):
            executor.truncate(0)
        executor.close()
        # The next load works.
        again = run(model, device="sim", mode=mode)
        assert np.isfinite(again.forward(TOKENS[:5])).all()
    with pytest.raises(GreenroomError, match="could not be loaded"):
        run(model, device="sim:error_after=50", mode="all_gpu")


def private_bytes() -> int:
    """Written by this process alone. Pages of libraries count as its own once other programs end that map them, too."""
    if sys.platform != "linux":
        return int(psutil.Process().memory_full_info().uss)
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "free_parts", "small", "maps", "mapped", "unused", "free_small", "used", "free", "top")
    ]


def bytes_in_use() -> int:
    """What was asked of the allocator and not given back; 0 where it does not tell."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None) if sys.platform == "linux" else None
    if mallinfo is None:
        return 0
    mallinfo.restype = _Mallinfo
    found = mallinfo()
    return int(found.used + found.mapped)


def test_ten_loads_leave_nothing_behind(model: Checkpoint) -> None:
    plan = make(model, HERE, 512, device="sim:vram=60e6", leave_vram=0)
    assert plan.mode == "hybrid"
    private, in_use = [], []
    for _ in range(10):
        executor = load(model, model_spec(model), plan)
        executor.forward(TOKENS[:20])
        executor.forward(TOKENS[:1])
        device = device_of(executor)  # type: ignore[arg-type]
        executor.close()
        del executor
        gc.collect()
        assert device.memory().held == 0
        private.append(private_bytes())
        in_use.append(bytes_in_use())
    # The model takes 60 MB each time. The least of some loads counts: what the allocator holds back comes and goes.
    assert min(private[5:]) - min(private[1:5]) < 6 << 20
    assert min(in_use[5:]) - min(in_use[1:5]) < 1 << 19
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("sim", "experts"))]


def test_the_hand_off_is_measured(tiny: MakeTiny, run: Callable[..., Any]) -> None:
    executor = run(tiny("qwen3_moe", "gguf-F32"), device="sim:latency=2e-3", mode="hybrid")
    executor.forward(TOKENS[:5])
    assert executor.status().handoff_s == 0
    executor.forward(TOKENS[5:6])
    # A copy to the host, at least half the latency late; no longer three.
    assert executor.status().handoff_s > 1e-3
    downloads = []
    device = device_of(executor)
    download = device.download
    device.download = lambda source, *a, **k: downloads.append(source.shape) or download(source, *a, **k)  # type: ignore
    executor.forward(TOKENS[6:7])
    layers = len(executor._layers)
    assert len(downloads) == layers + 1  # and the logits


def test_a_token_on_the_device_waits_for_nothing(tiny: MakeTiny, run: Callable[..., Any]) -> None:
    """All on the GPU: no value goes to the host before the logits."""
    executor = run(tiny("qwen2_moe", "gguf-Q4_0"), device="sim", mode="all_gpu", dense_dtype="bfloat16")
    executor.forward(TOKENS[:5])
    device = device_of(executor)
    before = device.syncs
    downloads = []
    download = device.download

    def counted(source: torch.Tensor, *args: Any) -> torch.Tensor:
        downloads.append(source.shape)
        return download(source, *args)

    device.download = counted  # type: ignore[method-assign]
    executor.forward(TOKENS[5:6])
    assert device.syncs == before
    assert len(downloads) == 1
