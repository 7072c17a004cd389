"""What one token costs under a plan, and what the machine gives: the two sides of a prediction."""

from __future__ import annotations

from dataclasses import dataclass

from engine.placement.machines import Bandwidth
from engine.placement.profiles import attention_tier


@dataclass(frozen=True)
class Hits:
    """Shares of a token's experts that lie in VRAM: when choices are even, usually, and when they stay among a few."""

    even: float
    likely: float
    steady: float


NO_HITS = Hits(0.0, 0.0, 0.0)


def expected_hits(share: float, active: float) -> Hits:
    """Where the most recently used `share` of all experts is cached in VRAM; active: the share that one token uses.

    Published: 12 % of 512 experts served 67 % of the uses, 25 % of them 81 %; 10 % of another model's a third. A choice
    without any habit would be served by its share, and so is one where not even a token's experts have room.
    """
    share = min(1.0, max(0.0, share))
    room = min(1.0, share / active) if active > 0 else 1.0
    return Hits(share, max(share, room * share**0.5), max(share, room * share**0.2))


@dataclass(frozen=True)
class Work:
    """What one token costs under a plan. Bytes are as they lie in memory.

    cpu_expert_bytes:  routed experts read from RAM
    cpu_dense_bytes:   everything else read from RAM
    gpu_bytes:         everything read from VRAM
    gpu_beside_bytes:  of that what is read while the CPU computes experts: shared and cached ones
    streamed_bytes:    routed experts that a prompt can be read with on the GPU, once each has been sent there; 0 = none
    streamed_experts:  how many that are
    context:           tokens a full KV cache holds
    kv_bytes:          traffic of attention over a full KV cache
    short_kv_bytes:    the same in a conversation of CONVERSATION tokens; None where it grows in proportion
    kv_on_gpu:         which memory it loads, and which device computes attention
    attention_ops:     operations of attention per token and token in the cache, while a prompt is read
    cpu_values, gpu_values: weights multiplied with while a prompt is read
    cpu_between:       numbers between the CPU's matrices, per token of a prompt
    cpu_experts:       routed experts of a token over all layers, those that VRAM serves included
    all_expert_bytes:  of all routed experts in RAM; a prompt reads those that any of its tokens chose
    active_share:      of a layer's experts, those that one token chooses
    cached_bytes:      weights of a token that the CPU's cache kept from the one before
    gpu_experts:       routed experts of all layers that the GPU computes
    code, tier:        of the kernels that read from RAM
    kv_pairs:          attention multiplies keys and values in pairs of bf16
    hit_bytes:         VRAM traffic of a token whose experts all lie in VRAM
    hits:              share of the experts' uses that VRAM serves; cpu_expert_bytes and gpu_beside_bytes are without it
    """

    layers: int
    cpu_expert_bytes: int
    cpu_dense_bytes: int
    gpu_bytes: int
    context: int
    kv_bytes: int
    kv_on_gpu: bool
    attention_ops: int
    cpu_values: int
    gpu_values: int
    gpu_experts: int
    code: str
    tier: str
    threads: int
    cpu_between: int = 0
    cpu_experts: int = 0
    all_expert_bytes: int = 0
    active_share: float = 0.0
    cached_bytes: int = 0
    short_kv_bytes: int | None = None
    gpu_beside_bytes: int = 0
    streamed_bytes: int = 0
    streamed_experts: int = 0
    kv_pairs: bool = False
    hit_bytes: int = 0
    hits: Hits = NO_HITS

    @property
    def attention_tier(self) -> str:
        return "avx512bf16" if self.kv_pairs else attention_tier(self.tier)

    @property
    def between_tier(self) -> str:
        return attention_tier(self.tier)

    @property
    def uses_cpu(self) -> bool:
        return self.cpu_expert_bytes + self.cpu_dense_bytes > 0

    @property
    def uses_gpu(self) -> bool:
        return self.gpu_bytes > 0


@dataclass(frozen=True)
class Speeds:
    """The machine's side: RAM reads with their range, VRAM reads (GB/s), the GPU's 16-bit matrix rate (TFLOP/s), and
    what its link carries from page-locked RAM (GB/s).
    """

    ram: Bandwidth
    vram_gbs: float
    teraflops: float
    link_gbs: float = 12.0
