"""How fast a loaded model is, beside the memory bandwidth that bounds it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import psutil

from engine import _native
from engine.checkpoints.checkpoint import Checkpoint
from engine.errors import GreenroomError
from engine.models.spec import ModelSpec
from engine.placement.plan import OffloadPlan
from engine.placement.sizes import Shapes, take_inventory
from engine.progress import Progress, ProgressCallback, ignore_progress
from engine.runtime.engine import Engine, load
from engine.status import EngineStatus

_log = logging.getLogger(__name__)

#: Larger than any last-level cache of one socket; less than the smallest would measure the caches.
_BUFFER_BYTES = 768 << 20
_SMALLEST_BUFFER_BYTES = 128 << 20
#: Tokens decoded before anything is timed.
_WARM_UP = 4


@dataclass(frozen=True)
class BenchResult:
    """Medians over the repeats.

    decode_tps:         with n_prompt tokens in the KV cache at the start
    decode_gbs:         GB/s of weights, counted as the file stores them: `Active.decode_bytes` x decode_tps
    read_bandwidth_gbs: of a plain read loop with as many threads, between the timed runs; None if RAM is too short
    bandwidth_share:    decode_gbs / read_bandwidth_gbs
    handover_ns:        one way between two threads; under 100 they share a cache and its port to memory. None with one
    prefill_gops:       1e9 multiplications and additions of the weight matrices per second (attention scores left out)
    decode_tps_range, prefill_tps_range: smallest and largest
    status:             the path in use, with hits and bytes of these runs alone
    """

    threads: int
    n_prompt: int
    n_gen: int
    repeats: int
    kernel: str
    prefill_tps: float
    decode_tps: float
    decode_gbs: float
    read_bandwidth_gbs: float | None
    bandwidth_share: float | None
    handover_ns: float | None
    prefill_gops: float
    prefill_tps_range: tuple[float, float]
    decode_tps_range: tuple[float, float]
    status: EngineStatus = field(default_factory=EngineStatus)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "status": self.status.to_json()}


@dataclass(frozen=True)
class Active:
    """What one token touches.

    decode_bytes: bytes of all weights as stored, of the routed experts top_k out of all; the embedding is one row and
                  does not count, the output head (which may be the same tensor) does
    body_weights, head_weights: numbers multiplied, without and of the output head
    """

    decode_bytes: float
    body_weights: float
    head_weights: int


def active(checkpoint: Checkpoint, spec: ModelSpec) -> Active:
    """What one token of this model touches, from the headers."""
    inventory = take_inventory(spec, checkpoint)
    # (share of its weights a token uses, shapes); a tied output head appears here as lm_head too.
    parts = [(1.0, shapes) for role, shapes in inventory.roles.items() if role != "embeddings"]
    parts += [(moe.top_k / moe.experts, shapes) for moe, shapes in inventory.experts]

    def count(shapes: Shapes) -> int:
        return sum(n * shape.values for shape, n in shapes.items() if shape.rows)

    head = count(inventory.roles["lm_head"])
    return Active(
        decode_bytes=sum(share * n * shape.stored_bytes for share, shapes in parts for shape, n in shapes.items()),
        body_weights=sum(share * count(shapes) for share, shapes in parts) - head,
        head_weights=head,
    )


def bench(
    checkpoint: Checkpoint,
    plan: OffloadPlan,
    prompt_lengths: Sequence[int],
    gen_lengths: Sequence[int],
    threads: Sequence[int],
    repeats: int = 3,
    progress: ProgressCallback = ignore_progress,
    load: Callable[[Checkpoint, OffloadPlan, ProgressCallback], Engine] = load,
) -> list[BenchResult]:
    """Every combination of threads, prompt length and answer length; the model is loaded once per thread count.

    Raises GreenroomError when a combination does not fit the plan's context, and what `load` raises.
    """
    longest = max(prompt_lengths) + max(gen_lengths)
    if min(*prompt_lengths, *gen_lengths, *threads, repeats) < 1:
        raise GreenroomError("The benchmark cannot run", "a length, thread or repeat count is below 1", "Correct it.")
    if longest > plan.context:
        raise GreenroomError(
            "The benchmark cannot run",
            f"prompt and answer have {longest} tokens together and the context holds {plan.context}",
            "Choose shorter lengths or a longer context.",
        )
    results = []
    for count in threads:
        with load(checkpoint, replace(plan, threads=count), progress) as engine:
            touched = active(checkpoint, engine.spec)
            results += [
                _measure(engine, count, n_prompt, n_gen, repeats, touched, progress)
                for n_prompt in prompt_lengths
                for n_gen in gen_lengths
            ]
    return results


def _measure(
    engine: Engine, threads: int, n_prompt: int, n_gen: int, repeats: int, touched: Active, progress: ProgressCallback
) -> BenchResult:
    # Random tokens choose varied experts; the same ones in every run.
    tokens = np.random.default_rng(0).integers(0, engine.spec.vocab, n_prompt + n_gen).tolist()
    prompt, answer = tokens[:n_prompt], tokens[n_prompt:]
    _timed(engine, prompt, answer[:_WARM_UP])
    before = engine.status()
    runs, bandwidths = [], []
    handovers: list[float] = []
    for repeat in range(repeats):
        what = f"{threads} threads, {n_prompt} + {n_gen} tokens, run {repeat + 1} of {repeats}"
        progress(Progress(repeat, repeats, what))
        # In turn with the runs, so that a busy moment of the machine shows in both.
        rates, handover = _ceilings(threads)
        bandwidths += rates
        handovers += handover
        runs.append(_timed(engine, prompt, answer))
    progress(Progress(repeats, repeats, "Measured"))
    prefills = [n_prompt / prefill_s for prefill_s, _ in runs]
    decodes = [n_gen / decode_s for _, decode_s in runs]
    _log.info("bench: threads %d, prefill %s, decode %s, read %s", threads, prefills, decodes, bandwidths)
    decode_gbs = touched.decode_bytes * median(decodes) / 1e9
    read_gbs = median(bandwidths) / 1e9 if bandwidths else None
    # Only the prompt's last token goes through the output head.
    operations = 2 * (touched.body_weights + touched.head_weights / n_prompt)
    return BenchResult(
        threads=threads,
        n_prompt=n_prompt,
        n_gen=n_gen,
        repeats=repeats,
        kernel=engine.kernel,
        prefill_tps=median(prefills),
        decode_tps=median(decodes),
        decode_gbs=decode_gbs,
        read_bandwidth_gbs=read_gbs,
        bandwidth_share=decode_gbs / read_gbs if read_gbs else None,
        handover_ns=median(handovers) * 1e9 if handovers else None,
        prefill_gops=operations * median(prefills) / 1e9,
        prefill_tps_range=(min(prefills), max(prefills)),
        decode_tps_range=(min(decodes), max(decodes)),
        status=engine.status().since(before),
    )


def _timed(engine: Engine, prompt: Sequence[int], answer: Sequence[int]) -> tuple[float, float]:
    """Seconds for reading the prompt and for the answer, token by token."""
    engine.reset()
    start = perf_counter()
    engine.append(prompt)
    middle = perf_counter()
    for token in answer:
        engine.append([token])
    return middle - start, perf_counter() - middle


def _ceilings(threads: int) -> tuple[list[float], list[float]]:
    """Bytes per second, a figure per read, and seconds of a handover; empty when there is too little RAM or one thread.

    A smaller buffer would measure the caches.
    """
    nbytes = min(_BUFFER_BYTES, psutil.virtual_memory().available // 4)
    pool = _native.ThreadPool(threads)
    try:
        handover = _native.handover_seconds(pool)
        rates = _native.read_bandwidth(pool, nbytes, 3) if nbytes >= _SMALLEST_BUFFER_BYTES else []
        return rates, [] if handover is None else [handover]
    finally:
        pool.close()
