"""Which plan a model gets on which machine, and what the user reads about it."""

from __future__ import annotations

import gc
import json
import re
import weakref
from dataclasses import fields, replace

import pytest
from fake_machines import MakeReport, make_report
from fake_models import HeaderOnly, dense_model, moe_model
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import _native
from engine.errors import GreenroomError
from engine.hardware.report import Calibration, DeviceSpeed, GpuReport, HardwareReport, Isa, Kernels
from engine.placement import sizes
from engine.placement.estimate import TIERS, kernel_tier
from engine.placement.plan import LABELS, OffloadPlan, Wishes
from engine.placement.planner import plan
from engine.placement.predict import SLOWEST_GOPS
from engine.units import size_up

GB = 1_000_000_000
#: Best first: a plan must never get worse with more memory.
ORDER = list(LABELS)

QWEN3 = moe_model("Q4_0")
SMALL = moe_model("BF16", layers=2, hidden=256, intermediate=256, experts=8, top_k=2, heads=2, kv_heads=1, vocab=1000)
#: Few layers with few, wide experts: as large as a real model, and quick to plan.
WIDE = moe_model("Q6_K", layers=6, hidden=4096, intermediate=14336, experts=8, top_k=2)
MODELS = [WIDE, SMALL, dense_model(layers=4)]


def numbers(text: str) -> list[int]:
    """Amounts in a sentence, in tenths of a GB."""
    return [round(float(number) * 10) for number in re.findall(r"([\d.]+) GB", text)]


def test_no_gpu_means_cpu(machine: MakeReport) -> None:
    made = plan(QWEN3, machine(ram=64 * GB))
    assert (made.mode, made.label, made.device) == ("cpu", "On the CPU", "cpu")
    assert (made.dense_dtype, made.kv_type, made.experts) == ("quantised", "bf16", "stored")
    assert (made.context, made.threads) == (8192, 8)
    assert made.bytes.vram == {}
    assert made.bytes.vram_total == 0
    assert made.explanation[0] == "On the CPU: no GPU was found."
    assert made.runnable


def test_cpu_bytes_by_hand(machine: MakeReport) -> None:
    ram = plan(QWEN3, machine(ram=64 * GB), context=4096).bytes.ram
    hidden, vocab = 2048, 151936
    assert ram["experts"] == 48 * 128 * 3 * 768 * hidden * 18 // 32
    assert ram["attention"] == 48 * (2 * 4096 + 2 * 512) * hidden * 18 // 32
    assert ram["embeddings"] == ram["lm_head"] == vocab * hidden * 18 // 32
    assert ram["router_and_norms"] == 4 * (48 * (128 * hidden + 2 * hidden + 2 * 128) + hidden)
    assert ram["kv_cache"] == 48 * 2 * 4 * 128 * 4096 * 2
    assert ram["reserve"] == 64 * GB * 8 // 100
    assert sum(ram.values()) - ram["reserve"] == plan(QWEN3, machine(ram=64 * GB), context=4096).bytes.ram_total


def test_experts_in_ram_when_vram_is_short(machine: MakeReport) -> None:
    made = plan(QWEN3, machine(vram=6 * GB, bandwidth={"8": 30.0}))
    assert (made.mode, made.device) == ("hybrid", "cuda:0")
    assert made.label == "Experts in RAM, the rest on the GPU + 8% of experts cached in VRAM"
    assert (made.dense_dtype, made.kv_type) == ("bfloat16", "bf16")
    assert made.bytes.ram["experts"] == 48 * 128 * 3 * 768 * 2048 * 18 // 32
    assert "experts" not in made.bytes.vram
    assert made.bytes.vram["attention"] == 48 * 2 * (2 * 4096 + 2 * 512) * 2048
    assert made.bytes.vram["lm_head"] == 2 * 151936 * 2048
    assert made.bytes.vram["kv_cache"] == 48 * 2 * 4 * 128 * 8192 * 2
    assert "of experts per token" in made.prediction.bottleneck


def test_vram_that_is_left_holds_copies_of_experts(machine: MakeReport) -> None:
    made = plan(QWEN3, machine(vram=16 * GB))
    each = 3 * 768 * 2048 * 18 // 32
    assert made.bytes.vram["hot_experts"] == made.hot_slots * each
    # One more would not fit.
    left = 16 * GB - made.bytes.vram_total - made.bytes.vram["reserve"]
    assert 0 <= left < each
    assert plan(QWEN3, machine(vram=16 * GB), max_vram=8 * GB).hot_slots < made.hot_slots
    assert plan(QWEN3, machine(vram=80 * GB)).hot_slots == plan(QWEN3, machine()).hot_slots == 0


def test_too_few_slots_for_streamed_prompts_take_no_room_for_them(machine: MakeReport) -> None:
    roomy = plan(QWEN3, machine(vram=6 * GB), dtype="bfloat16")
    bare = roomy.bytes.vram_total - roomy.bytes.vram["hot_experts"]
    limits = range(bare - 100_000_000, bare + 100_000_000, 10_000_000)
    made = [plan(QWEN3, machine(vram=6 * GB), dtype="bfloat16", max_vram=limit) for limit in limits]
    few = [p for p in made if 0 < p.hot_slots < 16]
    many = [p for p in made if p.hot_slots >= 16]
    assert few
    assert many
    assert {p.prefill_chunk for p in few} == {512}
    assert max(p.bytes.vram["buffers"] for p in few) <= min(p.bytes.vram["buffers"] for p in many)
    assert all(p.bytes.vram_total <= limit for p, limit in zip(made, limits, strict=True) if p.hot_slots)


