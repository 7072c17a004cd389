"""Experts in slots on a simulated accelerator: the same logits as the CPU's, whatever is copied, cancelled or fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import TOKENS, Tiny, make_plan

from engine.errors import Cancelled
from engine.executors.hybrid import expert_slots, slot_uploads, streaming
from engine.executors.hybrid.executor import TorchExecutor
from engine.executors.hybrid.expert_slots import HybridExperts
from engine.executors.hybrid.streaming import Staging
from engine.executors.simulated.device import SimDevice
from engine.hardware.simulated import simulated
from engine.models.spec import MoeSpec
from engine.placement.plan import PlanBytes
from engine.progress import ignore_progress

MakeTiny = Callable[[str, str], Tiny]
Run = Callable[..., Any]
PROMPT = 24
TOKEN_IDS = np.asarray(TOKENS, dtype=np.int64)

pytestmark = pytest.mark.usefixtures("data_folder")


def hybrid(run: Run, model: Tiny, *, slots: int = 12, device: str = "sim", **changes: Any) -> tuple[Any, HybridExperts]:
    executor = run(model, mode="hybrid", device=device, hot_slots=slots, **changes)
    assert isinstance(executor, TorchExecutor)
    experts = executor._experts
    assert isinstance(experts, HybridExperts)
    return executor, experts


def answer(executor: Any) -> np.ndarray:
    """Logits of a prompt and of tokens one by one."""
    rows = [executor.forward(TOKEN_IDS[:PROMPT], "all")]
    rows += [executor.forward(TOKEN_IDS[i : i + 1]) for i in range(PROMPT, len(TOKEN_IDS))]
    return np.concatenate(rows)


def expect_close(got: np.ndarray, expected: np.ndarray, tolerance: float = 1e-4) -> None:
    assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max()


def forward_for_ever(executor: Any) -> None:
    while True:
        executor.truncate(0)
        executor.forward(TOKEN_IDS[:PROMPT])


def stream_always(experts: HybridExperts) -> None:
    experts.speeds.cpu = dict.fromkeys(range(1, 12), 1.0)
    experts.speeds.add_cpu = lambda tokens, seconds: None  # type: ignore[method-assign]


# Shared expert, biases and a limit, an input weighed before the experts, norms of its own.
@pytest.mark.parametrize("family", ["qwen3_moe", "qwen2_moe", "gpt_oss", "llama4", "gemma4", "mixtral"])
@pytest.mark.parametrize("streamed", [False, True], ids=["prompt on the CPU", "prompt streamed"])
def test_logits_are_those_of_the_cpu(
    tiny: MakeTiny, run: Run, family: str, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny(family, "safetensors")
    expected = answer(run(model, dense_dtype="float32"))
    monkeypatch.setattr(expert_slots, "RING_SHARE", 4)
    every = sum(layer.ffn.experts for layer in model.spec.layers if isinstance(layer.ffn, MoeSpec))
    executor, experts = hybrid(run, model, slots=2 * every // 3)
    assert experts._stream is not None
    if streamed:
        stream_always(experts)
    expect_close(answer(executor), expected)
    status = executor.status()
    assert status.hits > 0
    assert status.misses > 0
    assert status.prefill == ("streamed" if streamed else "cpu")
    assert not status.notes


@pytest.mark.parametrize("form", ["gguf-Q4_0", "gguf-Q8_0", "mxfp4"])
def test_stored_codes_are_computed_as_they_are(tiny: MakeTiny, run: Run, form: str) -> None:
    model = tiny("gpt_oss" if form == "mxfp4" else "qwen3_moe", form)
    expected = answer(run(model, dense_dtype="float32"))
    executor, experts = hybrid(run, model, slots=16, dense_dtype="float32")
    stream_always(experts)
    expect_close(answer(executor), expected)


def test_large_experts_are_unpacked_piece_by_piece(tiny: MakeTiny, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("gpt_oss", "safetensors")
    expected = answer(run(model, dense_dtype="float32"))
    executor, experts = hybrid(run, model, slots=16)
    stream_always(experts)
    monkeypatch.setattr("engine.executors.hybrid.packed_layer.DEQUANTISED_AT_ONCE", 16 * 64)
    expect_close(answer(executor), expected)


def test_a_slot_for_every_expert_leaves_nothing_to_the_cpu(tiny: MakeTiny, run: Run) -> None:
    model = tiny("qwen3_moe", "safetensors")
    expected = answer(run(model, dense_dtype="float32"))
    every = sum(layer.ffn.experts for layer in model.spec.layers)
    executor, _ = hybrid(run, model, slots=every)
    expect_close(answer(executor), expected)
    assert executor.status().cache_slots == every
    assert executor.status().misses == 0
    assert executor.status().prefill == "streamed"
    assert executor.usage().in_vram.all()
    # Every choice is counted once, wherever it was computed.
    top_k = model.spec.layers[0].ffn.top_k
    assert (executor.usage().counts.sum(1) == len(TOKEN_IDS) * top_k).all()


def test_a_frozen_cache_gives_the_same_bits_each_time(tiny: MakeTiny, run: Run) -> None:
    model = tiny("qwen3_moe", "safetensors")
    answers = []
    for device in ("sim", "sim:seed=5,latency=1e-3"):
        executor, experts = hybrid(run, model, device=device)
        experts.cache.frozen = True
        answers.append(answer(executor))
    np.testing.assert_array_equal(*answers)


def test_experts_move_in_while_an_answer_is_written(tiny: MakeTiny, run: Run) -> None:
    executor, experts = hybrid(run, tiny("qwen3_moe", "safetensors"), slots=4)
    before = executor.usage().in_vram
    uploaded = executor.status().bytes_uploaded
    answer(executor)
    experts.uploads.settle()
    assert executor.status().bytes_uploaded > uploaded
    assert (executor.usage().in_vram != before).any()
    assert experts.cache.resident().sum() == 4


def test_no_more_copies_than_the_cap_are_under_way(tiny: MakeTiny, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_uploads, "MOST_UPLOADS", 2)
    executor, experts = hybrid(run, tiny("qwen3_moe", "safetensors"), slots=4, device="sim:latency=5e-3")
    experts._step_seconds = 1e9
    executor.forward(TOKEN_IDS[:PROMPT])
    for i in range(PROMPT, len(TOKEN_IDS)):
        executor.forward(TOKEN_IDS[i : i + 1])
        assert experts.uploads.under_way <= 2


def test_failed_copies_spoil_nothing_and_end_after_a_few(
    tiny: MakeTiny, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("qwen3_moe", "safetensors")
    expected = answer(run(model, dense_dtype="float32"))
    executor, experts = hybrid(run, model, slots=4)

    def fail(*_: Any) -> Any:
        raise RuntimeError("the link is down")

    monkeypatch.setattr(Staging, "send", fail)
    rows = []
    for _ in range(3):
        executor.truncate(0)
        rows.append(answer(executor))
        experts.uploads.settle()
    for row in rows:
        expect_close(row, expected)
    assert experts.uploads.failures >= slot_uploads.MOST_FAILURES
    (note,) = executor.status().notes
    assert "the link is down" in note
    # Slots whose copies failed are empty.
    assert experts.cache.resident().sum() < 4


def test_a_stream_that_fails_ends_the_answer_and_the_next_one_works(
    tiny: MakeTiny, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("qwen3_moe", "safetensors")
    expected = answer(run(model, dense_dtype="float32"))
    executor, experts = hybrid(run, model, slots=16)
    stream_always(experts)
    send, calls = Staging.send, []

    def fail_late(self: Staging, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise RuntimeError("the link is down")
        return send(self, *args)

    monkeypatch.setattr(Staging, "send", fail_late)
    with pytest.raises(RuntimeError, match="link is down"):
        executor.forward(TOKEN_IDS[:PROMPT])
    executor.truncate(0)
    expect_close(answer(executor), expected)


@pytest.mark.parametrize("after", [1, 3, 6, 10])
def test_a_streamed_prompt_can_be_cancelled_at_any_expert(
    tiny: MakeTiny, run: Run, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("qwen3_moe", "safetensors")
    expected = answer(run(model, dense_dtype="float32"))
    executor, experts = hybrid(run, model, slots=16)
    stream_always(experts)
    send, calls = Staging.send, []

    def cancel_late(self: Staging, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == after:
            executor.cancel()
        return send(self, *args)

    monkeypatch.setattr(Staging, "send", cancel_late)
    with pytest.raises(Cancelled):
        executor.forward(TOKEN_IDS[:PROMPT])
    assert not experts._stream._running
    assert len(experts._stream._free) == len(experts._stream._buffers)
    expect_close(answer(executor), expected)


def test_a_cancelled_prompt_does_not_wait_for_a_slow_link(tiny: MakeTiny, run: Run) -> None:
    executor, experts = hybrid(run, tiny("qwen3_moe", "safetensors"), slots=16, device="sim:latency=0.02")
    stream_always(experts)
    ended = threading.Event()

    def cancel() -> None:
        # A call that has not begun yet does not hear it.
        while not ended.wait(0.05):
            executor.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(Cancelled):
        forward_for_ever(executor)
    ended.set()
    canceller.join()


# Also where all slots together would make less than a block.
@pytest.mark.parametrize("per_block", [1, 5, 100])
def test_too_little_vram_means_fewer_slots_and_a_note(tiny: MakeTiny, run: Run, per_block: int) -> None:
    model = tiny("qwen3_moe", "safetensors")
    expected = answer(run(model, dense_dtype="float32"))
    needed, _ = hybrid(run, model, slots=0)
    dense = needed.status().vram_bytes
    slot = model.spec.hidden * 32 * 3 * 4
    monkey = pytest.MonkeyPatch()
    monkey.setattr(expert_slots, "BLOCK_BYTES", per_block * slot)
    try:
        executor, experts = hybrid(
            run,
            model,
            slots=24,
            device=f"sim:vram={dense + 20 * slot}",
            bytes=PlanBytes({}, {"buffers": 8 * slot}, 0, 0),
        )
    finally:
        monkey.undo()
    assert 0 < experts.cache.slots < 24
    assert "VRAM had room for fewer experts than planned" in executor.status().notes[0]
    expect_close(answer(executor), expected, 1e-4)


def test_slots_can_be_given_back_between_tokens(tiny: MakeTiny, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("qwen3_moe", "safetensors")
    monkeypatch.setattr(expert_slots, "BLOCK_BYTES", 1)
    expected = answer(run(model, dense_dtype="float32"))
    executor, experts = hybrid(run, model, slots=16)
    held = executor.status().vram_bytes
    rows = [executor.forward(TOKEN_IDS[:PROMPT], "all")]
    for i in range(PROMPT, len(TOKEN_IDS)):
        if i in (PROMPT + 4, PROMPT + 8):
            assert experts.shrink(experts.cache.slots // 2) == experts.cache.slots
        rows.append(executor.forward(TOKEN_IDS[i : i + 1]))
    expect_close(np.concatenate(rows), expected)
    assert executor.status().vram_bytes < held
    assert experts.shrink(0) == 0
    executor.truncate(0)
    expect_close(answer(executor), expected)


def test_without_page_locked_memory_it_is_slower_and_says_so(tiny: MakeTiny, run: Run) -> None:
    model = tiny("qwen3_moe", "safetensors")
    expected = answer(run(model, dense_dtype="float32"))
    executor, experts = hybrid(run, model, slots=16, device="sim:fail=pin")
    stream_always(experts)
    expect_close(answer(executor), expected)
    assert not executor.status().pinned
    assert any("page-lock" in note for note in executor.status().notes)


def test_the_ring_is_as_long_as_the_system_lets_it_be(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimDevice(simulated("sim"))
    made, lock = [], device.host_buffer

    def lock_three(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        made.append(shape)
        device.pinned = len(made) <= 3
        return lock(*shape, dtype=dtype)

    try:
        assert len(Staging(device, 1000)._buffers) == 8
        monkeypatch.setattr(device, "host_buffer", lock_three)
        ring = Staging(device, 1000)
        assert (len(ring._buffers), ring.pinned) == (3, True)
        # Now nothing more can be locked: one buffer, and copies that hold the sender up.
        ring = Staging(device, 1000)
        assert (len(ring._buffers), ring.pinned) == (1, False)
    finally:
        device.close()


def test_the_next_load_begins_with_the_experts_called_most(
    tiny: MakeTiny, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("qwen3_moe", "safetensors")
    monkeypatch.setattr("engine.executors.hybrid.executor.WORTH_KEEPING", 8)
    executor, experts = hybrid(run, model, slots=4)
    for _ in range(3):
        executor.truncate(0)
        answer(executor)
    kept = experts.cache.statistics()
    executor.remembers = True
    executor.close()
    _, again = hybrid(run, model, slots=4)
    inside = again.cache.resident()
    assert inside.sum() == 4
    # None of those outside was called more often than one inside, half precision aside.
    assert kept[~inside].max() <= kept[inside].min() * 1.001


def test_a_device_too_slow_for_single_tokens_leaves_them_to_the_cpu(tiny: MakeTiny, run: Run) -> None:
    model = tiny("qwen3_moe", "safetensors")
    expected = answer(run(model, dense_dtype="float32"))
    executor, experts = hybrid(run, model, slots=0)
    # Small experts, and a device whose operations take as long as simulating them does.
    with torch.inference_mode(), executor._device.device.working():
        experts.open_slots(16, measured=True)
    expect_close(answer(executor), expected)
    (note,) = executor.status().notes
    assert "serve prompts only" in note
    assert executor.status().hits == executor.status().misses == 0
    stream_always(experts)
    executor.truncate(0)
    expect_close(answer(executor), expected)
    assert executor.status().prefill == "streamed"


def test_reordered_experts_stay_on_the_cpu(tiny: MakeTiny, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("qwen3_moe", "safetensors")
    expected = answer(run(model, dense_dtype="float32"))
    monkeypatch.setattr(HybridExperts, "cacheable", property(lambda self: (1,)))
    executor, experts = hybrid(run, model, slots=8)
    stream_always(experts)
    expect_close(answer(executor), expected)
    assert experts.cache.layers == (1,)
    assert "stored in an order" in executor.status().notes[0]


def test_ten_loads_leave_nothing_behind(tiny: MakeTiny, run: Run) -> None:
    model = tiny("qwen3_moe", "safetensors")
    for _ in range(10):
        executor, experts = hybrid(run, model, slots=16, device="sim:vram=4e6")
        stream_always(experts)
        executor.forward(TOKEN_IDS[:PROMPT])
        executor.forward(TOKEN_IDS[:1])
        memory = executor._device.device.memory_in_use
        executor.close()
        del executor, experts
        assert memory.held == 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("experts", "sim-"))]


def deferred_reference(model: Tiny, count: int) -> np.ndarray:
    """Logits where each token's weakest experts of a layer are added with the next layer's, in plain torch."""
    executor: Any = TorchExecutor(model.checkpoint, model.spec, make_plan(dense_dtype="float32"), ignore_progress)
    left: dict[str, torch.Tensor] = {}
    moes = [layer.ffn for layer in executor._layers if hasattr(layer.ffn, "router")]

    def adding(moe: Any, last: bool) -> Callable[..., None]:
        def add(x: torch.Tensor, out: torch.Tensor, residual: torch.Tensor | None = None) -> None:
            weights, ids, factors = moe.router(x, x)
            weak = weights.argsort(-1)[:, :count]
            kept = weights.clone() if last else weights.scatter(1, weak, 0.0)
            moe.experts.forward(moe.layer, x, ids, kept, out)
            if moe.shared is not None:
                moe.shared.add(x, out, factors)
            if "sum" in left:
                out += left.pop("sum")
            if not last:
                left["sum"] = torch.zeros_like(out)
                moe.experts.forward(moe.layer, x, ids, weights - kept, left["sum"])

        return add

    # A prompt is not touched by it.
    rows = [executor.forward(TOKEN_IDS[:PROMPT], "all")]
    for moe in moes:
        moe.add = adding(moe, moe is moes[-1])
    rows += [executor.forward(TOKEN_IDS[i : i + 1]) for i in range(PROMPT, len(TOKEN_IDS))]
    executor.close()
    return np.concatenate(rows)


@pytest.mark.parametrize("slots", [0, 64])
def test_deferred_experts_take_effect_one_layer_later(tiny: MakeTiny, run: Run, slots: int) -> None:
    model = tiny("qwen2_moe", "gguf-F32")
    plain = answer(run(model, dense_dtype="float32"))
    late = deferred_reference(model, 1)
    assert np.abs(late - plain).max() > 1e-3 * np.abs(plain).max()
    executor, _ = hybrid(run, model, slots=slots, defer_experts=1)
    # What is in VRAM is there in time.
    expect_close(answer(executor), plain if slots else late)


def test_a_deferred_expert_that_fails_ends_the_answer_and_the_next_one_works(
    tiny: MakeTiny, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("qwen2_moe", "gguf-F32")
    executor, experts = hybrid(run, model, slots=0, defer_experts=1)
    expected = answer(executor)
    later, calls = experts.store.later, []

    def fail_once(layer: int, *arrays: Any) -> Any:
        calls.append(layer)
        return later(layer + (99 if len(calls) == 5 else 0), *arrays)

    monkeypatch.setattr(experts.store, "later", fail_once)
    executor.truncate(0)
    with pytest.raises(KeyError):
        answer(executor)
    executor.truncate(0)
    expect_close(answer(executor), expected, 1e-6)


def test_the_faster_way_is_taken_for_a_prompt() -> None:
    speeds = streaming.PrefillSpeeds()
    assert speeds.stream(512, 1000) is None
    speeds.link = 1e9
    speeds.add_cpu(512, 0.512)
    assert speeds.stream(512, 500_000_000) is True
    assert speeds.stream(512, 520_000_000) is False
    # Fewer tokens than were timed take the CPU less.
    assert speeds.stream(64, 500_000_000) is False
    speeds.add_cpu(64, 0.64)
    assert speeds.stream(64, 500_000_000) is True
    speeds.add_stream(1000, 1.0)
    assert speeds.link == pytest.approx(1e9 / 2, rel=1e-3)


def test_a_stream_needs_two_buffers() -> None:
    with pytest.raises(ValueError, match="two buffers"):
        streaming.ExpertStream(None, None, [torch.empty(1)], lambda: False)  # type: ignore[arg-type]
