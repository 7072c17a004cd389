"""What whoever reads an answer is told when its device runs short of memory or breaks down in the middle of it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import engine
from engine.checkpoints.checkpoint import Checkpoint
from engine.errors import GreenroomError
from engine.executors.simulated.device import SimDevice
from engine.placement.plan import OffloadPlan
from engine.placement.planner import plan as make
from engine.runtime.engine import Engine
from engine.runtime.events import SamplingParams

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "placement"))
import random_moe
from fake_machines import make_report

GB = 1_000_000_000
SAMPLING = SamplingParams(temperature=0, max_tokens=12, lookup=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    shape = random_moe.Shape(layers=3, hidden=512, intermediate=256, experts=32, heads=8, kv_heads=2, vocab=16384)
    random_moe.write(path, shape, "Q8_0")
    return engine.open_checkpoint(path)


@pytest.fixture
def plan(model: Checkpoint) -> OffloadPlan:
    """With slots for hot experts."""
    made = make(model, make_report(ram=64 * GB, free=60 * GB, cores=1), 512, device="sim:vram=60e6", leave_vram=0)
    assert made.hot_slots > 4
    return made


def device_of(loaded: Engine) -> SimDevice:
    executor: Any = loaded._executor
    device = executor._device.device
    assert isinstance(device, SimDevice)
    return device


def test_memory_that_runs_out_is_told_while_the_answer_goes_on(model: Checkpoint, plan: OffloadPlan) -> None:
    """`stepped_down` has the sentence at the very event whose step it cost, and the answer comes to its end."""
    with engine.load(model, plan) as loaded:
        slots = loaded.status().cache_slots
        told, tokens = [], 0
        for event in loaded.generate("Hello there", SAMPLING):
            told.append(loaded.status().stepped_down)
            tokens += len(event.token_ids)
            if tokens == 4:
                # Another program takes what is left.
                memory = device_of(loaded).memory_in_use
                memory.limit = memory.held + 10_000
        assert (tokens, event.stop_reason) == (12, "length")
        before = told.index(next(filter(None, told)))
        # The prompt's chunk and four tokens; the fifth needed room.
        assert before == 5
        assert told[:5] == [()] * 5
        assert len(set(told[5:])) == 1
        (note,) = told[5]
        left = loaded.status().cache_slots
        assert left < slots
        assert note.startswith(f"VRAM ran short in an answer: {left or 'no'} experts are left in it")
        assert note in loaded.status().notes
        # The next answer does with what is left, and has nothing new to tell.
        assert [event.stop_reason for event in loaded.generate("Hello there", SAMPLING)][-1] == "length"
        assert loaded.status().stepped_down == (note,)


@pytest.mark.parametrize("mode", ["hybrid", "all_gpu"])
def test_a_device_that_breaks_down_ends_its_answer_alone(model: Checkpoint, plan: OffloadPlan, mode: str) -> None:
    plan = replace(plan, device="sim", mode=mode, hot_slots=plan.hot_slots if mode == "hybrid" else 0)
    with engine.load(model, plan) as loaded:
        text = ""
        events = loaded.generate("Hello there", SAMPLING)
        while (event := next(events)).stats.completion_tokens < 4:
            text += event.text
        device_of(loaded).break_down("the cable was pulled")
        with pytest.raises(GreenroomError) as broken:
            next(events)
        assert str(broken.value).startswith(
            "The answer was interrupted: sim has stopped working (simulated failure: the"
        )
        assert not loaded.loaded
        with pytest.raises(GreenroomError, match=r"no longer loaded\. Load it again\."):
            next(iter(loaded.generate("Hello there", SAMPLING)))
    with engine.load(model, plan) as again:
        whole = "".join(event.text for event in again.generate("Hello there", SAMPLING))
        assert whole.startswith(text)
        assert len(whole) > len(text)