def test_shares_asked_of_all_models_become_numbers_of_each(machine: MakeReport) -> None:
    made = plan(QWEN3, machine(), experts_share=0.7, deferred_share=0.5)
    assert (made.experts_per_token, made.defer_experts) == (6, 3)
    assert "6 experts per token instead of the 8" in made.explain()
    # A number for this model counts before a share for all; one without experts has nothing to leave out.
    assert plan(QWEN3, machine(), experts_share=0.5, experts_per_token=7).experts_per_token == 7
    dense = plan(dense_model(), machine(), experts_share=0.5, deferred_share=0.5)
    assert (dense.experts_per_token, dense.defer_experts) == (None, 0)
    for wrong in ({"experts_share": 0.1}, {"experts_share": True}, {"deferred_share": 0.9}):
        with pytest.raises(GreenroomError, match="share from"):
            plan(QWEN3, machine(), **wrong)


def test_spare_vram_makes_chunks_of_prompts_longer(machine: MakeReport) -> None:
    roomy, tight = plan(QWEN3, machine(vram=16 * GB)), plan(QWEN3, machine(vram=6 * GB))
    assert roomy.prefill_chunk in (1024, 2048, 4096)
    assert roomy.prefill_chunk > tight.prefill_chunk >= 512
    # A chunk longer than the context would never be filled.
    short = plan(QWEN3, machine(vram=16 * GB), context=1500)
    assert short.prefill_chunk == 1024
    assert plan(QWEN3, machine()).prefill_chunk == 512


def test_all_on_the_gpu_when_it_fits(machine: MakeReport) -> None:
    made = plan(QWEN3, machine(vram=24 * GB))
    assert (made.mode, made.label, made.device) == ("all_gpu", "All on the GPU", "cuda:0")
    assert made.dense_dtype == "bfloat16"
    # As the file has them.
    assert made.bytes.vram["experts"] == 48 * 128 * 3 * 768 * 2048 * 18 // 32
    assert "experts" not in made.bytes.ram
    faster = made.prediction.decode_tps.likely
    assert faster > plan(QWEN3, machine(vram=16 * GB)).prediction.decode_tps.likely
    exact = plan(QWEN3, machine(vram=80 * GB), dtype="float32")
    assert exact.bytes.vram["experts"] == made.bytes.vram["experts"]
    floats = plan(moe_model("F16"), machine(vram=80 * GB))
    assert floats.bytes.vram["experts"] == 2 * 48 * 128 * 3 * 768 * 2048


def test_a_gpu_that_only_slows_down_is_left_alone(machine: MakeReport) -> None:
    """Fast RAM beside a card with room for little more than the attention."""
    quick = machine(vram=5 * GB, bandwidth={"8": 250.0})
    made = plan(QWEN3, quick)
    assert made.mode == "cpu"
    assert made.device == "cpu"
    hybrid = plan(QWEN3, quick, device="cuda")
    assert hybrid.mode == "hybrid"
    assert ", as asked for: by prediction about " in hybrid.explanation[0]
    fast, slow = made.prediction.decode_tps.likely, hybrid.prediction.decode_tps.likely
    assert fast > slow
    # Both figures are said.
    assert made.explanation[0].startswith("On the CPU: by prediction faster here, about ")
    assert f"about {fast:.0f} tok/s against {slow:.0f} with the experts in RAM" in made.explanation[0]
    # And what the other would bring, with how to have it.
    other = made.alternatives[0]
    assert other.startswith("Experts in RAM, the rest on the GPU, ")
    assert f"about {slow:.0f} tok/s (" in other
    assert "--prefer-gpu" in other
    preferred = plan(QWEN3, quick, prefer_gpu=True)
    assert (preferred.mode, preferred.bytes) == ("hybrid", hybrid.bytes)
    assert f"about {slow:.0f} tok/s" in preferred.explanation[0]
    assert f"against {fast:.0f} on the CPU alone" in preferred.explanation[0]
    # Slow RAM wants the card.
    assert plan(QWEN3, machine(vram=5 * GB, bandwidth={"8": 20.0})).mode == "hybrid"


def test_what_fits_on_the_card_whole_goes_there_but_is_not_called_fastest_where_it_is_not(machine: MakeReport) -> None:
    made = plan(QWEN3, machine(vram=80 * GB, bandwidth={"8": 250.0}))
    assert made.mode == "all_gpu"
    on_cpu = plan(QWEN3, machine(bandwidth={"8": 250.0})).prediction.decode_tps.likely
    assert on_cpu > made.prediction.decode_tps.likely
    assert "fastest" not in made.explanation[0]
    assert f"against {on_cpu:.0f} on the CPU" in made.explanation[0]
    assert "--keep-gpu" in made.alternatives[0]
    usual = plan(QWEN3, machine(vram=80 * GB))
    assert "where it is fastest" in usual.explanation[0]
    assert usual.alternatives == []


def test_what_was_measured_of_a_card_takes_the_place_of_its_name(machine: MakeReport) -> None:
    there = machine(vram=24 * GB, bandwidth={"8": 60.0})

    def measured(**speeds: float) -> HardwareReport:
        calibration = Calibration({"8": 60.0}, devices={"cuda:0": DeviceSpeed(**speeds)})
        return replace(there, calibration=calibration)

    whole = plan(QWEN3, there)
    assert whole.mode == "all_gpu"
    slow = plan(QWEN3, measured(memory_gbs=100.0)).prediction
    assert slow.decode_tps.likely < whole.prediction.decode_tps.likely
    assert slow.prefill_tps == whole.prediction.prefill_tps
    # 1.8 G weights of experts take about a second where codes are slowly turned into numbers.
    coded = plan(QWEN3, measured(code_gweights=1.8)).prediction
    assert coded.decode_tps.likely == pytest.approx(1.0, rel=0.05)
    weak = plan(QWEN3, measured(teraflops=5.0)).prediction
    assert weak.prefill_tps.likely < whole.prediction.prefill_tps.likely
    # A card that is not planned with says nothing.
    other = replace(there, calibration=Calibration({"8": 60.0}, devices={"cuda:1": DeviceSpeed(memory_gbs=1.0)}))
    assert plan(QWEN3, other).prediction == whole.prediction


