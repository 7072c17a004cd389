"""No deadlock and no wrong logits, whatever is cancelled when, on random simulated accelerators under a watchdog.

    pytest tests/engine/executors/test_stress.py --stress 600 --stress-seed 1000

runs it for ten minutes from that seed on, and says what happened how often. The seed of a failing round is in its
message.
"""

from __future__ import annotations

import gc
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import TOKENS, Tiny, make_plan

from engine.errors import Cancelled, GreenroomError
from engine.executors import load
from engine.executors.hybrid.expert_slots import HybridExperts

TOKEN_IDS = np.asarray(TOKENS, dtype=np.int64)
#: What a round may take longer than it should, on a machine busy with other things, before it counts as stuck.
PATIENCE = 120.0

pytestmark = pytest.mark.usefixtures("data_folder")


@pytest.mark.timeout(0)  # the watchdog below tells more
def test_random_cancels_chunks_threads_and_links(
    tiny: Callable[[str, str], Tiny], request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = float(request.config.getoption("--stress"))
    seed = int(request.config.getoption("--stress-seed"))
    counts: Counter[str] = Counter()
    model = tiny("qwen2_moe", "gguf-Q8_0")
    reference = load(model.checkpoint, model.spec, make_plan(dense_dtype="float32", threads=1))
    expected = reference.forward(TOKEN_IDS, "all")
    reference.close()
    failure: list[str] = []
    now = ["none"]

    def work() -> None:
        end, number = time.monotonic() + seconds, seed
        while not failure and (time.monotonic() < end or number < seed + 4):
            now[0] = f"round {number}"
            try:
                one_round(model, expected, random.Random(number), counts, end)
            except BaseException:
                failure.append(f"{now[0]}\n{traceback.format_exc()}")
            number += 1

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(seconds + PATIENCE)
    if worker.is_alive():
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        stacks = [
            f"{names.get(ident)}:\n{''.join(traceback.format_stack(frame))}"
            for ident, frame in sys._current_frames().items()
        ]
        pytest.fail(f"stuck in {now[0]}\n" + "\n".join(stacks))
    assert not failure, failure[0]
    # Every kind of step was among them.
    assert counts["cancelled"]
    assert counts["calls"] > counts["cancelled"]
    if seconds >= 60:
        with capsys.disabled():
            sys.stdout.write(f"\nseeds from {seed} on: {dict(counts)}\n")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("experts", "sim-"))]


def one_round(model: Tiny, expected: np.ndarray, chance: random.Random, counts: Counter[str], end: float) -> None:
    """One load, some answers, many cancels; in some rounds so few that most calls come to an end."""
    pause = chance.choice([0.0005, 0.02, 0.3, 1.0, 3.0])
    device = f"sim:seed={chance.randrange(1000)},latency={chance.choice(['1e-6', '2e-5', '1e-3'])}"
    device += f",copy={chance.choice(['1e7', '1e8', '1e12'])}"
    breaks = chance.random() < 0.2
    counts["loads"] += 1
    if breaks:
        device += f",error_after={chance.randrange(300, 3000)}"
    if chance.random() < 0.2:
        device += ",fail=pin"
    deferred = chance.random() < 0.2
    plan = make_plan(
        mode="hybrid",
        device=device,
        hot_slots=chance.choice([0, 1, 7, 16, 24]),
        threads=chance.randint(1, 8),
        dense_dtype="float32",
        # Changes the logits of tokens one by one.
        defer_experts=1 if deferred else 0,
    )
    try:
        executor = load(model.checkpoint, model.spec, plan)
    except (GreenroomError, torch.AcceleratorError):
        assert breaks
        counts["broken while loading"] += 1
        return
    ended = threading.Event()

    def cancel() -> None:
        while not ended.wait(chance.uniform(0, pause)):
            executor.cancel()
            executor.usage()
            executor.status()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    assert isinstance(executor._experts, HybridExperts)
    try:
        if chance.random() < 0.5:
            executor._experts.speeds.cpu = dict.fromkeys(range(12), 1.0)
        answer_in_pieces(executor, expected, chance, counts, end, tolerance=2.0 if deferred else 1e-3)
    except (GreenroomError, torch.AcceleratorError):
        assert breaks
        counts["broken while answering"] += 1
    finally:
        ended.set()
        canceller.join()
        held = executor._device.device.memory_in_use
        executor.close()
    gc.collect()  # errors hold the frames that they came through
    assert held.held == 0 or breaks


def answer_in_pieces(
    executor: Any, expected: np.ndarray, chance: random.Random, counts: Counter[str], end: float, tolerance: float
) -> None:
    for _ in range(60):
        if time.monotonic() > end:
            return
        length = executor.length
        if length == len(TOKEN_IDS) or chance.random() < 0.1:
            executor.truncate(chance.randint(0, length))
            continue
        size = min(chance.choice([1, 1, 1, 2, 5, 30]), len(TOKEN_IDS) - length)
        cache = executor._experts.cache
        if cache is not None and chance.random() < 0.03:
            executor._experts.shrink(cache.slots // 2)
            counts["slots given back"] += 1
        counts["calls"] += 1
        try:
            rows = executor.forward(TOKEN_IDS[length : length + size], "all")
            close = np.abs(rows - expected[length : length + size]).max() <= tolerance * np.abs(expected).max()
            assert close, f"wrong logits at {length} + {size}"
        except Cancelled:
            counts["cancelled"] += 1
