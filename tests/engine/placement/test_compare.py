"""Machines side by side for one model."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from fake_machines import make_report
from fake_models import moe_model
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import GreenroomError
from engine.placement.compare import MOST_MACHINES, Machine, Use, compare, other_machine, read_machines, to_csv

GB = 10**9
HERE = make_report(ram=32 * GB, free=28 * GB)
MODEL = moe_model("Q4_0")


def test_upgrades_side_by_side() -> None:
    small = Machine("Small", make_report(ram=16 * GB, free=12 * GB))
    rows = compare(
        MODEL, [small, Machine("This PC", HERE), other_machine(HERE, gpu="RTX 4070"), other_machine(HERE, gpu="H100")]
    )
    assert [row.mode for row in rows] == ["too_large", "cpu", "hybrid", "all_gpu"]
    assert [row.name for row in rows] == ["Small", "This PC", "RTX 4070", "H100"]
    assert rows[3].decode_tps.likely == max(row.decode_tps.likely for row in rows)
    assert rows[2].vram_bytes > 0
    assert rows[1].vram_bytes == 0
    assert all(row.cost_per_million is None for row in rows)


def test_cost_by_hand() -> None:
    use = Use(years=2, hours_per_day=10)
    rented, bought, both, unable = compare(
        MODEL,
        [
            Machine("rented", HERE, price_per_hour=0.9),
            Machine("bought", HERE, price=7300.0),
            Machine("both", HERE, price_per_hour=0.9, price=7300.0),
            Machine("unable", make_report(ram=16 * GB), price=1.0),
        ],
        use=use,
    )
    likely = rented.decode_tps.likely
    assert rented.cost_per_million is not None
    assert rented.cost_per_million.likely == pytest.approx(0.9 / likely / 3600 * 1e6)
    assert rented.cost_per_million.low == pytest.approx(0.9 / rented.decode_tps.high / 3600 * 1e6)
    assert rented.cost_per_million.low < rented.cost_per_million.likely < rented.cost_per_million.high
    # 7,300 over 2 x 365 days of 10 hours is 1 an hour.
    assert bought.cost_per_million is not None
    assert bought.cost_per_million.likely == pytest.approx(1 / likely / 3600 * 1e6)
    assert both.cost_per_million is not None
    assert both.cost_per_million.likely == pytest.approx(1.9 / likely / 3600 * 1e6)
    assert unable.cost_per_million is None


def test_wishes_hold_for_every_machine() -> None:
    rows = compare(MODEL, [Machine("GPU", make_report(vram=80 * GB))], 512, keep_gpu=True)
    assert rows[0].mode == "cpu"


def test_the_table_as_csv() -> None:
    rows = compare(MODEL, [Machine('A "fast", one', HERE, price_per_hour=2.0), Machine("Plain", HERE)])
    first, second = csv.DictReader(io.StringIO(to_csv(rows)))
    assert first["machine"] == 'A "fast", one'
    assert float(first["decode_tps_likely"]) == pytest.approx(rows[0].decode_tps.likely, rel=1e-3)
    assert float(first["ram_gb"]) == pytest.approx(rows[0].ram_bytes / GB, abs=0.06)
    assert first["cost_per_million_likely"] != ""
    assert second["cost_per_million_likely"] == ""


def test_the_table_gives_no_speed_to_what_does_not_fit() -> None:
    rows = compare(MODEL, [Machine("Small", make_report(ram=16 * GB, free=12 * GB))])
    (row,) = csv.DictReader(io.StringIO(to_csv(rows)))
    assert row["mode"] == "too_large"
    assert row["ram_gb"] != ""
    assert [row[name] for name in ("decode_tps_likely", "prefill_tps_high", "bottleneck")] == ["", "", ""]


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", " =1"])
def test_a_name_is_no_formula_in_the_table(name: str) -> None:
    rows = compare(MODEL, [Machine(name, HERE)])
    (row,) = csv.reader(io.StringIO(to_csv(rows).split("\n", 1)[1]))
    assert row[0] == f"'{name}"


def read(entries: Any) -> list[Machine]:
    return read_machines(json.dumps(entries).encode(), "box.json", HERE)


def test_machines_from_a_file() -> None:
    server, named = read(
        [
            {"cpu": "EPYC 9355", "sockets": 2, "cores": 64, "ram_gb": 768, "gpu": "RTX 5090", "price": 21000},
            {"name": "Upgrade", "ram_gb": 64, "ram_bandwidth_gbs": 80.5, "vram_gb": 0, "price_per_hour": 0.2},
        ]
    )
    assert server.name == "2x EPYC 9355, 768 GB RAM, RTX 5090"
    assert (server.report.cpu.sockets, server.report.cpu.physical_cores) == (2, 64)
    assert server.report.gpus[0].total_bytes == 32 << 30
    assert (server.price, server.price_per_hour) == (21000, None)
    assert (named.name, named.price_per_hour) == ("Upgrade", 0.2)
    assert named.report.memory.bandwidth_gbs == {"8": 80.5}


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([], "list of 1 to"),
        ({}, "list of 1 to"),
        ([{}] * (MOST_MACHINES + 1), "list of 1 to"),
        ([3], "machine 1: it is not an object"),
        ([{}, {"colour": "red"}], 'machine 2: "colour" is not known'),
        ([{"ram_gb": "64"}], '"ram_gb" cannot be'),
        ([{"ram_gb": -1}], '"ram_gb" cannot be'),
        ([{"sockets": 1.5}], '"sockets" cannot be'),
        ([{"price": True}], '"price" cannot be'),
        ([{"price": float("nan")}], '"price" cannot be'),
        ([{"name": ""}], '"name" cannot be'),
        ([{"cpu": "Abacus 3000"}], "not in the table"),
    ],
)
def test_wrong_files_are_one_sentence(entries: Any, words: str) -> None:
    with pytest.raises(GreenroomError) as caught:
        read(entries)
    assert words in f"{caught.value.what}: {caught.value.why}"
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is empty"),
        (b'[{"name": "Server",\n oops}]', "its line 2, column 2 is not JSON"),
        (b'["\xff"]', "it is not text in UTF-8"),
        (b" " * 1_100_000, "it is larger than 1 MB"),
        (b"[" * 100_000, "too long to be read"),
    ],
)
def test_what_is_no_json_is_said_in_words(content: bytes, why: str) -> None:
    with pytest.raises(GreenroomError) as caught:
        read_machines(content, "box.json", HERE)
    assert why in caught.value.why
    assert "Expecting" not in str(caught.value)


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_in_one_sentence(content: bytes) -> None:
    with pytest.raises(GreenroomError):
        read_machines(content, "box.json", HERE)