def test_a_slow_link_keeps_prompts_on_the_cpu(machine: MakeReport) -> None:
    there = machine(vram=10 * GB, bandwidth={"8": 30.0}, cores=2)

    def prefill(link: float) -> float:
        calibration = Calibration({"8": 30.0}, devices={"cuda:0": DeviceSpeed(to_pinned_gbs=link)})
        made = plan(QWEN3, replace(there, calibration=calibration), device="cuda")
        assert made.mode == "hybrid"
        return made.prediction.prefill_tps.likely

    assert prefill(100.0) > prefill(25.0) > prefill(1.0) == prefill(0.5)


def test_slots_for_hot_experts_are_said_and_counted(machine: MakeReport) -> None:
    plans = [plan(QWEN3, machine(vram=v * GB, bandwidth={"8": 30.0}), device="cuda") for v in (5, 10, 16)]
    assert [made.mode for made in plans] == ["hybrid"] * 3
    speeds = [made.prediction.decode_tps for made in plans]
    assert speeds[0].likely < speeds[1].likely < speeds[2].likely
    last = plans[-1]
    percent = 100 * last.hot_slots // (48 * 128)
    assert last.label == f"Experts in RAM, the rest on the GPU + {percent}% of experts cached in VRAM"
    assert last.short_label == LABELS["hybrid"]
    assert last.cached == f"{percent}% of experts cached in VRAM"
    (said,) = [line for line in last.explanation if "room for copies" in line]
    assert f"copies of {last.hot_slots} of {48 * 128} experts" in said
    assert any("copies of routed experts" in line for line in last.explanation if line.startswith("VRAM: "))


