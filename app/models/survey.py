"""Which models are here or could be, and what each would do on this PC. Runs in the background; knows no Qt."""

from __future__ import annotations

import hashlib
import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.engine_worker import DEMO
from app.language import mark, told, tr
from app.planning import plan_with
from app.words import file_name, licence_name, sentence
from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport
from engine.hub.catalogue import CatalogueDownload, CatalogueModel, catalogue
from engine.hub.credentials import token
from engine.hub.downloads import DownloadStatus
from engine.hub.headers import fetch_headers
from engine.hub.network import NetworkSettings
from engine.hub.repository import Hub, RemoteModel, Repository, choose
from engine.placement.plan import OffloadPlan
from engine.regular_files import open_to_read
from engine.units import size_text

if TYPE_CHECKING:
    from engine.checkpoints.checkpoint import Checkpoint

log = logging.getLogger(__name__)

DEMO_NAME = mark("Demo model")
DEMO_DETAIL = mark("Small demo model. It makes mistakes.")
DEMO_MISSING = mark("Small demo model. Downloads 93 MB the first time.")
DEMO_UNMADE = mark("Small demo model. Built when you first load it.")


@dataclass(frozen=True)
class ModelRow:
    """path: what `EngineHost.load` takes; for what is not here yet, a key of its own.

    plan: None until it is known, or for good when there is a problem
    checkpoint: where to look for headers; None while there is nothing to read yet
    own: lies in Greenroom's models folder, so that it can be deleted there
    entry, choice: of the catalogue, and which of its downloads the row is about
    download: how the model's download stands
    asked: the hub is being asked about its files
    repo: the hub's repository that the row is about
    place: in its section: "first", "middle", "last" or "only"
    """

    path: str
    name: str
    detail: str
    nbytes: int = 0
    plan: OffloadPlan | None = None
    problem: str | None = None
    checkpoint: Path | None = None
    own: bool = False
    licence: str = ""
    entry: CatalogueModel | None = None
    choice: CatalogueDownload | None = None
    download: DownloadStatus | None = None
    asked: bool = False
    repo: str = ""
    place: str = "only"

    @property
    def size(self) -> str:
        """With "~" where it is worked out from the model's shape, until the hub says it."""
        guessed = self.choice is not None and self.choice.nbytes is None and self.download is None
        return f"{'~' if guessed else ''}{size_text(self.nbytes)}"


@dataclass(frozen=True)
class Found:
    """The demo first, then what lies in the models folder, other programs' models, what was opened elsewhere.

    offers: the catalogue, in its own order
    """

    report: HardwareReport
    rows: list[ModelRow]
    offers: list[ModelRow]


def demo_is_here() -> bool:
    """Whether the demo model can be loaded, or put together, without a download."""
    from engine.hub.demo import demo_path, dense_path

    # Path.exists() raises where a folder above may not be searched; here that is a model that cannot be had.
    return os.path.exists(demo_path()) or os.path.exists(dense_path())


def find_models(api: Any, folder: Path | None, opened: Sequence[str]) -> Found:
    """folder: None for the program's own models folder. opened: paths from anywhere; missing ones are left out."""
    rows = find_here(folder, opened)
    return Found(api.probe(), rows, find_offers())


def find_here(folder: Path | None, opened: Sequence[str]) -> list[ModelRow]:
    """The rows of `Found`, for the same arguments."""
    from engine.hub.library import installed
    from engine.hub.other_programs import find

    rows = [_demo_row()]
    known = {identity(row.checkpoint) for row in rows if row.checkpoint is not None}
    for model in installed(folder):
        if identity(model.path) in known:
            continue
        path = Path(model.path)
        known.add(identity(path))
        detail = " · ".join(part for part in (model.form, model.architecture) if part)
        rows.append(
            ModelRow(
                str(path),
                file_name(path),
                detail,
                model.nbytes or _size(path),
                problem=None if model.reason is None else sentence(told(model.reason)),
                checkpoint=path,
                own=True,
            )
        )
    for other in find():
        if identity(other.path) not in known:
            known.add(identity(other.path))
            detail = tr("found in {program}, used in place", program=other.program)
            rows.append(ModelRow(str(other.path), other.name, detail, other.nbytes, checkpoint=other.path))
    for text in opened:
        path = Path(text)
        if identity(path) not in known and os.path.exists(path):
            known.add(identity(path))
            rows.append(
                ModelRow(
                    text,
                    file_name(path),
                    tr("opened from {parent}, used in place", parent=path.parent),
                    checkpoint=path,
                )
            )
    return _name_duplicates(rows)


