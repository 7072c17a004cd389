"""The benchmark card: a measured speed with everything that it depends on. As text here, as a picture in card_picture.

A speed without its machine predicts nothing, so a card carries the whole machine; it never carries who owns it.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.chat.speed.figures import seconds
from app.chat.speed.performance import Measured
from app.hardware.checks import plain_name
from app.language import told, tr
from app.words import rate, rate_range
from engine import __version__
from engine.hardware.report import CpuReport, HardwareReport
from engine.placement.plan import OffloadPlan
from engine.units import size_text, size_up

#: Instruction sets that matter for speed, by their names in a report.
_SETS = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512vnni": "VNNI",
    "avx512bf16": "BF16",
    "avxvnni": "AVX-VNNI",
    "amx": "AMX",
    "amx_int8": "AMX",
}


@dataclass(frozen=True)
class Figure:
    """A measured speed. value: "58.3", "" while unknown; note: what it was measured on; predicted: "49 to 66" or ""."""

    name: str
    value: str
    note: str
    predicted: str = ""


@dataclass(frozen=True)
class Card:
    """title: the model by the name of its file, which says the quantisation; rows: (what, value)"""

    title: str
    plan: str
    figures: tuple[Figure, ...]
    rows: tuple[tuple[str, str], ...]
    foot: str

    @property
    def text(self) -> str:
        """A few lines to paste into a message."""
        lines = [f"{self.title} · {self.plan}"]
        for figure in self.figures:
            predicted = f" · {tr('predicted {range}', range=figure.predicted)}" if figure.predicted else ""
            lines.append(f"{figure.name}: {figure.value or '–'} tok/s ({figure.note}){predicted}")
        lines += [f"{what}: {value}" for what, value in self.rows]
        return "\n".join([*lines, self.foot]) + "\n"


def make_card(measured: Measured) -> Card | None:
    """The card of an answer; None for one that says nothing: without a plan, a machine or a single token."""
    plan, machine, stats = measured.state.plan, measured.state.hardware, measured.stats
    if plan is None or machine is None or not stats.completion_tokens:
        return None
    prediction = plan.prediction
    read = stats.prompt_tokens - stats.reused_tokens
    figures = (
        Figure(
            tr("Decode"),
            rate(stats.decode_tps) if stats.decode_tps else "",
            tr("%n tokens written", n=stats.completion_tokens),
            rate_range(prediction.decode_tps),
        ),
        Figure(
            tr("Prefill"),
            rate(stats.prefill_tps) if stats.prefill_tps else "",
            tr("%n tokens read, first token after {time}", n=read, time=seconds(stats.first_token_s)),
            rate_range(prediction.prefill_tps),
        ),
    )
    system = machine.os.get("name") or machine.os.get("system", "")
    foot = f"Greenroom {__version__}" + (f" · {system}" if system else "")
    return Card(measured.state.model_name, told(plan.label), figures, tuple(_rows(measured, plan, machine)), foot)


def _rows(measured: Measured, plan: OffloadPlan, machine: HardwareReport) -> list[tuple[str, str]]:
    rows = [(tr("CPU"), _processor(machine.cpu, plan)), (tr("Memory"), _memory(measured, machine))]
    for gpu in machine.gpus:
        if not gpu.integrated:
            driver = tr("driver {version}", version=gpu.driver) if gpu.driver else ""
            used = "" if plan.bytes.vram_total else tr("not used")
            rows.append((tr("GPU"), _joined(gpu.name, size_text(gpu.total_bytes), driver, used)))
    context = tr("%n tokens of context", n=plan.context)
    memory = tr("{size} of RAM", size=size_up(plan.bytes.ram_total))
    video = tr("{size} of VRAM", size=size_up(plan.bytes.vram_total)) if plan.bytes.vram_total else ""
    rows.append((tr("Plan"), _joined(context, tr("KV cache {type}", type=plan.kv_type), memory, video)))
    if measured.state.kernel:
        rows.append((tr("Kernel"), told(measured.state.kernel)))
    used, share = measured.decode_gbs, measured.bandwidth_share
    if used is not None:
        text = tr("{speed} GB/s of weights", speed=f"{used:.1f}")
        rows.append((tr("Bandwidth"), text if share is None else _joined(text, _share(share))))
    return rows


def _processor(cpu: CpuReport, plan: OffloadPlan) -> str:
    sets = list(dict.fromkeys(word for name, word in _SETS.items() if name in cpu.isa.usable))
    threads, cores = tr("%n threads", n=plan.threads), tr("%n cores", n=cpu.physical_cores)
    cores = tr("{threads} on {cores}", threads=threads, cores=cores)
    return _joined(plain_name(cpu.name), cores, " ".join(sets))


def _memory(measured: Measured, machine: HardwareReport) -> str:
    memory = machine.memory
    kind = f"{memory.kind}-{memory.speed_mts}" if memory.kind and memory.speed_mts else memory.kind
    speed = measured.read_gbs
    bandwidth = tr("{speed} GB/s measured", speed=f"{speed:.1f}") if speed else tr("speed not measured")
    return _joined(size_text(memory.total_bytes), kind, bandwidth)


def _share(share: float) -> str:
    return tr("{percent} % of RAM speed", percent=f"{share * 100:.0f}")


def _joined(*parts: str) -> str:
    return " · ".join(part for part in parts if part)