def test_dense_weights_are_rounded_before_the_gpu_is_given_up(machine: MakeReport) -> None:
    wide = plan(QWEN3, machine(vram=6 * GB))
    assert (wide.mode, wide.dense_dtype) == ("hybrid", "bfloat16")
    bytes_wide = wide.bytes.vram["attention"] + wide.bytes.vram["lm_head"]
    slow = {"8": 15.0}
    plans = [plan(QWEN3, machine(vram=v * GB // 10, bandwidth=slow)) for v in (40, 32, 15)]
    modes = [(made.mode, made.dense_dtype) for made in plans]
    assert modes == [("hybrid", "int8"), ("hybrid", "int4"), ("cpu", "quantised")]
    narrow = plan(QWEN3, machine(vram=4 * GB, bandwidth=slow)).bytes.vram
    assert narrow["attention"] + narrow["lm_head"] == pytest.approx(bytes_wide / 2, rel=1e-3)
    assert narrow["router_and_norms"] == wide.bytes.vram["router_and_norms"]
    assert plan(QWEN3, machine(vram=4 * GB), dtype="bfloat16").mode == "cpu"
    # Experts in RAM before everything is rounded to int4.
    assert plan(QWEN3, machine(vram=20 * GB)).dense_dtype == "int8"
    assert plan(QWEN3, machine(vram=19 * GB)).mode == "hybrid"


def test_a_simulated_accelerator_can_be_planned_for(machine: MakeReport) -> None:
    made = plan(SMALL, machine(), device="sim")
    assert (made.mode, made.device) == ("all_gpu", "sim")
    limited = plan(QWEN3, machine(), device="sim:vram=8e9,copy=1e9")
    assert (limited.mode, limited.device) == ("hybrid", "sim:vram=8e9,copy=1e9")
    # The CPU does its work operation by operation: nobody is to read a GPU's speed there.
    for played, layers in ((made, 2), (limited, 48)):
        speed = played.prediction.decode_tps
        assert 0.2 / (6e-3 * layers) < speed.likely < 1 / (6e-3 * layers)
        assert speed.low < 0.4 * speed.likely < 0.4 * speed.high / 2
        assert [line for line in played.explanation if "say nothing about a real GPU" in line]
        assert "fastest" not in played.explanation[0]
    slow_copies = plan(QWEN3, machine(), device="sim:vram=8e9,latency=1e-2").prediction
    assert slow_copies.decode_tps.likely < limited.prediction.decode_tps.likely
    assert limited.bytes.vram_total + limited.bytes.vram["reserve"] <= 8 * GB


def test_a_small_model_on_a_small_gpu_is_all_on_it(machine: MakeReport) -> None:
    assert plan(SMALL, machine(vram=4 * GB)).mode == "all_gpu"


def test_free_vram_counts_not_built_in_vram(machine: MakeReport) -> None:
    assert plan(QWEN3, machine(vram=80 * GB, vram_free=16 * GB)).mode == "hybrid"
    assert plan(QWEN3, machine(vram=80 * GB, vram_free=2 * GB)).mode == "cpu"


def test_a_limit_on_vram_forces_experts_into_ram(machine: MakeReport) -> None:
    made = plan(QWEN3, machine(vram=80 * GB), max_vram=10 * GB)
    assert made.mode == "hybrid"
    assert made.bytes.vram_total <= 10 * GB


def test_dense_models_have_nothing_to_keep_in_ram(machine: MakeReport) -> None:
    assert plan(dense_model(), machine(vram=24 * GB)).mode == "all_gpu"
    made = plan(dense_model(), machine(vram=8 * GB), dtype="bfloat16")
    assert made.mode == "cpu"
    assert "no experts to keep in RAM" in made.explanation[0]


def test_the_best_gpu_is_taken(machine: MakeReport) -> None:
    gpus = [
        GpuReport("AMD Radeon", "amd", 64 * GB, 64 * GB, False),
        GpuReport("NVIDIA T400", "nvidia", 4 * GB, 3 * GB, False),
        GpuReport("NVIDIA GeForce RTX 3090", "nvidia", 24 * GB, 23 * GB, False),
    ]
    made = plan(QWEN3, machine(gpus=gpus))
    assert made.device == "cuda:1"
    assert "RTX 3090" in made.explanation[0]


@pytest.mark.parametrize(
    ("gpus", "os", "reason"),
    [
        ([GpuReport("Intel Iris", "intel", 0, 0, True)], {}, "integrated and shares the RAM"),
        ([GpuReport("NVIDIA GB10", "nvidia", 0, 0, True)], {}, "integrated and shares the RAM"),
        ([GpuReport("AMD Radeon RX 7900", "amd", 24 * GB, 24 * GB, False)], {}, "NVIDIA GPUs only"),
        ([GpuReport("RTX 4090", "nvidia", 24 * GB, 24 * GB, False)], {"torch_cuda": "none"}, "CPU build"),
    ],
)
def test_gpus_that_cannot_be_used_are_named(
    gpus: list[GpuReport], os: dict[str, str], reason: str, machine: MakeReport
) -> None:
    report = replace(machine(gpus=gpus), os=os)
    made = plan(QWEN3, report)
    assert made.mode == "cpu"
    assert reason in made.explanation[0]
    with pytest.raises(GreenroomError, match="cannot run on a GPU here"):
        plan(QWEN3, report, device="cuda")


def test_the_cache_is_as_wide_as_wished(machine: MakeReport) -> None:
    report = machine(ram=24 * GB, free=21 * GB)
    pairs = plan(QWEN3, report)
    assert pairs.kv_type == "bf16"
    assert any("bf16: this CPU multiplies twice as many" in line for line in pairs.explanation)
    # Where pairs of bf16 are not multiplied, f16 rounds less.
    single = plan(QWEN3, report, isa="avx512vnni")
    assert single.kv_type == "f16"
    for made in (single, plan(QWEN3, report, kv_type="bf16"), plan(QWEN3, machine(vram=24 * GB))):
        assert not any("twice as many" in line for line in made.explanation)
    older = replace(report.cpu.kernels, bf16="avx512vnni")
    assert plan(QWEN3, replace(report, cpu=replace(report.cpu, kernels=older))).kv_type == "f16"
    assert plan(QWEN3, report, kv_type="f16").kv_type == "f16"
    assert plan(QWEN3, machine(ram=64 * GB), kv_type="f32").kv_type == "f32"
    assert plan(QWEN3, machine(ram=24 * GB, free=21 * GB), kv_type="f32").mode == "tight"


def test_tight_says_exactly_what_is_missing(machine: MakeReport) -> None:
    made = plan(QWEN3, machine(ram=32 * GB, free=17 * GB))
    assert made.mode == "tight"
    assert not made.runnable
    match = re.fullmatch(r"Tight: needs ([\d.]+) GB more free RAM", made.label)
    assert match is not None
    missing = made.bytes.ram_total + made.bytes.ram["reserve"] - 17 * GB
    assert 0 <= float(match[1]) - missing / GB < 0.3
    # The sentence adds up as written: needed + kept back - free = missing, the label's number.
    *_, needed, kept, free, lacking = numbers(made.explanation[1])
    assert needed + kept - free == lacking == round(float(match[1]) * 10)


def test_too_large_says_so(machine: MakeReport) -> None:
    made = plan(QWEN3, machine(ram=16 * GB))
    assert (made.mode, made.label) == ("too_large", "Too large for this PC")
    *_, needed, kept, total, lacking = numbers(made.explanation[1])
    assert needed + kept - total == lacking
    assert total == 160


def test_tight_on_vram_alone(machine: MakeReport) -> None:
    made = plan(dense_model(), machine(vram=24 * GB, vram_free=4 * GB), device="cuda")
    assert made.mode == "tight"
    assert re.fullmatch(r"Tight: needs [\d.]+ GB more free VRAM", made.label)
    *_, needed, kept, free, lacking = numbers(made.explanation[2])
    assert needed + kept - free == lacking


def test_unloading_the_present_model_counts(machine: MakeReport) -> None:
    report = machine(ram=32 * GB, free=17 * GB)
    assert plan(QWEN3, report).mode == "tight"
    made = plan(QWEN3, report, unload_bytes=10 * GB)
    assert made.mode == "cpu"
    assert any("10.0 GB of the model loaded now" in line for line in made.explanation)


def test_what_if_free_memory(machine: MakeReport) -> None:
    assert plan(QWEN3, machine(ram=16 * GB), ram_free=60 * GB).mode == "cpu"
    assert plan(QWEN3, machine(ram=64 * GB), ram_free=5 * GB).mode == "tight"
    assert plan(QWEN3, machine(vram=24 * GB), vram_free=90 * GB).mode == "all_gpu"


def test_float32_keeps_everything_exact(machine: MakeReport) -> None:
    made = plan(SMALL, machine(), dtype="float32")
    assert (made.dense_dtype, made.kv_type, made.experts) == ("float32", "f32", "float32")
    weights = 2 * 8 * 3 * 256 * 256
    assert made.bytes.ram["experts"] == 4 * weights
    gpu = plan(SMALL, machine(vram=8 * GB), dtype="float32")
    assert (gpu.mode, gpu.dense_dtype, gpu.kv_type) == ("all_gpu", "float32", "f32")
    assert gpu.bytes.vram["experts"] == 4 * weights


@pytest.mark.parametrize(("code", "nbytes", "values"), [("int4", 18, 32), ("int4_g128", 66, 128), ("int8", 34, 32)])
def test_recoding_is_named_as_a_loss(code: str, nbytes: int, values: int, machine: MakeReport) -> None:
    made = plan(moe_model("BF16"), machine(ram=128 * GB), experts=code)
    assert made.experts == code
    assert made.bytes.ram["experts"] == 48 * 128 * 3 * 768 * 2048 * nbytes // values
    assert any(f"re-coded from BF16 to {code} " in line and "loses some accuracy" in line for line in made.explanation)


@pytest.mark.parametrize(("code", "width", "remedy"), [("int4_g128", 96, "int4"), ("int4", 80, "as stored")])
def test_rows_that_groups_do_not_divide_are_not_recoded(
    code: str, width: int, remedy: str, machine: MakeReport
) -> None:
    model = moe_model(
        "BF16", layers=2, hidden=256, intermediate=width, experts=8, top_k=2, heads=2, kv_heads=1, vocab=1000
    )
    with pytest.raises(GreenroomError, match=f"do not divide rows of {width}") as caught:
        plan(model, machine(), experts=code)
    assert remedy in caught.value.remedy


def test_recoding_is_not_done_for_experts_on_the_gpu(machine: MakeReport) -> None:
    made = plan(SMALL, machine(vram=8 * GB), experts="int4")
    assert (made.mode, made.experts) == ("all_gpu", "stored")
    assert any("not needed" in line for line in made.explanation)


def test_larger_in_ram_than_in_the_file_is_said(machine: MakeReport) -> None:
    # 72 rows of gate and up take five strips of 16.
    made = plan(moe_model("BF16", intermediate=72), machine(ram=64 * GB))
    stored = 48 * 128 * 3 * 72 * 2048 * 2
    assert made.bytes.ram["experts"] > stored
    assert any(f"stores the experts in {size_up(stored)}" in line for line in made.explanation)


def test_types_that_are_held_in_wider_codes_are_named(machine: MakeReport) -> None:
    made = plan(moe_model("IQ3_XXS"), machine(ram=64 * GB))
    assert made.bytes.ram["experts"] == 48 * 128 * 3 * 768 * 2048 * 36 // 32
    assert any("stored as IQ3_XXS are held in wider codes, with the same values" in line for line in made.explanation)


def test_types_that_are_held_in_wider_codes_may_be_recoded(machine: MakeReport) -> None:
    made = plan(moe_model("IQ3_XXS"), machine(ram=64 * GB), experts="int4")
    assert made.bytes.ram["experts"] == 48 * 128 * 3 * 768 * 2048 * 18 // 32
    assert any("re-coded from IQ3_XXS to int4" in line and "loses some accuracy" in line for line in made.explanation)
    tight = plan(moe_model("IQ3_XXS"), machine(ram=28 * GB))
    assert any("re-coded to int4" in line for line in tight.alternatives)


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"colour": "red"}, "colour"),
        ({"device": "tpu"}, "auto, cpu, cuda or sim"),
        ({"device": "sim:fast"}, "no setting"),
        ({"device": "cuda"}, "no GPU was found"),
        ({"dtype": "float64"}, "dtype"),
        ({"kv_type": "q4"}, "kv_type"),
        ({"experts": "int3"}, "experts"),
        ({"experts": "int4"}, "quantised already \\(Q4_0\\)"),
        ({"isa": "neon"}, "portable"),
        ({"threads": 0}, "threads"),
        ({"threads": 17}, "16 logical cores"),
        ({"threads": 2.5}, "threads"),
        ({"threads": True}, "threads"),
        ({"ram_free": -1}, "ram_free"),
        ({"max_vram": "4"}, "max_vram"),
        ({"context": 0}, "context"),
        ({"context": 40961}, "at most 40960"),
        ({"context": "many"}, "context"),
    ],
)
def test_impossible_wishes_are_one_sentence(wishes: dict, words: str, machine: MakeReport) -> None:
    with pytest.raises(GreenroomError, match=words) as caught:
        plan(QWEN3, machine(), **wishes)
    assert caught.value.remedy