def _name_duplicates(rows: list[ModelRow]) -> list[ModelRow]:
    """Says of files that lie here twice where the other one is."""
    first: dict[tuple[int, str], ModelRow] = {}
    by_size: dict[int, list[ModelRow]] = {}
    for row in rows:
        if row.checkpoint is not None and row.nbytes:
            by_size.setdefault(_size(row.checkpoint), []).append(row)
    alike = {row.path: size for size, group in by_size.items() if size and len(group) > 1 for row in group}
    named = []
    for row in rows:
        if row.path in alike and row.checkpoint is not None:
            same = first.setdefault((alike[row.path], fingerprint(row.checkpoint)), row)
            if same is not row:
                row = replace(row, detail=f"{row.detail} · {tr('same file as {name}', name=same.name)}")
        named.append(row)
    return named


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def fingerprint(path: Path, nbytes: int = 1 << 20) -> str:
    """Of the first and the last bytes of a file: enough to tell models of one size apart."""
    with open_to_read(path) as file:
        digest = hashlib.sha256(file.read(nbytes))
        file.seek(max(0, os.fstat(file.fileno()).st_size - nbytes))
        digest.update(file.read(nbytes))
    return digest.hexdigest()


def find_offers() -> list[ModelRow]:
    """The catalogue, in its own order, not planned yet."""
    try:
        return [_offer(entry, entry.downloads[0]) for entry in catalogue()]
    except GreenroomError as error:
        log.error("%s", error)
        return []


def _offer(entry: CatalogueModel, choice: CatalogueDownload) -> ModelRow:
    parts = (
        choice.label,
        entry.author,
        tr(
            "{params_total}, {params_active} active",
            params_total=billions(entry.params_total),
            params_active=billions(entry.params_active),
        ),
        licence_name(entry.licence),
    )
    key = f"catalogue:{entry.id}"
    return ModelRow(
        key, entry.name, " · ".join(parts), entry.nbytes(choice), licence=entry.licence, entry=entry, choice=choice
    )


def billions(count: int) -> str:
    """Weights as people say them: "30.5B", "671B", "135M"."""
    if count < 0.95e9:
        return f"{count / 1e6:.0f}M"
    return f"{count / 1e9:.0f}B" if count >= 99.5e9 else f"{count / 1e9:.1f}B".replace(".0B", "B")


def plan_offer(
    api: Any, row: ModelRow, report: HardwareReport, context: int | None, wishes: dict[str, Any]
) -> ModelRow:
    """The offer with the largest of its downloads, up to the usual one, that runs here; the usual one if none does."""
    entry = row.entry
    if entry is None:
        return row
    usual = entry.downloads[0]
    sizes = {download: entry.nbytes(download) for download in entry.downloads}
    memory = report.memory.total_bytes + sum(gpu.total_bytes for gpu in report.gpus if not gpu.integrated)
    order = sorted((d for d in entry.downloads if sizes[d] <= min(sizes[usual], memory)), key=lambda d: -sizes[d])
    first: ModelRow | None = None
    for choice in order if usual in order else [usual, *order]:
        planned = plan_choice(api, entry, choice, report, context, wishes)
        if planned.problem is not None or (planned.plan is not None and planned.plan.runnable):
            return planned
        first = first or planned
    return first or row


def plan_choice(
    api: Any,
    entry: CatalogueModel,
    choice: CatalogueDownload,
    report: HardwareReport,
    context: int | None,
    wishes: dict[str, Any],
) -> ModelRow:
    """The entry's offer with this of its downloads."""
    offer = _offer(entry, choice)
    try:
        return replace(offer, plan=plan_with(api, entry.checkpoint(choice.label), report, context, wishes))
    except GreenroomError as error:
        return replace(offer, problem=_problem(error))


def plan_choices(
    api: Any, entry: CatalogueModel, report: HardwareReport, context: int | None, wishes: dict[str, Any]
) -> list[tuple[CatalogueDownload, OffloadPlan | GreenroomError]]:
    """A plan, or why there is none, for each download of an entry."""
    planned: list[tuple[CatalogueDownload, OffloadPlan | GreenroomError]] = []
    for download in entry.downloads:
        try:
            checkpoint = entry.checkpoint(download.label)
            planned.append((download, plan_with(api, checkpoint, report, context, wishes)))
        except GreenroomError as error:
            planned.append((download, error))
    return planned


