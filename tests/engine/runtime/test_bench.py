from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.checkpoints.checkpoint import TensorInfo
from engine.errors import GreenroomError
from engine.models.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, MoeSpec, RopeSpec, TensorRef
from engine.runtime import bench as bench_module
from engine.runtime.bench import active, bench

HIDDEN, VOCAB, EXPERTS, TOP_K, INTER = 64, 258, 4, 2, 32
ATTENTION = AttentionSpec(heads=2, kv_heads=2, head_dim=32, rope=RopeSpec(1e4, 32))


@dataclass
class Plan:
    threads: int = 1
    context: int = 64


def tiny_model(tied: bool) -> tuple[SimpleNamespace, ModelSpec]:
    """One MoE layer with stacked Q4_0 experts, everything else F32."""
    tensors: dict[str, TensorInfo] = {}
    weights: dict[str, TensorRef] = {}

    def add(role: str, *shape: int) -> None:
        count = 1
        for axis in shape:
            count *= axis
        tensors[role] = TensorInfo(role, shape, "F32", Path("m"), 0, 4 * count)
        weights[role] = TensorRef(role)

    add("embed", VOCAB, HIDDEN)
    add("norm", HIDDEN)
    if not tied:
        add("lm_head", VOCAB, HIDDEN)
    for part in "qkvo":
        add(f"layers.0.attention.{part}", HIDDEN, HIDDEN)
    add("layers.0.moe.router", EXPERTS, HIDDEN)
    for part, shape in {"gate": (INTER, HIDDEN), "up": (INTER, HIDDEN), "down": (HIDDEN, INTER)}.items():
        # Q4_0: 18 bytes per 32 values.
        nbytes = EXPERTS * shape[0] * shape[1] // 32 * 18
        tensors[part] = TensorInfo(part, (EXPERTS, *shape), "Q4_0", Path("m"), 0, nbytes)
        for expert in range(EXPERTS):
            weights[f"layers.0.moe.experts.{expert}.{part}"] = TensorRef(part, index=expert)
    layer = LayerSpec(ATTENTION, MoeSpec(EXPERTS, TOP_K, INTER))
    spec = ModelSpec("tiny", HIDDEN, VOCAB, 64, 1e-6, (layer,), weights)
    return SimpleNamespace(tensors=tensors), spec


@pytest.mark.parametrize("tied", [True, False])
def test_active_counts_stored_bytes_of_what_one_token_touches(tied: bool) -> None:
    checkpoint, spec = tiny_model(tied)
    touched = active(checkpoint, spec)
    matrices = 4 * HIDDEN * HIDDEN + EXPERTS * HIDDEN
    experts = TOP_K * 3 * INTER * HIDDEN
    head = VOCAB * HIDDEN
    assert touched.head_weights == head
    assert touched.body_weights == matrices + experts
    assert touched.decode_bytes == 4 * (matrices + head + HIDDEN) + experts // 32 * 18


def test_active_of_a_dense_model_is_the_whole_model_without_the_embedding() -> None:
    checkpoint, spec = tiny_model(tied=False)
    weights = {role: ref for role, ref in spec.weights.items() if ".moe." not in role}
    for part in ("gate", "up", "down"):
        weights[f"layers.0.ffn.{part}"] = TensorRef(part, index=0)
    dense = ModelSpec("tiny", HIDDEN, VOCAB, 64, 1e-6, (LayerSpec(ATTENTION, MlpSpec(INTER)),), weights)
    assert active(checkpoint, dense).body_weights == 4 * HIDDEN * HIDDEN + 3 * INTER * HIDDEN


@pytest.fixture
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_module, "_BUFFER_BYTES", 1 << 20)
    monkeypatch.setattr(bench_module, "_SMALLEST_BUFFER_BYTES", 1 << 16)


@pytest.mark.usefixtures("small_buffers")
def test_every_combination_is_run_and_each_thread_count_loads_once(make_engine: Callable) -> None:
    checkpoint, spec = tiny_model(tied=True)
    loaded, executors = [], []

    def load(_: object, plan: Plan, __: object) -> object:
        loaded.append(plan.threads)
        engine, executor = make_engine(lambda tokens: 0, context=64)
        engine.spec = spec
        executors.append(executor)
        return engine

    results = bench(checkpoint, Plan(), [5, 9], [2, 6], [1, 2], repeats=2, load=load)
    assert loaded == [1, 2]
    assert [(r.threads, r.n_prompt, r.n_gen) for r in results] == [
        (t, p, n) for t in (1, 2) for p in (5, 9) for n in (2, 6)
    ]
    assert all(executor.closed for executor in executors)
    # One warm-up of at most four new tokens, then the repeats, each a prompt and its tokens one by one.
    assert executors[0].forwarded[:8] == [5, 1, 1, 5, 1, 1, 5, 1]
    touched = active(checkpoint, spec)
    for r in results:
        assert r.prefill_tps_range[0] <= r.prefill_tps <= r.prefill_tps_range[1]
        assert r.decode_tps_range[0] <= r.decode_tps <= r.decode_tps_range[1]
        assert r.decode_gbs == pytest.approx(touched.decode_bytes * r.decode_tps / 1e9)
        assert r.bandwidth_share == pytest.approx(r.decode_gbs / r.read_bandwidth_gbs)
        operations = 2 * (touched.body_weights * r.n_prompt + touched.head_weights)
        assert r.prefill_gops == pytest.approx(operations * r.prefill_tps / r.n_prompt / 1e9)


def test_without_room_for_a_buffer_there_is_no_bandwidth_and_no_share(
    make_engine: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_module, "_SMALLEST_BUFFER_BYTES", 1 << 60)
    checkpoint, spec = tiny_model(tied=True)
    engine, _ = make_engine(lambda tokens: 0, context=64)
    engine.spec = spec
    (result,) = bench(checkpoint, Plan(), [4], [2], [1], repeats=1, load=lambda *_: engine)
    assert result.read_bandwidth_gbs is None
    assert result.bandwidth_share is None


@pytest.mark.parametrize(
    ("prompts", "gens", "threads", "repeats", "complaint"),
    [
        ([60], [5], [1], 1, "65 tokens together and the context holds 64"),
        ([0], [5], [1], 1, "below 1"),
        ([5], [5], [0], 1, "below 1"),
        ([5], [5], [1], 0, "below 1"),
    ],
)
def test_what_cannot_be_run_is_refused_before_loading(
    prompts: list[int], gens: list[int], threads: list[int], repeats: int, complaint: str
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("loaded")

    with pytest.raises(GreenroomError, match=complaint):
        bench(tiny_model(True)[0], Plan(), prompts, gens, threads, repeats, load=load)