def test_recoding_needs_experts_and_no_float32(machine: MakeReport) -> None:
    with pytest.raises(GreenroomError, match="no routed experts"):
        plan(dense_model("BF16"), machine(), experts="int8")
    with pytest.raises(GreenroomError, match="exact weights"):
        plan(SMALL, machine(), experts="int8", dtype="float32")


def test_fewer_experts_per_token_are_planned_and_their_cost_is_told(machine: MakeReport) -> None:
    usual, fewer = plan(QWEN3, machine()), plan(QWEN3, machine(), experts_per_token=4)
    assert (usual.experts_per_token, fewer.experts_per_token) == (None, 4)
    assert fewer.prediction.decode_tps.likely > usual.prediction.decode_tps.likely
    assert any("answers get worse" in line for line in fewer.explanation)
    assert not any("Asked for" in line for line in usual.explanation)
    with pytest.raises(GreenroomError, match="trained with 8"):
        plan(QWEN3, machine(), experts_per_token=9)
    with pytest.raises(GreenroomError, match="whole number from 1"):
        plan(QWEN3, machine(), experts_per_token=0)


def test_deferral_is_planned_and_its_cost_is_told(machine: MakeReport) -> None:
    made = plan(QWEN3, machine(), defer_experts=2)
    assert made.defer_experts == 2
    assert any("changes nothing" in line for line in made.explanation) == (made.mode != "hybrid")
    with pytest.raises(GreenroomError, match="at most 6 of the 8"):
        plan(QWEN3, machine(), defer_experts=7)


