"""The hardware model against runs that others published, each with a profile of the engine that ran.

A profile has four figures that matter here: shares of the sustained bandwidth for small and large experts, the fixed
cost of a layer, the share of VRAM bandwidth. They were set on the rows marked so; the rows kept aside decide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from fake_machines import make_report

from engine.placement.machines import Bandwidth, ram_bandwidth, what_if
from engine.placement.parts import find_gpu
from engine.placement.predict import predict
from engine.placement.profiles import EngineProfile
from engine.placement.work import Speeds, Work

GB = 10**9

LLAMA_CPP = EngineProfile(
    share_small=0.50,
    share_large=0.69,
    cpu_layer_s=100e-6,
    region_s=0,
    expert_s=0,
    gpu_layer_s=35e-6,
    handoff_s=65e-6,
    gpu_share=0.8,
    gops_per_core={},
    between_s={"avx2": 0},
    core_gbs={},
    kv_core_gbs={"avx2": 8},
    attention_gops={"avx2": 50},
    gpu_prefill_share=0.3,
    gpu_expert_s=0,
    gpu_code_bytes=0,
    link_share=0.8,
    spread=(0.65, 1.5),
    prefill_spread=(0.5, 2),
)
#: Places pages by node and captures the GPU's work, but small experts wait for each other.
KTRANSFORMERS = replace(LLAMA_CPP, share_small=0.27, share_large=0.52, gpu_share=0.6)


@dataclass(frozen=True)
class Run:
    """cpu: a name as sold, or GB/s that were measured; experts, vram: GB that a token reads from RAM and from VRAM."""

    what: str
    profile: EngineProfile
    cpu: str | float
    threads: int
    gpu: str
    layers: int
    experts: float
    vram: float
    published: float
    aside: bool = False


RUNS = [
    Run("Qwen3-30B-A3B Q4_K_M, all on the GPU", LLAMA_CPP, 100.0, 8, "RTX 4090", 48, 0.0, 1.75, 261.5),
    Run("gpt-oss-120b MXFP4, experts in RAM", LLAMA_CPP, "i9-14900K", 8, "RTX 4090", 36, 1.90, 2.2, 25.6),
    Run("Qwen3.6-35B-A3B Q4_K_M, experts in RAM", LLAMA_CPP, "Ryzen 5 5600X", 6, "RTX 3060", 40, 0.57, 0.9, 42.3, True),
    Run("Qwen3-30B-A3B, 36 of 48 layers in RAM", LLAMA_CPP, 102.0, 16, "RTX 3090", 48, 0.765, 0.95, 36.7, True),
    # 58 layers of 8 experts of 7168 x 2048 at 4.85 bits.
    Run("DeepSeek-V3 Q4_K_M", KTRANSFORMERS, "Xeon Gold 6454S", 32, "RTX 4090 D", 61, 12.4, 9.5, 8.73),
    # 48 layers of 10 experts of 2048 x 512 in bytes, a fifth of them in VRAM.
    Run("Qwen3-Coder-Next FP8", KTRANSFORMERS, "2x EPYC 9355", 64, "RTX 5090", 48, 1.21, 2.3, 75.9),
    # 62 layers of 8 experts of 3072 x 1536 in bytes.
    Run("MiniMax-M2.1 FP8", KTRANSFORMERS, "2x EPYC 9355", 64, "RTX 5090", 62, 7.02, 4.5, 32.1, True),
]


@pytest.mark.parametrize("run", RUNS, ids=[f"{run.what}{' (kept aside)' if run.aside else ''}" for run in RUNS])
def test_published_runs_lie_in_the_range(run: Run) -> None:
    if isinstance(run.cpu, float):
        ram = Bandwidth(0.9 * run.cpu, run.cpu, 1.05 * run.cpu, "measured")
    else:
        ram = ram_bandwidth(what_if(make_report(), cpu=run.cpu), run.threads)
    gpu = find_gpu(run.gpu)
    work = Work(
        layers=run.layers,
        cpu_expert_bytes=round(run.experts * GB),
        cpu_dense_bytes=0,
        gpu_bytes=round(run.vram * GB),
        context=4096,
        kv_bytes=0,
        kv_on_gpu=True,
        attention_ops=1,
        cpu_values=0,
        gpu_values=1,
        gpu_experts=0,
        code="int4",
        tier="avx2",
        threads=run.threads,
    )
    decode = predict(work, Speeds(ram, gpu.bandwidth_gbs, gpu.teraflops), run.profile).decode_tps
    assert decode.low <= run.published <= decode.high
    assert decode.likely == pytest.approx(run.published, rel=0.35)


def test_a_prompt_read_with_experts_sent_to_the_card() -> None:
    """gpt-oss-120b on an RTX 3090: 26 of 36 layers' experts, 45.6 GB, cross a link of 24 GB/s for every 4096 tokens."""
    layer = 128 * 3 * 2880 * 2880
    active = 4 / 128
    work = Work(
        layers=36,
        cpu_expert_bytes=round(26 * layer * active * 4.25 / 8),
        cpu_dense_bytes=0,
        gpu_bytes=round(2.2 * GB),
        context=8192,
        kv_bytes=0,
        kv_on_gpu=True,
        attention_ops=36 * 4 * 64 * 64 // 2,
        cpu_values=round(26 * layer * active),
        gpu_values=round(10 * layer * active) + 1_500_000_000,
        gpu_experts=0,
        code="int4",
        tier="avx2",
        threads=16,
        streamed_bytes=round(45.6 * GB),
    )
    card = find_gpu("RTX 3090")
    speeds = Speeds(Bandwidth(70, 80, 90, "measured"), card.bandwidth_gbs, card.teraflops, link_gbs=24.0)
    prefill = predict(work, speeds, LLAMA_CPP, prompt=4096, chunk=4096).prefill_tps
    assert prefill.low <= 1682 <= prefill.high
    assert prefill.likely == pytest.approx(1682, rel=0.35)
    # Its chunks of 512 tokens send as much for an eighth of the tokens (380 published: not all experts were sent).
    small = predict(work, speeds, LLAMA_CPP, prompt=4096, chunk=512).prefill_tps
    assert small.low <= 380 <= small.high
