"""One model on several machines side by side: where it lives there, how fast it is, what a million tokens cost."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.checkpoints.checkpoint import Checkpoint
from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport
from engine.placement.alternatives import RUNNABLE
from engine.placement.machines import GB, what_if
from engine.placement.plan import Range
from engine.placement.planner import plan
from engine.words import say

#: A table that still can be read.
MOST_MACHINES = 64
_MOST_BYTES = 1 << 20
DAYS_PER_YEAR = 365


@dataclass(frozen=True)
class Machine:
    """price_per_hour: of a rented one; price: of one that is bought. In whatever currency, None = not known."""

    name: str
    report: HardwareReport
    price_per_hour: float | None = None
    price: float | None = None


@dataclass(frozen=True)
class Use:
    """How long and how much of the day a bought machine answers. Electricity is not counted."""

    years: float = 3.0
    hours_per_day: float = 8.0

    def per_hour(self, price: float) -> float:
        return price / (self.years * DAYS_PER_YEAR * self.hours_per_day)


@dataclass(frozen=True)
class Comparison:
    """One machine's row. ram_bytes and vram_bytes: what the model takes; cost: per million tokens of answer."""

    name: str
    mode: str
    label: str
    ram_bytes: int
    vram_bytes: int
    decode_tps: Range
    prefill_tps: Range
    bottleneck: str
    cost_per_million: Range | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


USE = Use()


def compare(
    checkpoint: Checkpoint, machines: Sequence[Machine], context: int | None = None, use: Use = USE, **wishes: Any
) -> list[Comparison]:
    """A row per machine, in their order. wishes: as for `plan`.

    Raises GreenroomError as `plan` does.
    """
    rows = []
    for machine in machines:
        made = plan(checkpoint, machine.report, context, **wishes)
        decode = made.prediction.decode_tps
        hourly = _hourly(machine, use)
        cost = None
        if hourly is not None and made.runnable:
            # The slowest answers are the dearest.
            dear, likely, cheap = (hourly / (speed * 3600) * 1e6 for speed in (decode.low, decode.likely, decode.high))
            cost = Range(cheap, likely, dear)
        rows.append(
            Comparison(
                name=machine.name,
                mode=made.mode,
                label=made.label,
                ram_bytes=made.bytes.ram_total,
                vram_bytes=made.bytes.vram_total,
                decode_tps=decode,
                prefill_tps=made.prediction.prefill_tps,
                bottleneck=made.prediction.bottleneck,
                cost_per_million=cost,
            )
        )
    return rows