def test_every_wish_is_checked_or_free() -> None:
    assert {field.name for field in fields(Wishes)} == {
        *("device", "dtype", "kv_type", "experts", "threads", "isa"),
        *("ram_free", "vram_free", "max_vram", "unload_bytes", "leave_ram", "leave_vram", "keep_gpu", "prefer_gpu"),
        *("experts_per_token", "defer_experts", "experts_share", "deferred_share", "prompt"),
    }


def test_vram_wishes_without_a_gpu_change_nothing(machine: MakeReport) -> None:
    assert plan(QWEN3, machine(), max_vram=4 * GB).mode == "cpu"


def test_threads_default_to_performance_cores(machine: MakeReport) -> None:
    report = machine(cores=8)
    assert plan(QWEN3, replace(report, cpu=replace(report.cpu, performance_cores=6))).threads == 6
    # An older report without that figure: never more than may be used.
    unknown = replace(report, cpu=replace(report.cpu, performance_cores=0, usable_cores=3))
    assert plan(QWEN3, unknown).threads == 3
    assert plan(QWEN3, report, threads=16).threads == 16


def test_context_defaults_to_what_the_model_can(machine: MakeReport) -> None:
    assert plan(moe_model(layers=1, context=2048), machine()).context == 2048
    assert plan(moe_model(layers=1), machine(), context=40960).context == 40960


def test_an_isa_cap_lowers_the_prediction(machine: MakeReport) -> None:
    caps = ("portable", "avx2", "avx512", "amx", None)
    made = [plan(QWEN3, machine(), isa=isa) for isa in caps]
    assert [entry.isa for entry in made] == list(caps)
    speeds = [entry.prediction.prefill_tps.likely for entry in made]
    # No kernels are made for plain AVX-512: the AVX2 ones run.
    assert speeds[0] < speeds[1] == speeds[2] < speeds[3] == speeds[4]


def test_missing_kernels_still_give_a_plan(machine: MakeReport) -> None:
    report = machine()
    none = replace(report.cpu.kernels, int4="none", int8="none", bf16="none")
    made = plan(QWEN3, replace(report, cpu=replace(report.cpu, kernels=none)))
    assert made.mode == "cpu"
    assert made.prediction.prefill_tps.likely <= SLOWEST_GOPS * 8


def test_alternatives_really_fit(machine: MakeReport) -> None:
    report = machine(ram=32 * GB, free=28 * GB)
    model = moe_model("BF16")
    made = plan(model, report)
    assert made.mode == "too_large"
    text = "\n".join(made.alternatives)
    assert "re-coded to int4" in text
    assert plan(model, report, experts="int4").runnable
    assert not plan(model, report, experts="int8").runnable
    assert "Q4_K_M file" in text
    assert plan(moe_model("Q4_K"), report).runnable
    assert not plan(moe_model("Q8_0"), report).runnable
    (added,) = re.findall(r"^(\d+) GB more RAM would make it fit", text, re.MULTILINE)
    more = int(added) << 30
    assert plan(model, machine(ram=32 * GB + more, free=28 * GB + more)).runnable
    less = more // 2
    assert not plan(model, machine(ram=32 * GB + less, free=28 * GB + less)).runnable


def test_a_shorter_context_is_offered_when_it_helps(machine: MakeReport) -> None:
    report = machine(ram=24 * GB, free=int(20.9 * GB))
    made = plan(QWEN3, report, context=40960)
    assert not made.runnable
    (context,) = re.findall(r"A context of (\d+) tokens would fit", "\n".join(made.alternatives))
    assert plan(QWEN3, report, context=int(context)).runnable
    assert not plan(QWEN3, report, context=2 * int(context)).runnable


def test_a_narrower_cache_is_offered_when_f32_was_asked_for(machine: MakeReport) -> None:
    made = plan(QWEN3, machine(ram=24 * GB, free=21 * GB), kv_type="f32")
    assert made.alternatives[0].startswith("A KV cache in bf16 instead of f32 would fit")


def test_a_cache_in_q8_is_planned_and_offered(machine: MakeReport) -> None:
    """8 bits a number, and a float32 scale for every 128 of them: 17/32 of f16."""
    made = plan(QWEN3, machine(ram=64 * GB), context=32768, kv_type="q8")
    assert made.kv_type == "q8"
    assert made.bytes.ram["kv_cache"] == 48 * 2 * 4 * (128 + 4) * 32768
    assert any("4 heads x (128 numbers + 4 bytes of scale) (q8)" in line for line in made.explanation)
    wide = plan(QWEN3, machine(ram=64 * GB), context=32768)
    assert wide.bytes.ram["kv_cache"] * 33 == made.bytes.ram["kv_cache"] * 64
    assert wide.prediction.full_context_tps < made.prediction.full_context_tps
    short = (wide.bytes.ram_total + made.bytes.ram_total) // 2 + made.bytes.ram["reserve"]
    offered = plan(QWEN3, machine(ram=64 * GB, free=short), context=32768)
    assert offered.mode == "tight"
    assert offered.alternatives[0].startswith("A KV cache in q8 instead of bf16 would fit")
    on_gpu = plan(QWEN3, machine(vram=24 * GB), kv_type="q8")
    assert (on_gpu.mode, on_gpu.kv_type) == ("all_gpu", "q8")
    assert on_gpu.bytes.vram["kv_cache"] == 48 * 2 * 4 * (128 + 4) * 8192


