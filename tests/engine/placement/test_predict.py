"""Speeds from bytes, against hand-made sums."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.placement.machines import Bandwidth
from engine.placement.predict import predict
from engine.placement.profiles import GREENROOM
from engine.placement.token_time import CACHED_COST, achieved_share
from engine.placement.work import Hits, Speeds, Work, expected_hits

GB = 10**9

#: Qwen3-30B-A3B at 4.5 bits on a CPU, by hand: 1.02 GB of experts, 0.7 GB of the rest, 3.1 G weights.
QWEN3 = Work(
    layers=48,
    cpu_expert_bytes=1_020_000_000,
    cpu_dense_bytes=700_000_000,
    gpu_bytes=0,
    context=4096,
    kv_bytes=1_600_000_000,
    kv_on_gpu=False,
    attention_ops=48 * 4 * 32 * 128,
    cpu_values=3_100_000_000,
    gpu_values=0,
    gpu_experts=0,
    code="int4",
    tier="avx512vnni",
    threads=8,
    cpu_between=3_000_000,
    cpu_experts=48 * 8,
    all_expert_bytes=16 * GB,
    active_share=8 / 128,
)
DDR5 = Speeds(Bandwidth(50, 60, 65, "measured"), 1008, 165)


def layer_seconds(threads: int) -> float:
    """Threads wait for each other in each of four regions, and the rows of 8 experts are not on their way."""
    return GREENROOM.cpu_layer_s + 4 * threads * GREENROOM.region_s + 8 * GREENROOM.expert_s


def test_decode_by_hand() -> None:
    prediction = predict(QWEN3, DDR5)
    share = achieved_share(GREENROOM, 1.72 * GB / 48)
    weights = 1.72 / (60 * share) + 48 * layer_seconds(8)
    # 8 cores could take 144 GB/s of keys and values, the RAM gives 70 % of 60. A short conversation fills 512 of 4096
    # tokens.
    assert prediction.decode_tps.likely == pytest.approx(1 / (weights + 1.6 / 8 / (60 * GREENROOM.share_small)))
    assert prediction.full_context_tps == pytest.approx(1 / (weights + 1.6 / (60 * GREENROOM.share_small)))


def test_few_cores_are_slow_over_a_long_conversation() -> None:
    one = predict(replace(QWEN3, threads=1, context=512), DDR5)
    share = achieved_share(GREENROOM, 1.72 * GB / 48)
    seconds = 1.72 / (60 * share) + 48 * layer_seconds(1) + 1.6 / GREENROOM.kv_core_gbs["avx512"]
    assert one.decode_tps.likely == pytest.approx(1 / seconds)
    assert one.full_context_tps == one.decode_tps.likely
    assert one.bottleneck == "limited by attention over the conversation, 512 tokens of it"


@pytest.mark.parametrize(
    ("tier", "attention"),
    [
        ("portable", "portable"),
        ("none", "portable"),
        ("avx2", "avx2"),
        ("avxvnni", "avx2"),
        ("avx512vnni", "avx512"),
        ("avx512bf16", "avx512"),
        ("amx", "avx512"),
    ],
)
def test_attention_has_fewer_tiers(tier: str, attention: str) -> None:
    work = replace(QWEN3, tier=tier, threads=1, context=512)
    assert work.attention_tier == attention
    seconds = 1 / predict(work, DDR5).decode_tps.likely - 1 / predict(replace(work, kv_bytes=0), DDR5).decode_tps.likely
    assert seconds == pytest.approx(1.6 / GREENROOM.kv_core_gbs[attention])


def test_attention_over_pairs_of_bf16_is_faster() -> None:
    pairs = replace(QWEN3, kv_pairs=True)
    assert pairs.attention_tier == "avx512bf16"
    assert pairs.between_tier == QWEN3.between_tier == "avx512"
    saved = 1 / predict(QWEN3, DDR5).prefill_tps.likely - 1 / predict(pairs, DDR5).prefill_tps.likely
    gops = GREENROOM.attention_gops
    operations = 256 * 2 * (2 * 48 * 32 * 128)
    assert saved == pytest.approx(operations / 8e9 * (1 / gops["avx512"] - 1 / gops["avx512bf16"]))


def test_prefill_by_hand() -> None:
    # Two operations per weight on 8 cores; each layer's fixed cost is shared by 512 tokens. On average a token looks
    # back at 256 others, with a product for the score and one for the sum.
    between = QWEN3.cpu_between * GREENROOM.between_s["avx512"] / 8
    computed = 2 * 3.1 / (8 * GREENROOM.gops_per_core["int4", "avx512vnni"]) + between
    # All experts are chosen by some token: 16 GB in 48 layers, once per chunk beside the 0.7 GB of the rest.
    read = 16.7 / (60 * GREENROOM.share_large) / 512
    seconds = (computed**2 + read**2) ** 0.5 + 48 * GREENROOM.cpu_layer_s / 512
    seconds += 256 * 2 * (2 * 48 * 32 * 128) / (8e9 * GREENROOM.attention_gops["avx512"])
    assert predict(QWEN3, DDR5).prefill_tps.likely == pytest.approx(1 / seconds)


def test_weights_that_the_cache_kept_cost_less() -> None:
    kept = replace(QWEN3, kv_bytes=0, cached_bytes=500_000_000)
    saved = (
        1 / predict(replace(kept, cached_bytes=0), DDR5).decode_tps.likely - 1 / predict(kept, DDR5).decode_tps.likely
    )
    share = achieved_share(GREENROOM, 1.72 * GB / 48)
    assert saved == pytest.approx((1 - CACHED_COST) * 0.5 / (60 * share))
    assert predict(replace(kept, cached_bytes=10**12), DDR5).decode_tps.likely < 1 / (48 * layer_seconds(8))


def test_a_short_prompt_is_limited_by_reading() -> None:
    tiny, short, long = (predict(QWEN3, DDR5, prompt=tokens).prefill_tps.likely for tokens in (1, 16, 512))
    assert tiny < short < long / 3
    # One token reads what decode reads.
    assert tiny == pytest.approx(predict(replace(QWEN3, kv_bytes=0), DDR5).decode_tps.likely, rel=0.25)


def test_narrow_models_lose_more_between_their_matrices() -> None:
    wide = predict(replace(QWEN3, cpu_between=0), DDR5).prefill_tps.likely
    narrow = predict(replace(QWEN3, cpu_between=30_000_000), DDR5).prefill_tps.likely
    assert 1 / narrow - 1 / wide == pytest.approx(30e6 * GREENROOM.between_s["avx512"] / 8, rel=0.1)


def test_experts_one_by_one_slow_the_gpu_down() -> None:
    gpu = replace(QWEN3, cpu_expert_bytes=0, cpu_dense_bytes=0, gpu_bytes=GB, cpu_values=0, gpu_values=3_100_000_000)
    gpu = replace(gpu, kv_on_gpu=True)
    looped = replace(gpu, gpu_experts=48 * 128)
    seconds = 1 / predict(looped, DDR5).prefill_tps.likely - 1 / predict(gpu, DDR5).prefill_tps.likely
    assert seconds == pytest.approx(48 * 128 * GREENROOM.gpu_expert_s / 512)


def test_cached_experts_are_computed_beside_the_cpu() -> None:
    hybrid = replace(QWEN3, cpu_dense_bytes=0, gpu_bytes=700_000_000, gpu_beside_bytes=100_000_000, kv_on_gpu=True)
    cached = replace(hybrid, hits=Hits(0.2, 0.5, 0.8))
    plain, better = predict(hybrid, DDR5), predict(cached, DDR5)
    share = [achieved_share(GREENROOM, missed * GB / 48) for missed in (1.02, 0.51)]
    saved = 1.02 / (60 * share[0]) - 0.51 / (60 * share[1]) + 48 * 4 * GREENROOM.expert_s
    assert 1 / plain.decode_tps.likely - 1 / better.decode_tps.likely == pytest.approx(saved)
    # A wider range, because nobody knows the conversation.
    assert better.decode_tps.low / better.decode_tps.likely < plain.decode_tps.low / plain.decode_tps.likely
    slow = replace(DDR5, ram=Bandwidth(10, 12, 13, "measured"))
    assert "0.51 GB of experts per token" in predict(cached, slow).bottleneck


@pytest.mark.parametrize(
    ("share", "active", "likely"),
    [(0, 0.06, 0), (1, 0.06, 1), (0.25, 0.06, 0.5), (0.01, 0.1, 0.01), (0.05, 0.1, 0.112)],
)
def test_hits_by_slots(share: float, active: float, likely: float) -> None:
    hits = expected_hits(share, active)
    assert hits.likely == pytest.approx(likely, abs=0.001)
    assert hits.even == share <= hits.likely <= hits.steady <= 1


def test_long_prompts_are_read_on_the_gpu_once_sending_pays() -> None:
    hybrid = replace(QWEN3, cpu_dense_bytes=0, gpu_bytes=700_000_000, kv_on_gpu=True, context=8192)
    sent = replace(hybrid, streamed_bytes=17 * GB)
    speeds = replace(DDR5, link_gbs=24.0)
    # Few tokens: sending all experts for them takes longer than computing here.
    assert predict(sent, speeds, chunk=64).prefill_tps == predict(hybrid, speeds, chunk=64).prefill_tps
    long = predict(sent, speeds, prompt=4096, chunk=4096).prefill_tps.likely
    assert long > predict(hybrid, speeds, prompt=4096, chunk=4096).prefill_tps.likely


def test_a_hit_costs_traffic_in_vram() -> None:
    hybrid = replace(QWEN3, cpu_dense_bytes=0, gpu_bytes=700_000_000, kv_on_gpu=True, hits=Hits(1, 1, 1))
    for traffic in (0, 10 * GB, 30 * GB):
        seconds = 0.7 / (1008 * GREENROOM.gpu_share) + 48 * (
            GREENROOM.gpu_layer_s + GREENROOM.handoff_s + 8 * GREENROOM.region_s
        )
        seconds += (0.2 + traffic / GB) / (1008 * GREENROOM.gpu_share)
        said = predict(replace(hybrid, hit_bytes=traffic), DDR5).decode_tps.likely
        assert said == pytest.approx(1 / seconds)


def test_share_between_small_and_large_experts() -> None:
    shares = [achieved_share(GREENROOM, size * 1e6) for size in (0, 1, 25, 50, 100, 1000)]
    assert shares[:3] == [GREENROOM.share_small] * 3
    assert shares[3] == pytest.approx((GREENROOM.share_small + GREENROOM.share_large) / 2)
    assert shares[4:] == [GREENROOM.share_large] * 2


def test_the_bottleneck_says_its_arithmetic() -> None:
    assert predict(QWEN3, DDR5).bottleneck == "limited by RAM bandwidth: 1.72 GB of weights per token at 60 GB/s"
    hybrid = replace(QWEN3, cpu_dense_bytes=0, gpu_bytes=700_000_000, kv_on_gpu=True)
    assert predict(hybrid, DDR5).bottleneck == "limited by RAM bandwidth: 1.02 GB of experts per token at 60 GB/s"
    assumed = replace(DDR5, ram=Bandwidth(30, 71, 85, "DDR5-5200 in 2 channels"))
    assert "at 71 GB/s (not measured: assumed from DDR5-5200 in 2 channels)" in predict(QWEN3, assumed).bottleneck
    guessed = replace(DDR5, ram=Bandwidth(16, 40, 100, ""))
    assert "a guess for an unknown CPU" in predict(QWEN3, guessed).bottleneck
    gpu = replace(QWEN3, cpu_expert_bytes=0, cpu_dense_bytes=0, gpu_bytes=60 * GB, kv_on_gpu=True)
    assert predict(gpu, DDR5).bottleneck == "limited by VRAM bandwidth: 60.00 GB of weights per token at 1008 GB/s"
    tiny = replace(QWEN3, cpu_expert_bytes=5_000_000, cpu_dense_bytes=20_000_000, kv_bytes=0)
    assert predict(tiny, DDR5).bottleneck.startswith("limited by the fixed cost of each layer: 48 layers")


def test_portable_kernels_are_limited_by_arithmetic() -> None:
    prediction = predict(replace(QWEN3, tier="portable", kv_bytes=0), DDR5)
    seconds = 1.72 / (8 * GREENROOM.core_gbs["int4", "portable"]) + 48 * layer_seconds(8)
    assert prediction.decode_tps.likely == pytest.approx(1 / seconds)
    expected = "limited by arithmetic: 1.72 GB of weights per token on the slow portable kernels"
    assert prediction.bottleneck == expected


def test_an_unknown_tier_is_slow_not_wrong() -> None:
    assert predict(replace(QWEN3, tier="none"), DDR5).prefill_tps.likely < 10


WORKS = st.builds(
    Work,
    layers=st.integers(1, 100),
    cpu_expert_bytes=st.integers(0, 10**11),
    cpu_dense_bytes=st.integers(0, 10**10),
    gpu_bytes=st.integers(0, 10**10),
    context=st.integers(1, 10**6),
    kv_bytes=st.integers(0, 10**11),
    kv_on_gpu=st.booleans(),
    attention_ops=st.integers(1, 10**9),
    cpu_values=st.integers(0, 10**11),
    gpu_values=st.integers(0, 10**11),
    gpu_experts=st.integers(0, 10**5),
    code=st.sampled_from(["int4", "int8", "bf16", "f16", "f32"]),
    tier=st.sampled_from(["portable", "avx2", "avx512vnni", "avx512bf16", "none"]),
    threads=st.integers(1, 256),
)


@given(WORKS, st.floats(1, 1000))
def test_ranges_are_ordered_and_finite(work: Work, gbs: float) -> None:
    prediction = predict(work, replace(DDR5, ram=Bandwidth(0.5 * gbs, gbs, 1.2 * gbs, "")))
    for figures in (prediction.decode_tps, prediction.prefill_tps):
        assert 0 < figures.low <= figures.likely <= figures.high < float("inf")
    assert prediction.full_context_tps is not None
    assert 0 < prediction.full_context_tps <= prediction.decode_tps.likely


@given(WORKS, st.floats(1, 500), st.floats(1, 2))
def test_faster_memory_is_never_slower(work: Work, gbs: float, factor: float) -> None:
    slow, fast = (
        predict(work, replace(DDR5, ram=Bandwidth(speed, speed, speed, ""))).decode_tps for speed in (gbs, gbs * factor)
    )
    assert fast.likely >= slow.likely
    assert fast.high >= slow.high
