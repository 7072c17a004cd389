"""Models that are only planned: DeepSeek-V3 and its kind."""

from __future__ import annotations

import pytest
from fake_machines import GB, make_report

from engine.errors import GreenroomError
from engine.hub.described import described, references
from engine.models import model_spec
from engine.models.sketches import sketch
from engine.placement import sizes
from engine.placement.machines import what_if
from engine.placement.planner import plan


@pytest.fixture(scope="module")
def deepseek():  # type: ignore[no-untyped-def]
    found = described("deepseek-v3")
    assert found is not None
    return found


def test_a_long_conversation_beside_a_card_of_24_gb(deepseek) -> None:  # type: ignore[no-untyped-def]
    machine = what_if(make_report(), cpu="Xeon Gold 6454S", ram=512 * GB, vram=24 * GB, gpu="RTX 4090 D")
    made = plan(deepseek, machine, 139_000)
    assert made.mode == "hybrid"
    assert made.dense_dtype == "int4"
    # 61 layers keep 512 + 64 numbers of two bytes for each token.
    assert made.bytes.vram["kv_cache"] == 139_000 * 61 * (512 + 64) * 2
    assert made.bytes.vram_total <= 24 * GB
    # 58 layers of 256 experts of three matrices, 4.5 to 4.9 bits a weight.
    assert made.bytes.ram["experts"] == pytest.approx(58 * 256 * 3 * 7168 * 2048 * 4.84 / 8, rel=0.01)
    assert made.explanation[0].startswith("Only a plan: it is DeepSeek-V3 or R1, which Greenroom does not compute yet")
    (kv,) = [line for line in made.explanation if "KV cache is the memory" in line]
    assert "61 layers x (512 latent + 64 position numbers) x 2 bytes (bf16), 9.8 GB in all" in kv
    # KTransformers published 8.73 tok/s of this machine and model.
    assert made.prediction.decode_tps.low <= 8.73 <= made.prediction.decode_tps.high


def test_its_weights_are_counted_once(deepseek) -> None:  # type: ignore[no-untyped-def]
    spec = sketch(deepseek)
    assert spec is not None
    inventory = sizes.take_inventory(spec, deepseek)
    parts = [*inventory.roles.values(), *(shapes for _, shapes in inventory.experts)]
    values = sum(shape.values * count for shapes in parts for shape, count in shapes.items())
    # The router's correction, one number for each of 256 experts, is the only part left out.
    assert values == references()[0].params_total == 671_026_404_352


def test_it_is_planned_and_not_loaded(deepseek) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(GreenroomError, match="does not compute yet"):
        model_spec(deepseek)
    other = described("qwen3-30b-a3b-instruct-2507:q8_0")
    assert other is not None
    assert sketch(other) is None
    assert not any(line.startswith("Only a plan") for line in plan(other, make_report()).explanation)


@pytest.mark.parametrize("entry", references(), ids=lambda entry: entry.id)
def test_every_reference_has_a_plan(entry) -> None:  # type: ignore[no-untyped-def]
    for download in entry.downloads:
        made = plan(entry.checkpoint(download.label), what_if(make_report(), ram=2048 * GB))
        assert made.mode == "cpu"
        assert made.bytes.ram_total == pytest.approx(entry.nbytes(download), rel=0.03)


def test_names_that_are_not_known() -> None:
    assert described("no-such-model") is None
    with pytest.raises(GreenroomError, match="quantisation is not known"):
        described("deepseek-v3:Q99")
