"""The sum of a token's time, as the user reads it, adds up, and every line can be worked out from its own numbers."""

from __future__ import annotations

import json
import re

import pytest
from fake_machines import make_report
from fake_models import moe_model
from hypothesis import given
from hypothesis import strategies as st

from engine.cli.text import predicted_speeds
from engine.hardware.report import GpuReport
from engine.placement.machines import Bandwidth
from engine.placement.plan import OffloadPlan
from engine.placement.planner import plan
from engine.placement.predict import predict
from engine.placement.token_time import CACHED_COST
from engine.placement.work import Hits, Speeds, Work

GB = 10**9
LARGE = moe_model("Q4_0")
SMALL = moe_model("Q4_0", layers=4, experts=16)
CARD = [GpuReport("NVIDIA GeForce RTX 4070", "nvidia", 12 * GB, 11 * GB, False)]
PLACES = {
    "cpu": (LARGE, make_report(bandwidth={"8": 60.0}), {}),
    "hybrid": (LARGE, make_report(bandwidth={"8": 60.0}, gpus=CARD), {"prefer_gpu": True}),
    "all_gpu": (SMALL, make_report(bandwidth={"8": 60.0}, gpus=CARD), {}),
    "portable": (LARGE, make_report(bandwidth={"8": 60.0}), {"isa": "portable"}),
    "cached": (SMALL, make_report(bandwidth={"8": 60.0}), {}),
}


def made(place: str) -> OffloadPlan:
    model, report, wishes = PLACES[place]
    return plan(model, report, **wishes)


def milliseconds(line: str) -> float:
    return float(re.match(r"(?:Together )?(-?[\d.]+) ms", line)[1])  # type: ignore[index]


@pytest.mark.parametrize("place", PLACES)
def test_the_shown_parts_add_up_to_the_shown_time(place: str) -> None:
    found = made(place)
    *parts, together = found.time_sum()
    assert len(parts) >= 2
    assert sum(map(milliseconds, parts)) == pytest.approx(milliseconds(together), abs=1e-9)
    shown = float(re.search(r"([\d.]+) tok/s\.$", together)[1])  # type: ignore[index]
    assert 1000 / milliseconds(together) == pytest.approx(shown, rel=0.01)
    assert shown == pytest.approx(found.prediction.decode_tps.likely, rel=0.01)


@pytest.mark.parametrize("place", PLACES)
def test_every_line_has_the_numbers_that_give_its_time(place: str) -> None:
    for line in made(place).time_sum()[:-1]:
        # Up to two steps of rounding: the line's own, and the one that makes the sum right.
        step = 10.0 ** -len(line.split(" ms")[0].partition(".")[2])
        shown = milliseconds(line)
        if read := re.search(r"([\d.]+) (GB|MB) of .*?([\d.]+) GB/s", line):
            nbytes = float(read[1]) * (1 if read[2] == "GB" else 1e-3)
            seconds = nbytes / float(read[3]) * (CACHED_COST if "cache kept" in line else 1)
            if beside := re.search(r"less the ([\d.]+) ms", line):
                seconds -= float(beside[1]) * 1e-3
        elif each := re.search(r"([\d.]+) layers?: ([\d.]+) µs(?: each)?(?:, and ([\d.]+) µs)?", line):
            seconds = float(each[1]) * (float(each[2]) + float(each[3] or 0)) * 1e-6
        else:
            each = re.search(r"starting experts on the CPU, ([\d.]+) of them: ([\d.]+) µs each", line)
            assert each, line
            seconds = float(each[1]) * float(each[2]) * 1e-6
        assert shown == pytest.approx(seconds * 1e3, rel=0.02, abs=2 * step), line


def test_a_hybrid_says_what_the_gpu_and_the_hand_over_take() -> None:
    text = "\n".join(made("hybrid").time_sum())
    assert "of experts from RAM at" in text
    assert "of weights from VRAM at" in text
    assert "handing over between GPU and CPU in 48 layers" in text


def test_the_command_line_and_its_document_have_the_sum() -> None:
    found = made("cpu")
    shown = list(predicted_speeds(found))
    assert all(f"  {line}" in shown for line in found.time_sum())
    document = json.loads(json.dumps(found.to_json()))["prediction"]
    seconds = sum(part["seconds"] for part in document["token_time"])
    assert seconds == pytest.approx(1 / document["decode_tps"]["likely"])
    assert {"kind", "seconds", "said"} == set(document["token_time"][0])


WORKS = st.builds(
    Work,
    layers=st.integers(1, 100),
    cpu_expert_bytes=st.integers(0, 10**11),
    cpu_dense_bytes=st.integers(0, 10**10),
    gpu_bytes=st.integers(0, 10**10),
    cached_bytes=st.integers(0, 10**8),
    cpu_experts=st.integers(0, 1000),
    hit_bytes=st.integers(0, 10**9),
    hits=st.sampled_from([Hits(0.0, 0.0, 0.0), Hits(0.1, 0.4, 0.6), Hits(1.0, 1.0, 1.0)]),
    context=st.integers(1, 10**6),
    kv_bytes=st.integers(0, 10**11),
    kv_on_gpu=st.booleans(),
    attention_ops=st.integers(1, 10**9),
    cpu_values=st.integers(0, 10**11),
    gpu_values=st.integers(0, 10**11),
    gpu_experts=st.integers(0, 10**5),
    code=st.sampled_from(["int4", "bf16"]),
    tier=st.sampled_from(["portable", "avx2", "avx512vnni"]),
    threads=st.integers(1, 256),
)


@given(WORKS, st.floats(1, 1000))
def test_the_parts_are_the_whole_time(work: Work, gbs: float) -> None:
    found = predict(work, Speeds(Bandwidth(gbs, gbs, gbs, "measured"), 500.0, 80.0))
    assert sum(part.seconds for part in found.token_time) == pytest.approx(1 / found.decode_tps.likely)
    assert all(part.seconds > 0 for part in found.token_time)
