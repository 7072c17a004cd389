"""A wait that somebody forgets is found by the simulated accelerator, whatever the timing: each is left out once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import TOKENS, Tiny

from engine.errors import GreenroomError
from engine.executors.devices import Event, Stream
from engine.executors.executor import TryAgain
from engine.executors.hybrid import expert_slots, streaming
from engine.executors.hybrid.expert_slots import HybridExperts
from engine.executors.hybrid.streaming import ExpertStream, Pieces, Staging
from engine.executors.simulated.device import SimDevice

TOKEN_IDS = np.asarray(TOKENS, dtype=np.int64)

pytestmark = pytest.mark.usefixtures("data_folder")


def no_wait_before_overwriting(patch: pytest.MonkeyPatch) -> None:
    """Buffers on the device are filled again while experts in them are being computed."""
    send = Staging.send
    patch.setattr(Staging, "send", lambda self, pieces, out, after=None: send(self, pieces, out))


def no_wait_for_what_arrives(patch: pytest.MonkeyPatch) -> None:
    """Streamed experts are computed without waiting for their copies."""
    take, wait_for = ExpertStream.take, SimDevice.wait_for

    def careless(self: ExpertStream, key: tuple[int, int]) -> Any:
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(SimDevice, "wait_for", ignore_own)
            return take(self, key)

    def ignore_own(self: SimDevice, event: Event, stream: Stream | None = None) -> None:
        if stream is not None:
            wait_for(self, event, stream)

    patch.setattr(ExpertStream, "take", careless)


def no_wait_before_refilling(patch: pytest.MonkeyPatch) -> None:
    """Page-locked buffers are filled again before their copies to the device are done."""
    send = Staging.send

    def careless(self: Staging, pieces: Pieces, out: Any, after: Event | None = None) -> Event:
        self._busy = [None] * len(self._busy)
        return send(self, pieces, out, after)

    patch.setattr(Staging, "send", careless)


@pytest.mark.parametrize(
    ("leave_out", "told"),
    [
        (None, ""),
        (no_wait_before_overwriting, "writes .* which sim-compute reads"),
        (no_wait_for_what_arrives, "sim-compute reads .* which sim-stream-1 writes"),
        (no_wait_before_refilling, "the host has changed .* before it was copied"),
    ],
)
def test_each_wait_of_a_streamed_prompt_is_needed(
    tiny: Callable[[str, str], Tiny],
    run: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    leave_out: Callable[[pytest.MonkeyPatch], None] | None,
    told: str,
) -> None:
    # More buffers on the device than page-locked ones, so that either may be short.
    monkeypatch.setattr(expert_slots, "RING_SHARE", 4)
    monkeypatch.setattr(streaming, "STAGING_BUFFERS", 2)
    executor = run(tiny("qwen3_moe", "safetensors"), mode="hybrid", device="sim:latency=1e-2", hot_slots=12)
    experts = executor._experts
    assert isinstance(experts, HybridExperts)
    experts.speeds.cpu = dict.fromkeys(range(1, 12), 1.0)  # so that streaming is sooner
    if leave_out is None:
        assert np.isfinite(executor.forward(TOKEN_IDS[:24])).all()
        assert executor.status().prefill == "streamed"
        return
    leave_out(monkeypatch)
    with pytest.raises(GreenroomError, match=f"sim has stopped working .*a race: .*{told}"):
        executor.forward(TOKEN_IDS[:24])


def no_wait_behind_copies(patch: pytest.MonkeyPatch) -> None:
    """Slots are given back while experts of a prompt are still being copied into them."""
    patch.setattr(Staging, "wait_behind", lambda self: None)


@pytest.mark.parametrize(
    ("leave_out", "told"), [(None, ""), (no_wait_behind_copies, "bytes that sim-stream-1 writes were let go")]
)
def test_slots_given_back_in_a_streamed_prompt_wait_for_its_copies(
    tiny: Callable[[str, str], Tiny],
    run: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    leave_out: Callable[[pytest.MonkeyPatch], None] | None,
    told: str,
) -> None:
    """The device runs out of memory in the middle of the first layer's experts; others are on their way."""
    monkeypatch.setattr(expert_slots, "RING_SHARE", 2)
    monkeypatch.setattr(expert_slots, "BLOCK_BYTES", 1)  # one slot in each
    executor = run(tiny("qwen3_moe", "safetensors"), mode="hybrid", device="sim:latency=1e-2", hot_slots=12)
    experts = executor._experts
    assert isinstance(experts, HybridExperts)
    experts.speeds.cpu = dict.fromkeys(range(1, 12), 1.0)
    slots, taken, take = experts.cache.slots, [], ExpertStream.take

    def short_of_memory(self: ExpertStream, key: tuple[int, int]) -> Any:
        taken.append(take(self, key))
        if len(taken) == 2:
            raise torch.OutOfMemoryError("no room for this expert's results")
        return taken[-1]

    monkeypatch.setattr(ExpertStream, "take", short_of_memory)
    if leave_out is not None:
        leave_out(monkeypatch)
        with pytest.raises(GreenroomError, match=f"sim has stopped working .*a race: .*{told}"):
            answer(executor)
        return
    assert np.isfinite(answer(executor)).all()
    assert experts.cache.slots < slots


def answer(executor: Any) -> Any:
    """A prompt and what follows it, tried again with less as often as the executor asks for that."""
    while True:
        try:
            return executor.forward(TOKEN_IDS[:24])
        except TryAgain:
            continue
