"""An engine without a model: every step waits for the test to let it go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from engine.checkpoints.chat_template import ChatTemplate
from engine.errors import GreenroomError
from engine.hardware.report import (
    CpuReport,
    DiskReport,
    GpuReport,
    HardwareReport,
    Isa,
    Kernels,
    MemoryReport,
)
from engine.hub.catalogue import catalogue
from engine.placement.plan import LABELS, OffloadPlan, PlanBytes, Prediction, Range
from engine.placement.recommend import Recommendation, Recommendations, Unsuited
from engine.progress import Progress, ProgressCallback
from engine.runtime.events import Begun, GenerationEvent, GenerationStats, Message, SamplingParams
from engine.status import EngineStatus, ExpertUsage

#: Longest a fake waits for its test, in seconds.
PATIENCE = 20.0


def make_report(**changes: Any) -> HardwareReport:
    cpu = CpuReport(
        "AMD Ryzen 7 9700X 8-Core Processor",
        "AuthenticAMD",
        8,
        16,
        16,
        Isa(["avx2", "avx512f", "avx512vnni"], ["avx2", "avx512f", "avx512vnni"]),
        Kernels("avx512vnni", "avx512vnni", "avx512"),
    )
    values: dict[str, Any] = {
        "cpu": cpu,
        "memory": MemoryReport(64_000_000_000, 51_200_000_000),
        "gpus": [GpuReport("NVIDIA GeForce RTX 4070", "NVIDIA", 12_000_000_000, 11_300_000_000, False, "570.1")],
        "numa": [],
        "disk": DiskReport("/home", 412_000_000_000, 1_000_000_000_000),
        "os": {"system": "Linux", "release": "6.8", "python": "3.11.7"},
        "warnings": [],
    }
    return HardwareReport(**(values | changes))


def make_plan(mode: str = "hybrid", label: str | None = None, context: int = 8192, threads: int = 8) -> OffloadPlan:
    vram = 4_100_000_000 if mode in ("hybrid", "all_gpu") else 0
    return OffloadPlan(
        mode=mode,
        label=label or LABELS[mode],
        device="cuda:0" if vram else "cpu",
        context=context,
        threads=threads,
        dense_dtype="bfloat16",
        kv_type="bf16",
        experts="stored",
        isa=None,
        bytes=PlanBytes(
            {"experts": 17_200_000_000, "buffers": 300_000_000},
            {"attention": 3_000_000_000, "kv_cache": 1_100_000_000} if vram else {},
            17_500_000_000,
            vram,
        ),
        prediction=Prediction(
            Range(49, 57, 66),
            Range(400, 500, 640),
            "Limited by RAM bandwidth: 1.02 GB of experts per token at 52 GB/s.",
        ),
        explanation=[
            "Experts take 17.2 GB in RAM; attention, shared experts, the KV cache for 8192 tokens and buffers "
            "take 4.1 GB on the GPU.",
            "22.3 GB of RAM is free, 2 GB is kept back for the system.",
        ],
    )


class FakeCheckpoint:
    form = "gguf"
    architecture = "qwen3moe"
    nbytes = 18_600_000_000
    tensors: ClassVar[dict[str, object]] = {}
    config: ClassVar[dict[str, object]] = {
        "general.organization": "Qwen",
        "general.license": "apache-2.0",
        "general.sampling.top_k": 20,
    }
    template = "{{ messages[0].content }}{% if enable_thinking is false %}<think></think>{% endif %}"

    def __init__(self, path: str | Path, name: str | None = None) -> None:
        self.path = Path(path)
        self.name = name or self.path.stem
        self.closed = False

    def chat_template(self) -> ChatTemplate:
        return ChatTemplate(self.template)

    def once(self, key: object, work_out: Callable[[], Any]) -> Any:
        return work_out()

    def close(self) -> None:
        self.closed = True


class FakeEngine:
    """Writes `words` one a step; with `gate` each step waits for one `release()`."""

    kernel = "int4 avx512vnni, 8 threads"

    def __init__(self, words: Sequence[str], gate: threading.Semaphore | None, fail_after: int | None) -> None:
        self.words, self.gate, self.fail_after = list(words), gate, fail_after
        self.closed = False
        #: Whether a failure leaves a model that can answer.
        self.survives = True
        self.loaded = True
        self.stepped_down: tuple[str, ...] = ()
        self.steps = 0
        self.asked: list[tuple[list[Message], SamplingParams]] = []
        #: (thinking, begun) of every `generate`
        self.wished: list[tuple[str | None, Begun | None]] = []
        self.counted: list[str | Sequence[Message]] = []

    def usage(self) -> ExpertUsage | None:
        return ExpertUsage.of({0: np.array([self.steps, 0], np.uint32)})

    def status(self) -> EngineStatus:
        return EngineStatus(kernel=self.kernel, path="hybrid", stepped_down=self.stepped_down)

    def count_tokens(self, prompt: str | Sequence[Message], thinking: str | None = None) -> int:
        self.counted.append(prompt)
        texts = [prompt] if isinstance(prompt, str) else [message.content for message in prompt]
        if any("refused" in text for text in texts):
            raise GreenroomError("The model's chat template cannot write this conversation", "it refuses", "Change it.")
        return sum(len(text.split()) for text in texts)

    def generate(
        self,
        messages: Sequence[Message],
        params: SamplingParams,
        cancel: threading.Event,
        thinking: str | None = None,
        begun: Begun | None = None,
    ) -> Iterator[GenerationEvent]:
        self.asked.append((list(messages), params))
        self.wished.append((thinking, begun))
        for number, word in enumerate(self.words, 1):
            if self.gate is not None:
                while not cancel.is_set() and not self.gate.acquire(timeout=0.01):
                    pass
            stats = GenerationStats(
                prompt_tokens=12,
                completion_tokens=number,
                first_token_s=0.2,
                prefill_s=0.2,
                prefill_tps=60.0,
                decode_tps=42.0 if number > 1 else 0.0,
            )
            if cancel.is_set():
                yield GenerationEvent("", (), stats, "cancelled")
                return
            if self.fail_after is not None and number > self.fail_after:
                self.loaded = self.survives
                raise GreenroomError("The answer was interrupted", "memory ran out", "Use a shorter context.")
            self.steps += 1
            last = number == len(self.words)
            yield GenerationEvent(word, (number,), stats, "end" if last else None)

    def cancel(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class FakeApi:
    """Stands in for the `engine` package. Attributes set before a call decide what it does."""

    def __init__(self) -> None:
        self.report = make_report()
        self.mode = "hybrid"
        self.label: str | None = None
        self.speed: Range | None = None
        self.words = ["Hello", ", ", "world", "."]
        self.gate: threading.Semaphore | None = None
        self.fail_after: int | None = None
        self.open_error: Exception | None = None
        self.load_error: Exception | None = None
        #: When set, loading reports progress until the event is set or it is cancelled.
        self.hold_load: threading.Event | None = None
        self.loading = threading.Event()
        self.checkpoints: list[FakeCheckpoint] = []
        self.engines: list[FakeEngine] = []
        self.plans: list[tuple[int | None, dict[str, Any]]] = []
        self.threads: set[str] = set()
        self.names: dict[str, str] = {}
        self.learnt: list[tuple[FakeCheckpoint, OffloadPlan, GenerationStats]] = []

    def probe(
        self, found: Callable[[str, HardwareReport], None] | None = None, *, present: bool = False
    ) -> HardwareReport:
        for field in ("disk", "memory", "cpu", "gpus") if found is not None else ():
            found(field, self.report)
        return self.report

    def open_checkpoint(self, path: str | Path) -> FakeCheckpoint:
        self.threads.add(threading.current_thread().name)
        if self.open_error is not None:
            raise self.open_error
        checkpoint = FakeCheckpoint(path, self.names.get(str(path)))
        self.checkpoints.append(checkpoint)
        return checkpoint

    def plan(
        self, checkpoint: FakeCheckpoint, report: HardwareReport, context: int | None = None, **wishes: Any
    ) -> OffloadPlan:
        self.plans.append((context, wishes))
        plan = make_plan(self.mode, self.label, context or 8192)
        if self.speed is not None:
            plan = replace(plan, prediction=replace(plan.prediction, decode_tps=self.speed))
        return plan

    def learn(
        self,
        checkpoint: FakeCheckpoint,
        report: HardwareReport,
        plan: OffloadPlan,
        stats: GenerationStats,
        others: float = 0.0,
    ) -> bool:
        self.learnt.append((checkpoint, plan, stats))
        return True

    def recommend(self, report: HardwareReport, **wishes: Any) -> Recommendations:
        ranked, unsuited = [], []
        for model in catalogue():
            choice, plan = model.downloads[0], make_plan(self.mode, self.label)
            nbytes = model.nbytes(choice)
            if plan.runnable and nbytes <= report.disk.free_bytes:
                reasons = (f"Good at {model.good_at}.",)
                ranked.append(
                    Recommendation(model.id, model.name, choice.repo, choice.label, nbytes, 0.0, plan, reasons)
                )
            else:
                unsuited.append(Unsuited(model.id, model.name, plan.label))
        return Recommendations(tuple(ranked), tuple(unsuited))

    def load(self, checkpoint: FakeCheckpoint, plan: OffloadPlan, progress: ProgressCallback) -> FakeEngine:
        self.loading.set()
        if self.hold_load is not None:
            for _ in range(int(PATIENCE / 0.01)):
                progress(Progress(31, 48, "Reading experts of layer 31 of 48, 1.9 GB/s, 9 s left"))
                if self.hold_load.wait(0.01):
                    break
        if self.load_error is not None:
            raise self.load_error
        engine = FakeEngine(self.words, self.gate, self.fail_after)
        self.engines.append(engine)
        return engine
