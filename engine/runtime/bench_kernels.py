"""The kernels alone on layers of random weights: every code on every tier, beside this machine's ceilings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter, thread_time
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from engine import _native
from engine.checkpoints.formats import FORMATS
from engine.errors import GreenroomError
from engine.progress import Progress, ProgressCallback, ignore_progress
from engine.units import size_down, size_up

#: Code -> a stored format of it.
STORED = {"int4": "Q4_0", "int8": "Q8_0", "bf16": "BF16"}
PROMPT = 512
#: Bytes of weights read per timed run of decode: enough that no cache holds them.
_DECODE_BYTES = 1 << 30
_READ_BYTES = 512 << 20


@dataclass(frozen=True)
class LayerShape:
    """One layer of routed experts: gate and up [intermediate, hidden], down [hidden, intermediate]."""

    hidden: int
    intermediate: int
    experts: int
    top_k: int

    @property
    def weights(self) -> int:
        """Of one expert."""
        return 3 * self.hidden * self.intermediate


#: The two regimes: many small experts (Qwen3-30B-A3B), few large ones (DeepSeek-V3; as many as fit anywhere).
SHAPES = {"small": LayerShape(2048, 768, 128, 8), "large": LayerShape(7168, 2048, 16, 8)}


@dataclass(frozen=True)
class KernelResult:
    """Medians over the repeats.

    decode_gbs:     GB/s of weights as stored, one token at its top_k experts, other experts for each token
    read_bandwidth_gbs: of a plain read loop between the timed runs
    bandwidth_share: decode_gbs / read_bandwidth_gbs, a median of its own
    prefill_gops:   1e9 multiplications and additions per second, 512 tokens
    peak_gops, peak: what this tier's main instruction reaches in registers in the same run, and its name; None where
                    this build cannot measure it
    peak_share:     prefill_gops / peak_gops, a median of its own
    """

    shape: str
    code: str
    tier: str
    threads: int
    repeats: int
    decode_gbs: float
    read_bandwidth_gbs: float
    bandwidth_share: float
    prefill_gops: float
    peak_gops: float | None
    peak: str | None
    peak_share: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class CurvePoint:
    """How fast one layer computes so many tokens at once. us: microseconds of the call, median over the repeats."""

    shape: str
    code: str
    tier: str
    threads: int
    tokens: int
    us: float
    gops: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


#: From one token to a long prompt.
CURVE = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048)


def token_curve(
    shape: str, threads: int, repeats: int = 3, isa: str | None = None, progress: ProgressCallback = ignore_progress
) -> list[CurvePoint]:
    """Every code on its best tier (or on isa), for the numbers of tokens in CURVE, in turn."""
    points = []
    for code in STORED:
        tier = isa or tiers_of(code)[0]
        pool = _native.ThreadPool(threads)
        try:
            layer = _layer(pool, SHAPES[shape], STORED[code], tier)
            # Short calls are repeated with other experts, so that weights come from memory as they would.
            batches = [_Batch(SHAPES[shape], tokens, max(1, 64 // tokens)) for tokens in CURVE]
            seconds: list[list[float]] = [[] for _ in CURVE]
            for repeat in range(repeats):
                progress(Progress(repeat, repeats, f"{code} on {layer.tier}: {CURVE[0]} to {CURVE[-1]} tokens"))
                for batch, taken in zip(batches, seconds, strict=True):
                    taken.append(batch.seconds(layer, pool, _arithmetic_clock(threads)) / batch.calls)
        finally:
            pool.close()
        for tokens, taken in zip(CURVE, seconds, strict=True):
            operations = 2.0 * tokens * SHAPES[shape].top_k * SHAPES[shape].weights
            speed = operations / median(taken) / 1e9
            points.append(CurvePoint(shape, code, layer.tier, threads, tokens, median(taken) * 1e6, speed))
    return points


def tiers_of(code: str) -> list[str]:
    """Tiers with a kernel of their own for a code on this machine, best first; plain C++ only where it is all."""
    names = list(dict.fromkeys(_native.kernel_tier(code, tier) for tier in _native.tiers()))
    return [name for name in names if name != "portable"] or names


def bench_kernels(
    shapes: Sequence[str],
    threads: Sequence[int],
    repeats: int = 3,
    isa: str | None = None,
    progress: ProgressCallback = ignore_progress,
) -> list[KernelResult]:
    """shapes: keys of SHAPES. isa: one tier, or None for all.

    Raises GreenroomError for a tier this machine lacks, or too little RAM.
    """
    jobs = [
        (shape, code, tier, count)
        for shape in shapes
        for code in STORED
        for tier in tiers_of(code)
        for count in threads
        if isa is None or tier == isa
    ]
    if not jobs:
        known = ", ".join(dict.fromkeys(tier for code in STORED for tier in tiers_of(code)))
        raise GreenroomError(
            "The benchmark cannot run", f'this machine has no kernels called "{isa}"', f"Choose one of {known}."
        )
    results = []
    for done, (shape, code, tier, count) in enumerate(jobs):
        progress(Progress(done, len(jobs), f"{shape} experts, {code} on {tier}, {count} threads"))
        results.append(_measure(shape, code, tier, count, repeats))
    progress(Progress(len(jobs), len(jobs), "Measured"))
    return results


def _measure(name: str, code: str, tier: str, threads: int, repeats: int) -> KernelResult:
    shape = SHAPES[name]
    pool = _native.ThreadPool(threads)
    try:
        layer = _layer(pool, shape, STORED[code], tier)
        active = shape.top_k * shape.weights * _bytes_per_weight(STORED[code])
        calls = max(4, round(_DECODE_BYTES / active))
        decode, prefill = _Batch(shape, 1, calls), _Batch(shape, PROMPT, 1)
        operations = 2.0 * PROMPT * shape.top_k * shape.weights
        prefill.seconds(layer, pool)  # the pool's scratch grows at the first call
        rates: list[float] = []
        reads: list[float] = []
        speeds: list[float] = []
        peaks: list[tuple[str, float]] = []
        for _ in range(repeats):
            # Ceilings before and after, so that a busy moment of the machine shows in both.
            reads.append(_read(pool))
            rates.append(active * calls / decode.seconds(layer, pool))
            reads.append(_read(pool))
            peaks += _peak(pool, code, tier)
            speeds.append(operations / prefill.seconds(layer, pool, _arithmetic_clock(threads)))
            peaks += _peak(pool, code, tier)
    finally:
        pool.close()
    return KernelResult(
        shape=name,
        code=code,
        tier=layer.tier,
        threads=threads,
        repeats=repeats,
        decode_gbs=median(rates) / 1e9,
        read_bandwidth_gbs=median(reads) / 1e9,
        bandwidth_share=median(_shares(rates, reads)),
        prefill_gops=median(speeds) / 1e9,
        peak_gops=median(rate for _, rate in peaks) / 1e9 if peaks else None,
        peak=peaks[0][0] if peaks else None,
        peak_share=median(_shares(speeds, [rate for _, rate in peaks])) if peaks else None,
    )


def _shares(values: Sequence[float], ceilings: Sequence[float]) -> Iterator[float]:
    """Each value over the mean of the two ceilings around it."""
    for i, value in enumerate(values):
        yield 2 * value / (ceilings[2 * i] + ceilings[2 * i + 1])


def _read(pool: _native.ThreadPool) -> float:
    return median(_native.read_bandwidth(pool, _READ_BYTES, 3))


def _peak(pool: _native.ThreadPool, code: str, tier: str) -> list[tuple[str, float]]:
    peak = _native.arithmetic_peak(pool, code, tier)
    return [] if peak is None else [peak]


def _arithmetic_clock(threads: int) -> Callable[[], float]:
    """As `arithmetic_peak` times itself: one thread by its CPU time, which other programs do not disturb."""
    return thread_time if threads == 1 else perf_counter


def _bytes_per_weight(form: str) -> float:
    return FORMATS[form].block_bytes / FORMATS[form].block_values


def _layer(pool: _native.ThreadPool, shape: LayerShape, form: str, tier: str) -> _native.Experts:
    needed = round(shape.experts * shape.weights * _bytes_per_weight(form)) + _READ_BYTES
    free = psutil.virtual_memory().available
    if needed > free:
        why = f"a layer of {form} takes {size_up(needed)} of RAM and {size_down(free)} is free"
        raise GreenroomError("The benchmark cannot run", why, "Close other programs.")
    layer = _native.Experts(shape.experts, shape.hidden, shape.intermediate, form, form, form, isa=tier)
    stored = _random_rows(shape.hidden * shape.intermediate, form)
    for expert in range(shape.experts):
        for part in ("gate", "up", "down"):
            layer.load(pool, expert, part, stored)
    return layer


def _random_rows(count: int, form: str) -> npt.NDArray[np.uint8]:
    """Stored bytes of `count` weights of a sane size."""
    random = np.random.default_rng(0)
    if form == "BF16":
        values = random.standard_normal(count, dtype=np.float32) * np.float32(0.02)
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    blocks = random.integers(0, 256, (count // FORMATS[form].block_values, FORMATS[form].block_bytes), np.uint8)
    # Both formats start with a float16 scale.
    blocks[:, :2] = np.frombuffer(np.float16(2e-3).tobytes(), np.uint8)
    return blocks.reshape(-1)


class _Batch:
    """Tokens and what a router could have chosen for them, `calls` times anew."""

    def __init__(self, shape: LayerShape, tokens: int, calls: int) -> None:
        random = np.random.default_rng(1)
        self.calls = calls
        self._tokens, self._top_k = tokens, shape.top_k
        self._x = random.standard_normal((tokens, shape.hidden), dtype=np.float32)
        self._y = np.zeros_like(self._x)
        self._weights = np.full((tokens, shape.top_k), 1 / shape.top_k, np.float32)
        order = random.random((calls, tokens, shape.experts)).argpartition(shape.top_k - 1)
        self._ids = np.ascontiguousarray(order[..., : shape.top_k], np.int32)

    def seconds(
        self, layer: _native.Experts, pool: _native.ThreadPool, clock: Callable[[], float] = perf_counter
    ) -> float:
        x, y, weights = (array.ctypes.data for array in (self._x, self._y, self._weights))
        addresses = [ids.ctypes.data for ids in self._ids]
        forward: Callable[..., None] = layer.forward
        start = clock()
        for ids in addresses:
            forward(pool, x, self._tokens, ids, weights, self._top_k, y)
        return clock() - start