def test_nothing_is_offered_that_would_not_fit(machine: MakeReport) -> None:
    made = plan(moe_model("BF16"), machine(ram=8 * GB))
    # 62.8 GB and 8 % of 76.7 GB; 7 GB and the new 68.7 GB are free. 32 GB would not do.
    assert made.alternatives == ["64 GB more RAM would make it fit."]


def test_float_experts_that_fit_could_be_faster(machine: MakeReport) -> None:
    (offered,) = plan(moe_model("BF16"), machine(ram=128 * GB)).alternatives
    assert offered.startswith("Experts re-coded to int8 while loading would take less room and time")


def test_short_ram_before_short_vram(machine: MakeReport) -> None:
    made = plan(QWEN3, machine(ram=32 * GB, free=16 * GB, vram=80 * GB, vram_free=19 * GB))
    assert made.mode == "tight"
    assert "experts" in made.bytes.ram
    # With too little RAM for the experts at any time, the VRAM is what must be freed.
    other = plan(QWEN3, machine(ram=16 * GB, free=14 * GB, vram=80 * GB, vram_free=19 * GB))
    assert (other.mode, "experts" in other.bytes.vram) == ("tight", True)
    assert other.label.endswith("more free VRAM")


def test_a_shorter_context_for_the_gpu(machine: MakeReport) -> None:
    made = plan(QWEN3, machine(vram=22 * GB), context=40960)
    assert made.mode == "hybrid"
    (context,) = re.findall(r"context of (\d+) tokens everything would fit on the GPU", "\n".join(made.alternatives))
    assert plan(QWEN3, machine(vram=22 * GB), context=int(context)).mode == "all_gpu"


def test_measured_bandwidth_narrows_the_range(machine: MakeReport) -> None:
    table = plan(QWEN3, machine()).prediction.decode_tps
    measured = plan(QWEN3, machine(bandwidth={"1": 20.0, "8": 60.0})).prediction
    assert "at 60 GB/s" in measured.bottleneck
    assert "not measured" not in measured.bottleneck
    assert measured.decode_tps.high / measured.decode_tps.low < table.high / table.low


@st.composite
def situations(draw: st.DrawFn) -> tuple[HeaderOnly, dict]:
    model = draw(st.sampled_from(MODELS))
    ram = draw(st.integers(GB, 128 * GB))
    vram = draw(st.sampled_from([0, 2 * GB, 8 * GB, 24 * GB, 80 * GB]))
    return model, {"ram": ram, "free": draw(st.integers(0, ram)), "vram": vram}


@settings(max_examples=40, deadline=None)
@given(situations(), st.integers(0, 64 * GB))
def test_more_memory_never_makes_a_plan_worse(situation: tuple[HeaderOnly, dict], more: int) -> None:
    model, parts = situation
    before = plan(model, make_report(**parts))
    ram = plan(model, make_report(**{**parts, "ram": parts["ram"] + more, "free": parts["free"] + more}))
    assert no_worse(ram, before)
    vram = plan(model, make_report(**{**parts, "vram": parts["vram"] + more}))
    assert no_worse(vram, before)


def no_worse(after: OffloadPlan, before: OffloadPlan) -> bool:
    """The CPU alone may turn out to be faster once everything has room in RAM."""
    faster = after.prediction.decode_tps.likely >= before.prediction.decode_tps.likely
    return ORDER.index(after.mode) <= ORDER.index(before.mode) or (after.mode == "cpu" and faster)


@settings(max_examples=40, deadline=None)
@given(situations())
def test_every_plan_is_consistent(situation: tuple[HeaderOnly, dict]) -> None:
    model, parts = situation
    made = plan(model, make_report(**parts))
    check_consistent(made)
    need = made.bytes.ram_total + made.bytes.ram["reserve"]
    if made.runnable:
        assert need <= parts["free"]
        assert made.label.startswith(LABELS[made.mode])
        assert made.label == LABELS[made.mode] or "cached in VRAM" in made.label
    elif made.mode == "tight":
        assert need <= parts["ram"]
        assert made.label.startswith("Tight: needs ")
    if made.bytes.vram and made.runnable:
        assert made.bytes.vram_total + made.bytes.vram["reserve"] <= parts["vram"]


def check_consistent(made: OffloadPlan) -> None:
    used = made.bytes
    assert used.ram_total == sum(n for role, n in used.ram.items() if role != "reserve")
    assert used.vram_total == sum(n for role, n in used.vram.items() if role != "reserve")
    assert set(used.ram) | set(used.vram) <= {
        *("experts", "shared_experts", "dense_mlp", "attention", "router_and_norms", "embeddings", "lm_head"),
        *("hot_experts", "kv_cache", "buffers", "reserve"),
    }
    assert bool(used.vram) == made.device.startswith("cuda")
    decode = made.prediction.decode_tps
    assert 0 < decode.low <= decode.likely <= decode.high
    for line in made.explanation:
        terms, equals, total = line.partition(" = ")
        if equals and " GB" in terms:
            assert sum(numbers(terms)) == numbers(total)[0]
    assert json.loads(json.dumps(made.to_json()))["mode"] == made.mode
    assert made.explain().count("\n") == len(made.explanation) - 1


