"""What the Models page shows in which order, without a window."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import make_plan

from app.models.shelf import Filter, Heading, shelf
from app.models.survey import ModelRow
from app.words import licence_name, predicted
from engine.hub.catalogue import catalogue
from engine.hub.downloads import DownloadStatus
from engine.placement.plan import OffloadPlan, Range


def plan(mode: str = "cpu", likely: float = 10.0) -> OffloadPlan:
    made = make_plan(mode, "label", 8192)
    speed = Range(likely * 0.9, likely, likely * 1.1)
    return replace(made, prediction=replace(made.prediction, decode_tps=speed))


def offer(number: int = 0, label: int = 0) -> ModelRow:
    entry = catalogue()[number]
    choice = entry.downloads[label]
    return ModelRow(f"catalogue:{entry.id}", entry.name, "", entry=entry, choice=choice)


def status(row: ModelRow, state: str = "downloading", label: str = "") -> DownloadStatus:
    assert row.choice is not None
    repo, path = row.choice.repo, Path("/models/m.gguf")
    return DownloadStatus(
        1, repo, label or row.choice.label, "m", "gguf", state, 1, 2, 0.0, None, path, error=None, notice=""
    )


def titles(items: list[object]) -> list[str]:
    return [item.text.partition(" · ")[0] for item in items if isinstance(item, Heading)]


def test_what_cannot_run_here_comes_last_and_has_no_speed() -> None:
    rows = [
        ModelRow("a", "A", "", plan=plan("too_large", 99)),
        ModelRow("b", "B", "", plan=plan(likely=5)),
        ModelRow("c", "C", ""),
        ModelRow("d", "D", "", plan=plan("tight", 7)),
    ]
    assert [row.path for row in Filter().sorted(rows)] == ["b", "c", "d", "a"]
    assert [row.path for row in Filter(sort="speed").sorted(rows)] == ["d", "b", "a", "c"]
    assert predicted(plan("too_large", 99)) == "–"


def test_a_search_comes_first_then_what_is_here() -> None:
    hit = ModelRow("hub:a/b", "b", "", repo="a/b")
    here = ModelRow("/m.gguf", "m", "", checkpoint=Path("/m.gguf"))
    items = shelf([here], [offer(0), offer(1)], [hit], [status(offer(1))], Filter())
    assert titles(items) == ["On Hugging Face", "On this PC", "Downloading", "Catalogue"]


@pytest.mark.parametrize("label", [0, 1])
def test_a_model_on_its_way_is_not_offered_in_any_quantisation(label: int) -> None:
    under_way = status(offer(0, 1))
    items = shelf([], [offer(0, label)], [], [under_way], Filter())
    assert titles(items) == ["Downloading"]


def test_a_download_of_another_quantisation_has_its_own_plan() -> None:
    other = replace(offer(0, 1), plan=plan(likely=33))
    items = shelf([], [replace(offer(0, 0), plan=plan(likely=44))], [], [status(other)], Filter(), [other])
    coming = items[1]
    assert isinstance(coming, ModelRow)
    assert coming.plan is not None
    assert coming.plan.prediction.decode_tps.likely == 33


def test_what_came_leads_to_its_other_quantisations() -> None:
    here = ModelRow("/models/m.gguf", "m", "", checkpoint=Path("/models/m.gguf"))
    items = shelf([here], [offer(0)], [], [status(offer(0), "finished")], Filter())
    assert titles(items) == ["On this PC"]
    assert isinstance(items[1], ModelRow)
    assert items[1].entry == catalogue()[0]


def test_words_of_the_list() -> None:
    assert predicted(plan(likely=57)) == "51–63"
    vague = plan()
    vague = replace(vague, prediction=replace(vague.prediction, decode_tps=Range(5, 15, 40)))
    assert predicted(vague) == "~15"
    assert (licence_name("mit"), licence_name("Apache-2.0"), licence_name("odd")) == ("MIT", "Apache-2.0", "odd")
