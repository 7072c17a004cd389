"""Which models are here and what each would do on this PC. Runs in the background; knows nothing of Qt."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.engine_worker import DEMO
from app.planning import plan_with
from app.words import file_name, sentence
from engine.errors import GreenroomError
from engine.hardware.report import HardwareReport
from engine.placement.plan import OffloadPlan

log = logging.getLogger(__name__)

DEMO_NAME = "Demo model"
DEMO_DETAIL = "A small demonstration model with 135 million parameters. It shows how Greenroom works, and errs often."
DEMO_MISSING = "Not here yet. Loading it puts it together once, from a download of 93 MB."
DEMO_UNMADE = "Loading it puts it together once, from what is here already."


@dataclass(frozen=True)
class ModelRow:
    """path: what `EngineHost.load` takes. plan: None until it is known, or for good when there is a problem."""

    path: str
    name: str
    detail: str
    nbytes: int = 0
    plan: OffloadPlan | None = None
    problem: str | None = None
    #: Where to look for headers; None while there is nothing to read yet.
    checkpoint: Path | None = None


@dataclass(frozen=True)
class Found:
    """The demo first, then what lies in the models folder, then what was opened elsewhere."""

    report: HardwareReport
    rows: list[ModelRow]


def demo_is_here() -> bool:
    """Whether the demo model can be loaded, or put together, without a download."""
    from engine.hub.demo import demo_path, dense_path

    return demo_path().exists() or dense_path().exists()


def find_models(api: Any, folder: Path | None, opened: Sequence[str]) -> Found:
    """folder: None for the program's own models folder. opened: paths from anywhere; missing ones are left out."""
    from engine.hub.library import installed

    rows = [_demo_row()]
    known = {_identity(row.checkpoint) for row in rows if row.checkpoint is not None}
    for model in installed(folder):
        if _identity(model.path) in known:
            continue
        path = Path(model.path)
        known.add(_identity(path))
        detail = " · ".join(part for part in (model.form, model.architecture) if part)
        rows.append(ModelRow(str(path), file_name(path), detail, model.nbytes, problem=model.error, checkpoint=path))
    for text in opened:
        path = Path(text)
        if _identity(path) not in known and path.exists():
            known.add(_identity(path))
            rows.append(ModelRow(text, file_name(path), f"opened in {path.parent}, used in place", checkpoint=path))
    return Found(api.probe(), rows)


def _demo_row() -> ModelRow:
    from engine.hub.demo import demo_path

    try:
        path = demo_path()
    except GreenroomError as error:
        return ModelRow(DEMO, DEMO_NAME, DEMO_DETAIL, problem=f"{error.what}. {error.remedy}")
    if not path.exists():
        missing = DEMO_UNMADE if demo_is_here() else DEMO_MISSING
        return ModelRow(DEMO, DEMO_NAME, f"{DEMO_DETAIL} {missing}")
    return ModelRow(DEMO, DEMO_NAME, DEMO_DETAIL, checkpoint=path)


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
            if row.path != DEMO and checkpoint.form not in detail:
                detail = f"{checkpoint.form} · {checkpoint.architecture} · {detail}"
            return replace(row, detail=detail, nbytes=checkpoint.nbytes, plan=plan)
        finally:
            checkpoint.close()
    except GreenroomError as error:
        return replace(row, problem=f"{sentence(error.why)}. {error.remedy}")


def _identity(path: Path) -> str:
    return str(path.resolve())