def _problem(error: GreenroomError) -> str:
    """Without what it is about, since that stands above it."""
    return f"{sentence(told(error.why))}. {told(error.remedy)}"


def _demo_row() -> ModelRow:
    from engine.hub.demo import demo_path

    try:
        path = demo_path()
    except GreenroomError as error:
        return ModelRow(DEMO, tr(DEMO_NAME), tr(DEMO_DETAIL), problem=f"{told(error.what)}. {told(error.remedy)}")
    if not os.path.exists(path):
        return ModelRow(DEMO, tr(DEMO_NAME), tr(DEMO_UNMADE if demo_is_here() else DEMO_MISSING))
    return ModelRow(DEMO, tr(DEMO_NAME), tr(DEMO_DETAIL), checkpoint=path)


def plan_model(
    api: Any, row: ModelRow, report: HardwareReport, context: int | None, wishes: dict[str, Any]
) -> ModelRow:
    """The row with its plan, or with the reason why there is none."""
    if row.checkpoint is None or row.problem is not None:
        return row
    try:
        checkpoint = api.open_checkpoint(row.checkpoint)
        try:
            plan = plan_with(api, checkpoint, report, context, wishes)
            detail = row.detail
            if row.path != DEMO:
                form = f"{checkpoint.form} · {checkpoint.architecture}"
                about = facts(checkpoint) or form
                if form in detail:
                    detail = detail.replace(form, about)
                elif about not in detail:  # planned before
                    detail = f"{about} · {detail}"
            return replace(row, detail=detail, nbytes=checkpoint.nbytes, plan=plan)
        finally:
            checkpoint.close()
    except GreenroomError as error:
        return replace(row, problem=_problem(error))


def facts(checkpoint: Checkpoint) -> str:
    """Author, weights and licence, as far as the header tells: "Qwen · 30.5B, 3.3B active · Apache-2.0"."""
    from engine.models import model_spec
    from engine.placement.sizes import active_expert_values, dense_values, take_inventory

    said = [_header_text(checkpoint, key) for key in ("general.organization", "general.base_model.0.organization")]
    author, licence = next(filter(None, said), ""), _header_text(checkpoint, "general.license")
    weights = ""
    try:
        spec = model_spec(checkpoint)
        inventory = take_inventory(spec, checkpoint)
        weights = billions(sum(math.prod(info.shape) for info in checkpoint.tensors.values()))
        if spec.is_moe:
            weights += tr(", {value} active", value=billions(dense_values(inventory) + active_expert_values(inventory)))
    except GreenroomError as error:
        log.info("%s is not described: %s", checkpoint.name, error)
    return " · ".join(filter(None, (author, weights, licence_name(licence))))


def _header_text(checkpoint: Checkpoint, key: str) -> str:
    value = checkpoint.config.get(key)
    return value[:40] if isinstance(value, str) and value.isprintable() else ""


def identity(path: Path) -> str:
    return str(path.resolve())


def search_hub(settings: NetworkSettings, text: str) -> list[ModelRow]:
    """Repositories of the hub that match; their models are listed when one is opened."""
    hits = Hub(settings, token()).search(text)
    return [
        ModelRow(
            f"hub:{hit.repo}",
            hit.repo.partition("/")[2],
            " · ".join(
                part
                for part in (
                    hit.repo.partition("/")[0],
                    licence_name(hit.licence),
                    tr("%n downloads", n=hit.downloads),
                    tr("accept terms first") if hit.gated else "",
                )
                if part
            ),
            licence=hit.licence,
            repo=hit.repo,
        )
        for hit in hits
    ]


def find_remote(settings: NetworkSettings, choice: CatalogueDownload) -> RemoteModel:
    """The catalogue's download as the hub has it now."""
    return choose(Hub(settings, token()).repository(choice.repo), choice.label)


def list_repository(settings: NetworkSettings, repo: str) -> Repository:
    return Hub(settings, token()).repository(repo)


def plan_remote(
    api: Any,
    settings: NetworkSettings,
    model: RemoteModel,
    report: HardwareReport | None,
    context: int | None,
    wishes: dict[str, Any],
) -> OffloadPlan:
    """The exact plan of a model that is not here, from its header alone."""
    checkpoint = api.open_checkpoint(fetch_headers(model, settings, token()))
    try:
        return plan_with(api, checkpoint, report or api.probe(), context, wishes)
    finally:
        checkpoint.close()
