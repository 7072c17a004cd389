from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.errors import GreenroomError
from engine.hub.catalogue import RECIPES, TIERS, CatalogueDownload, catalogue, fetch_update, parse, update_path
from engine.hub.network import NetworkSettings
from engine.models import model_spec
from engine.resources import asset
from tests.fake_hub import FakeHub, Fault

pytestmark = pytest.mark.usefixtures("data_folder")


@pytest.fixture
def document() -> dict[str, Any]:
    whole = json.loads(asset("catalogue.json").read_bytes())
    return {**whole, "models": whole["models"][:2]}


def encoded(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


def test_it_offers_enough_for_every_kind_of_machine() -> None:
    models = catalogue()
    assert len(models) >= 16
    assert {model.tier for model in models} == set(TIERS)
    assert all(model.licence and model.good_at and model.sources for model in models)


@pytest.mark.parametrize("model", catalogue(), ids=lambda model: model.id)
def test_every_model_can_be_planned_from_its_description(model: Any) -> None:
    checkpoint = model.checkpoint(model.downloads[0].label)
    spec = model_spec(checkpoint)
    assert spec.is_moe
    assert spec.context_length >= 4096
    assert all(model.nbytes(download) > 0.1 * model.params_total for download in model.downloads)
    with pytest.raises(GreenroomError, match="is not here"):
        checkpoint.read(next(iter(checkpoint.tensors)))
    # Every weight of the description is one the family knows, but for rotary tables and the like.
    named = {ref.name for ref in spec.weights.values()}
    assert sum(t.nbytes for n, t in checkpoint.tensors.items() if n not in named) < 0.001 * checkpoint.nbytes


def test_sizes_are_those_of_real_files() -> None:
    """Published by two makers of such files: 18.6, 32.5 and 25.1 GB of this model; 12.1 GB of the other."""
    sizes = {(m.id, d.label): m.nbytes(d) / 1e9 for m in catalogue() for d in m.downloads}
    assert sizes["qwen3-30b-a3b-instruct-2507", "Q4_K_M"] == pytest.approx(18.6, rel=0.02)
    assert sizes["qwen3-30b-a3b-instruct-2507", "Q8_0"] == pytest.approx(32.5, rel=0.01)
    assert sizes["qwen3-30b-a3b-instruct-2507", "Q6_K"] == pytest.approx(25.1, rel=0.01)
    assert sizes["gpt-oss-20b", "MXFP4"] == pytest.approx(12.1, rel=0.02)


@pytest.mark.parametrize(
    ("model", "gigabytes"), [("gemma-4-26b-a4b-it", 16.796), ("ernie-4.5-21b-a3b", 13.331), ("ling-mini-2.0", 9.912)]
)
def test_rows_that_blocks_do_not_divide_are_counted_as_llama_cpp_stores_them(model: str, gigabytes: float) -> None:
    """Published sizes of Q4_K_M, which a worked-out one must come close to."""
    entry = next(m for m in catalogue() if m.id == model)
    assert entry.nbytes(CatalogueDownload("a/b", "Q4_K_M", None)) / 1e9 == pytest.approx(gigabytes, rel=0.015)


def test_larger_quantisations_are_larger() -> None:
    order = ["Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0"]
    model = catalogue()[0]
    sizes = [model.checkpoint(label).nbytes for label in order]
    assert sizes == sorted(sizes)
    assert set(order) <= set(RECIPES)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"models": {}},
        {"models": [{}]},
        {"models": [1]},
        {"date": "x" * 20},
    ],
)
def test_another_document_is_refused(document: dict[str, Any], change: dict[str, Any]) -> None:
    with pytest.raises(GreenroomError, match="is not a catalogue"):
        parse(encoded(document | change), "x")


@pytest.mark.parametrize(
    "change",
    [
        {"id": 5},
        {"id": "../../x"},
        {"name": ""},
        {"name": "a\x00b"},
        {"params_total": -1},
        {"params_total": 1 << 60},
        {"params_active": True},
        {"tier": "moon"},
        {"downloads": []},
        {"downloads": [{"repo": "../x", "label": "Q4_0"}]},
        {"downloads": [{"repo": "a/b", "label": "nobody knows"}]},
        {"tensors": [["w", [4, 4], "0-99999"]]},
        {"tensors": [["w", [4, 4], "5-"]]},
        {"tensors": [["w", [4, 4], "0-3", 10**9]]},
        {"tensors": [["w", [1, 2, 3, 4, 5]]]},
        {"tensors": [["w", [1 << 60]]]},
        {"config": []},
    ],
    ids=str,
)
def test_a_hostile_entry_is_refused(document: dict[str, Any], change: dict[str, Any]) -> None:
    entry = document["models"][0] | change
    with pytest.raises(GreenroomError, match="is not a catalogue"):
        parse(encoded(document | {"models": [entry]}), "x")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b"1" * (5 << 20)])
def test_no_json_is_no_catalogue(content: bytes) -> None:
    with pytest.raises(GreenroomError, match=r"not a catalogue: (what it says is no list|it is too large)"):
        parse(content, "x")


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        yield hub


def served(hub: FakeHub, content: bytes) -> str:
    hub.add("green/room", {"catalogue.json": content})
    return f"{hub.url}/green/room/resolve/main/catalogue.json"


def test_an_update_counts_when_it_is_newer(hub: FakeHub, document: dict[str, Any]) -> None:
    whole = len(catalogue())
    url = served(hub, encoded(document | {"date": "9999-01-01"}))
    assert fetch_update(url, NetworkSettings()) == 2
    assert len(catalogue()) == 2
    fetch_update(served(hub, encoded(document | {"date": "2000-01-01"})), NetworkSettings())
    assert len(catalogue()) == whole


def test_a_broken_update_changes_nothing(hub: FakeHub, document: dict[str, Any], tmp_path: Path) -> None:
    for content in (b"{}", b"x" * (5 << 20)):
        with pytest.raises(GreenroomError):
            fetch_update(served(hub, content), NetworkSettings())
    url = served(hub, encoded(document))
    hub.repositories["green/room"].files["catalogue.json"].faults = [Fault("status", status=500)]
    with pytest.raises(GreenroomError, match="status 500"):
        fetch_update(url, NetworkSettings())
    assert not update_path().exists()
    update_path().parent.mkdir(parents=True, exist_ok=True)
    update_path().write_text("damaged")
    assert len(catalogue()) >= 16