@pytest.mark.parametrize("isa", [*TIERS, None])
@pytest.mark.parametrize("code", ["int4", "int8", "bf16", "f32"])
def test_a_cap_means_what_it_means_to_the_kernels(code: str, isa: str | None, machine: MakeReport) -> None:
    report = machine()
    kernels = Kernels(*(_native.kernel_tier(part) for part in ("int4", "int8", "bf16")))
    here = Isa(_native.cpu_features().cpu, _native.cpu_features().usable)
    report = replace(report, cpu=replace(report.cpu, kernels=kernels, isa=here))
    assert kernel_tier(report, code, isa) == _native.kernel_tier(code, isa)


def test_a_chunk_is_what_the_runtime_reads_at_once() -> None:
    from engine.runtime import engine

    assert plan(SMALL, make_report()).prefill_chunk == sizes.PREFILL_CHUNK
    assert sizes.SCORING_CHUNK == engine._SCORING_CHUNK


def test_the_memory_of_a_windowed_model_is_explained(machine: MakeReport) -> None:
    mistral = dense_model("Q4_0", layers=4)
    mistral.config["llama.attention.sliding_window"] = 1000
    made = plan(mistral, machine(ram=64 * GB), context=8192)
    line = next(line for line in made.explanation if line.startswith("The KV cache"))
    assert f"{size_up(made.bytes.ram['kv_cache'])} for 8192 tokens" in line
    assert line.endswith("layers with a window, 4 of 4, keep only the last 1512 of them, and a copy to go back to.")
    assert "bytes each" in "\n".join(plan(mistral, machine(ram=64 * GB), context=512).explanation)


def test_the_gpu_can_be_kept_for_games(machine: MakeReport) -> None:
    kept = plan(QWEN3, machine(vram=80 * GB), keep_gpu=True)
    assert (kept.mode, kept.device, kept.bytes.vram) == ("cpu", "cpu", {})
    assert kept.explanation[0] == "On the CPU: the GPU is left to other programs, as asked for."
    with pytest.raises(GreenroomError, match="left to other programs"):
        plan(QWEN3, machine(vram=80 * GB), keep_gpu=True, device="cuda")


def test_memory_is_left_as_asked_for(machine: MakeReport) -> None:
    report = machine(ram=32 * GB, free=28 * GB, vram=16 * GB)
    usual = plan(QWEN3, report)
    assert usual.mode == "hybrid"
    roomy = plan(QWEN3, report, leave_ram=GB, leave_vram=3 * GB)
    assert (roomy.bytes.ram["reserve"], roomy.bytes.vram["reserve"]) == (GB, 3 * GB)
    assert "1.0 GB is kept back for other programs, as asked for" in roomy.explanation[1]
    assert "3.0 GB is kept back for other programs, as asked for" in roomy.explanation[2]
    greedy = plan(QWEN3, report, leave_ram=12 * GB)
    assert greedy.mode == "tight"
    assert not greedy.runnable
    # What is asked for also counts when more RAM is proposed.
    assert plan(QWEN3, machine(ram=16 * GB, free=12 * GB), leave_ram=0).alternatives[-1].startswith("8 GB more RAM")


def test_a_screen_on_the_card_keeps_more_back(machine: MakeReport) -> None:
    card = GpuReport("NVIDIA GeForce RTX 4090", "nvidia", 24 * GB, 23 * GB, False, drives_display=True)
    shown = plan(QWEN3, machine(gpus=[card]))
    plain = plan(QWEN3, machine(gpus=[replace(card, drives_display=False)]))
    assert shown.bytes.vram["reserve"] == 2 * plain.bytes.vram["reserve"] == GB


def test_a_card_that_cannot_be_used_is_named(machine: MakeReport) -> None:
    card = GpuReport("Old card", "nvidia", 24 * GB, 23 * GB, False, unusable="stays unused: its driver is too old")
    made = plan(QWEN3, machine(gpus=[card]))
    assert made.explanation[0] == "On the CPU: Old card stays unused: its driver is too old."


def test_a_header_is_read_once(machine: MakeReport, monkeypatch: pytest.MonkeyPatch) -> None:
    model = moe_model("Q4_0", layers=3)
    first = plan(model, machine(), 4096)
    fewer = plan(model, machine(), 4096, experts_per_token=2)

    def again(*_: object) -> None:
        raise AssertionError("the header is read again")

    monkeypatch.setattr("engine.models.families.FAMILIES", ())
    monkeypatch.setattr("engine.placement.planner.sizes.take_inventory", again)
    assert plan(model, machine(), 4096) == first
    assert plan(model, machine(), 4096, experts_per_token=2) == fewer != first
    assert plan(model, machine(), 8192).bytes.ram["kv_cache"] == 2 * first.bytes.ram["kv_cache"]


def test_a_closed_model_is_forgotten(machine: MakeReport) -> None:
    model = moe_model("Q4_0", layers=3)
    plan(model, machine())
    kept = weakref.ref(model)
    del model
    gc.collect()
    assert kept() is None


def test_a_long_prompt_is_predicted_as_such(machine: MakeReport) -> None:
    speeds = [plan(QWEN3, machine(), 8192, prompt=tokens).prediction.prefill_tps.likely for tokens in (8, 512, 8192)]
    assert speeds[0] < speeds[1]
    # Attention looks back further and further.
    assert speeds[2] < speeds[1]
    with pytest.raises(GreenroomError, match="prompt 0"):
        plan(QWEN3, machine(), prompt=0)
