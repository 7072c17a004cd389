"""What is compared and what comes of it. Runs in the background; knows no Qt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.language import told, tr
from app.words import expected
from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport
from engine.hub.catalogue import CatalogueModel, catalogue
from engine.hub.described import described, references
from engine.placement.compare import Comparison, Machine, Use, compare, other_machine
from engine.units import size_up
from engine.words import say

GB = 1_000_000_000
RUNNABLE = ("all_gpu", "hybrid", "cpu")


@dataclass(frozen=True)
class Entry:
    """A machine that is compared: this PC where nothing else is said.

    ram, vram: GB; cpu, gpu: names as sold; price: to buy it, price_per_hour: to rent it, in whatever currency
    """

    ram: int | None = None
    vram: int | None = None
    cpu: str = ""
    gpu: str = ""
    price: float | None = None
    price_per_hour: float | None = None

    @property
    def is_this_pc(self) -> bool:
        return self.ram is None and self.vram is None and not self.cpu and not self.gpu

    def machine(self, here: HardwareReport) -> Machine:
        """Raises GreenroomError for a part that nobody knows."""
        return other_machine(
            here,
            name=tr("This PC") if self.is_this_pc else None,
            ram=None if self.ram is None else self.ram * GB,
            vram=None if self.vram is None else self.vram * GB,
            cpu=self.cpu or None,
            gpu=self.gpu or None,
            price=self.price,
            price_per_hour=self.price_per_hour,
        )


def models() -> tuple[CatalogueModel, ...]:
    """The catalogue's, then those that are only planned."""
    return (*catalogue(), *references())


def compared(
    here: HardwareReport, model: str, context: int | None, entries: Sequence[Entry], use: Use
) -> list[Comparison]:
    """A row per entry, in their order. model: as `described` takes it.

    Raises GreenroomError for a model that is not known and for a context beyond what it was made for.
    """
    checkpoint = described(model)
    if checkpoint is None:
        raise GreenroomError(
            say('The model "{model}" was not found', model=model),
            say("it is not in the catalogue"),
            say("Choose another model."),
        )
    return compare(checkpoint, [entry.machine(here) for entry in entries], context, use)


def speed(row: Comparison) -> str:
    """ "about 12 tok/s (8 to 16)", or a dash where it does not run."""
    return expected(row.decode_tps) if row.mode in RUNNABLE else "–"


def cost(row: Comparison) -> str:
    """Per million tokens; "" where no price is known."""
    found = row.cost_per_million
    return "" if found is None else tr("{likely} ({low} to {high})", **_money(found.low, found.likely, found.high))


def _money(low: float, likely: float, high: float) -> dict[str, str]:
    return {name: f"{value:,.2f}" for name, value in (("low", low), ("likely", likely), ("high", high))}


def place(row: Comparison) -> str:
    """The plan's label, of a machine that need not be this PC."""
    return tr("Too large") if row.mode == "too_large" else told(row.label)


def amounts(row: Comparison) -> list[str]:
    """What the model takes there, or would."""
    found = [tr("{amount} RAM", amount=size_up(row.ram_bytes))]
    if row.vram_bytes:
        found.append(tr("{amount} VRAM", amount=size_up(row.vram_bytes)))
    if row.mode not in RUNNABLE:
        found[0] = tr("needs {amount}", amount=found[0])
    return found


def in_words(rows: Sequence[Comparison]) -> str:
    """One line per machine, for screen readers."""
    lines = []
    for row in rows:
        line = ", ".join((f"{row.name}: {place(row)}", speed(row), *amounts(row)))
        if row.cost_per_million is not None:
            line += ", " + tr("{cost} per million tokens", cost=cost(row))
        lines.append(line)
    return "\n".join(lines)
