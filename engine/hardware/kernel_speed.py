"""How fast our own expert kernels read weights here, and what handing work to the pool costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.hardware.report import Calibration, HardwareReport, KernelSpeed
from engine.progress import Progress, ProgressCallback
from engine.words import say

if TYPE_CHECKING:
    from engine import _native

#: Bytes of one block of Q4_0: a 16-bit scale and 32 four-bit codes.
_BLOCK_VALUES, _BLOCK_BYTES = 32, 18
_FORMAT = "Q4_0"
#: A layer must not fit in the caches, and two of them must fit beside a running desktop.
_LAYER_BYTES = 400_000_000
#: Calls are timed until this many seconds are over, but at least so many of them.
_SECONDS, _FEWEST = 0.4, 5
PROMPT = 128
#: A reading below this share of the median is slow; more such than this share of all are no outliers.
SLOW_SHARE, MOST_OUTLIERS = 0.75, 0.25
TOP_K = 8


@dataclass(frozen=True)
class Shape:
    """Experts of gate and up [intermediate, hidden] and down [hidden, intermediate]."""

    name: str
    hidden: int
    intermediate: int

    @property
    def values(self) -> int:
        return 3 * self.hidden * self.intermediate

    @property
    def stored_bytes(self) -> int:
        return self.values // _BLOCK_VALUES * _BLOCK_BYTES

    @property
    def between(self) -> int:
        """Numbers that a token of a prompt brings to its experts, that stand between their matrices, and that they
        give: one row in, a row of each expert out.
        """
        return self.hidden + TOP_K * (3 * self.intermediate + self.hidden)

    @property
    def dense_between(self) -> int:
        """The same of an MLP."""
        return 2 * self.hidden + 3 * self.intermediate


#: The two regimes: many small experts (Qwen3-30B-A3B), few large ones (DeepSeek-V3).
SHAPES = (Shape("small", 2048, 768), Shape("large", 7168, 2048))
#: An MLP of a model so small that the numbers between its matrices count (SmolLM2).
NARROW = Shape("narrow", 576, 1536)
NARROW_PROMPT = 512
#: Work that is over at once: what is left is the pool's own time.
TINY = Shape("tiny", 32, 32)
#: What each of the steps usually takes.
STEP_SECONDS = (1.0, 1.2, 0.4, 0.4)
STEPS = len(STEP_SECONDS)


def measure_kernels(
    report: HardwareReport, threads: int, known: Calibration, progress: ProgressCallback, done: int, total: int
) -> Calibration:
    """`known` with the kernels' speeds, the pool's latency and hand-over; without what the RAM is too full for.

    About 1 s a step. progress is called before each of STEPS steps, counted on from `done`, and may raise Cancelled.
    """
    from engine import _native

    pool = _native.ThreadPool(threads)
    kernels: dict[str, KernelSpeed] = {}
    try:
        for step, shape in enumerate(SHAPES):
            progress(Progress(done + step, total, say("Computing {shape} experts", shape=shape.name)))
            nbytes = min(_LAYER_BYTES, report.memory.available_bytes // 4)
            if nbytes >= TOP_K * shape.stored_bytes:
                kernels[shape.name] = _speed(pool, shape, min(layer_experts(shape), nbytes // shape.stored_bytes))
        progress(Progress(done + len(SHAPES), total, say("Computing narrow matrices")))
        narrow = _usual_time(_timed(pool, _layer(pool, NARROW, 1), NARROW, 1, NARROW_PROMPT, 1))
        progress(Progress(done + len(SHAPES) + 1, total, say("Handing work to the threads")))
        layer = _layer(pool, TINY, 1)
        region = min(_timed(pool, layer, TINY, 1, 1, 1))
        handover = _native.handover_seconds(pool)
    finally:
        pool.close()
    return Calibration(
        bandwidth_gbs=known.bandwidth_gbs,
        spread_gbs=known.spread_gbs,
        threads=threads,
        kernels=kernels,
        region_us=round(region * 1e6, 2),
        narrow_gops=round(2 * NARROW_PROMPT * NARROW.values / narrow / 1e9, 1),
        handover_us=None if handover is None else round(handover * 1e6, 3),
    )


def layer_experts(shape: Shape) -> int:
    """As many as are timed where the RAM has room."""
    return _LAYER_BYTES // shape.stored_bytes


def kept_readings(readings: list[float]) -> list[float]:
    """Without the outliers: a few slow readings are a disturbance, many are a second speed that this machine has."""
    middle = statistics.median(readings)
    slow = [reading for reading in readings if reading < SLOW_SHARE * middle]
    if len(slow) > MOST_OUTLIERS * len(readings):
        return readings
    return [reading for reading in readings if reading >= SLOW_SHARE * middle]


def usual_reading(readings: list[float]) -> float:
    """The upper quartile: other programs can only make a reading slower."""
    return float(np.quantile(readings, 0.75))


def _usual_time(seconds: list[float]) -> float:
    """The lower quartile, likewise."""
    return float(np.quantile(seconds, 0.25))


def _speed(pool: _native.ThreadPool, shape: Shape, experts: int) -> KernelSpeed:
    layer = _layer(pool, shape, experts)
    seconds = _timed(pool, layer, shape, experts, 1, TOP_K)
    speeds = kept_readings([TOP_K * shape.stored_bytes / spent / 1e9 for spent in seconds])
    prompt = _usual_time(_timed(pool, layer, shape, experts, PROMPT, TOP_K))
    return KernelSpeed(
        decode_gbs=round(usual_reading(speeds), 3),
        spread_gbs=[round(min(speeds), 3), round(max(speeds), 3)],
        prefill_gops=round(2 * PROMPT * TOP_K * shape.values / prompt / 1e9, 1),
    )


def _layer(pool: _native.ThreadPool, shape: Shape, experts: int) -> _native.Experts:
    from engine import _native

    layer = _native.Experts(experts, shape.hidden, shape.intermediate, _FORMAT, _FORMAT, _FORMAT)
    random = np.random.default_rng(0)
    blocks = random.integers(0, 256, (shape.hidden * shape.intermediate // _BLOCK_VALUES, _BLOCK_BYTES), np.uint8)
    # Weights of a sane size: sums must not overflow, which some CPUs compute more slowly.
    blocks[:, :2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    stored = np.ascontiguousarray(blocks).reshape(-1)
    for expert in range(experts):
        for part in ("gate", "up", "down"):
            layer.load(pool, expert, part, stored)
    return layer


def _timed(
    pool: _native.ThreadPool, layer: _native.Experts, shape: Shape, experts: int, tokens: int, top_k: int
) -> list[float]:
    """Seconds per call; each reads other experts than the one before."""
    x = np.random.default_rng(1).standard_normal((tokens, shape.hidden), np.float32)
    y = np.empty_like(x)
    weights = np.full((tokens, top_k), 1 / top_k, np.float32)
    seconds: list[float] = []
    started = time.perf_counter()
    for ids in _turns(experts, tokens, top_k):
        before = time.perf_counter()
        layer.forward(pool, x.ctypes.data, tokens, ids.ctypes.data, weights.ctypes.data, top_k, y.ctypes.data)
        after = time.perf_counter()
        seconds.append(after - before)
        if after - started > _SECONDS and len(seconds) >= _FEWEST:
            break
    return seconds


def _turns(experts: int, tokens: int, top_k: int) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.int32]]]:
    first = 0
    while True:
        ids = (first + np.arange(tokens * top_k)).reshape(tokens, top_k) % experts
        yield np.ascontiguousarray(ids, np.int32)
        first += tokens * top_k