def _hourly(machine: Machine, use: Use) -> float | None:
    parts = [machine.price_per_hour, None if machine.price is None else use.per_hour(machine.price)]
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def to_csv(rows: Sequence[Comparison]) -> str:
    """With a header; amounts in GB, speeds in tokens per second, empty where the model does not fit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    ranges = ("decode_tps", "prefill_tps", "cost_per_million")
    bounds = [f"{name}_{bound}" for name in ranges for bound in ("low", "likely", "high")]
    writer.writerow(["machine", "mode", "label", "ram_gb", "vram_gb", *bounds, "bottleneck"])
    for row in rows:
        figures: list[str] = []
        for name in ranges:
            found: Range | None = getattr(row, name) if row.mode in RUNNABLE else None
            figures += ["", "", ""] if found is None else [f"{v:.4g}" for v in (found.low, found.likely, found.high)]
        amounts = [f"{nbytes / GB:.1f}" for nbytes in (row.ram_bytes, row.vram_bytes)]
        limit = row.bottleneck if row.mode in RUNNABLE else ""
        writer.writerow([_cell(row.name), row.mode, row.label, *amounts, *figures, limit])
    return text.getvalue()


def _cell(text: str) -> str:
    """A name that a spreadsheet would compute gets the sign that it is text."""
    return f"'{text}" if text.lstrip()[:1] in ("=", "+", "-", "@") else text


#: Keys of a machine in a file, with the type of their value.
KEYS: dict[str, type] = {
    "name": str,
    "cpu": str,
    "sockets": int,
    "cores": int,
    "ram_gb": float,
    "ram_bandwidth_gbs": float,
    "gpu": str,
    "vram_gb": float,
    "price_per_hour": float,
    "price": float,
}


def read_machines(content: bytes, where: str, here: HardwareReport) -> list[Machine]:
    """A JSON list of objects with the keys of KEYS; what one leaves out is as in this PC.

    Raises GreenroomError, with the machine that is wrong.
    """
    what = say("{where} is no list of machines", where=where)
    example = say('Write for example [{"name": "Server", "cpu": "2x EPYC 9355", "ram_gb": 768, "gpu": "RTX 5090"}].')
    try:
        if len(content) > _MOST_BYTES:
            raise GreenroomError(what, say("it is larger than 1 MB"), example)
        entries = json.loads(content)
    except json.JSONDecodeError as error:
        why = say("its line {line}, column {column} is not JSON", line=error.lineno, column=error.colno)
        raise GreenroomError(what, why if content.strip() else say("it is empty"), example) from error
    except UnicodeDecodeError as error:
        raise GreenroomError(what, say("it is not text in UTF-8"), example) from error
    except (ValueError, RecursionError) as error:
        raise GreenroomError(what, say("its numbers or lists are too long to be read"), example) from error
    if not isinstance(entries, list) or not 0 < len(entries) <= MOST_MACHINES:
        raise GreenroomError(
            what, say("it is not a list of 1 to {most_machines}", most_machines=MOST_MACHINES), example
        )
    return [_machine(entry, number, what, here) for number, entry in enumerate(entries, 1)]


def _machine(entry: Any, number: int, what: str, here: HardwareReport) -> Machine:
    def refuse(why: str) -> GreenroomError:
        return GreenroomError(
            what,
            say("machine {number}: {why}", number=number, why=why),
            say("Known keys are {keys}.", keys=", ".join(KEYS)),
        )

    if not isinstance(entry, dict):
        raise refuse(say("it is not an object"))
    for key, value in entry.items():
        if key not in KEYS:
            raise refuse(say('"{key}" is not known', key=key))
        if KEYS[key] is str:
            good = isinstance(value, str) and 0 < len(value) <= 100 and value.isprintable()
        else:
            whole = isinstance(value, int) or (KEYS[key] is float and isinstance(value, float))
            good = whole and not isinstance(value, bool) and 0 <= value < 1e12 and math.isfinite(value)
        if not good:
            raise refuse(say('"{key}" cannot be {value!r}', key=key, value=str(value)[:40]))
    return other_machine(
        here,
        name=entry.get("name"),
        cpu=entry.get("cpu"),
        sockets=entry.get("sockets"),
        cores=entry.get("cores"),
        ram=_bytes(entry.get("ram_gb")),
        ram_bandwidth=entry.get("ram_bandwidth_gbs"),
        gpu=entry.get("gpu"),
        vram=_bytes(entry.get("vram_gb")),
        price_per_hour=entry.get("price_per_hour"),
        price=entry.get("price"),
    )


def _bytes(gigabytes: float | None) -> int | None:
    return None if gigabytes is None else round(gigabytes * GB)


def other_machine(
    here: HardwareReport,
    *,
    name: str | None = None,
    cpu: str | None = None,
    sockets: int | None = None,
    cores: int | None = None,
    ram: int | None = None,
    ram_bandwidth: float | None = None,
    gpu: str | None = None,
    vram: int | None = None,
    price_per_hour: float | None = None,
    price: float | None = None,
) -> Machine:
    """This PC with other parts (see `what_if`), named by them where it has no name."""
    report = what_if(
        here, ram=ram, vram=vram, ram_bandwidth=ram_bandwidth, cpu=cpu, gpu=gpu, threads=cores, sockets=sockets
    )
    parts = [
        f"{sockets}x {cpu}" if cpu and sockets else cpu,
        f"{ram / GB:g} GB RAM" if ram is not None else None,
        f"{ram_bandwidth:g} GB/s" if ram_bandwidth is not None else None,
        gpu,
        ("no GPU" if vram == 0 else f"{vram / GB:g} GB VRAM") if vram is not None else None,
    ]
    described = ", ".join(part for part in parts if part)
    return Machine(name or described or "This PC", report, price_per_hour, price)
