"""The simulation behind the choice of the cache's policy gives the same figures each time, and they support it."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cache_policies import POLICIES, SHARES, Result, picture, simulate, synthetic, table
from routing_trace import RoutingTrace

from engine.executors.hybrid.hot_cache import Policy


@pytest.fixture(scope="module")
def made() -> dict[str, RoutingTrace]:
    return {kind: synthetic(kind, 240, layers=4, experts=32, top_k=4) for kind in ("topics", "zipf", "uniform")}


def test_the_chosen_policy_holds_on_every_kind_of_router(made: dict[str, RoutingTrace]) -> None:
    rates = {kind: {policy: simulate(trace, Policy(policy), 32) for policy in POLICIES} for kind, trace in made.items()}
    assert rates["zipf"]["lfru"].hit_rate > rates["zipf"]["lru"].hit_rate
    assert rates["topics"]["lfru"].hit_rate > rates["topics"]["lfu"].hit_rate
    assert rates["topics"]["lfru"].hit_rate > rates["topics"]["static"].hit_rate
    assert rates["topics"]["lfru"].uploads < rates["topics"]["lru"].uploads / 3
    # Nothing can be known about routers without preferences.
    assert rates["uniform"]["lfru"].hit_rate == pytest.approx(32 / 128, abs=0.02)
    assert rates["uniform"]["static"].hit_rate == pytest.approx(32 / 128, abs=0.02)


def test_the_same_trace_gives_the_same_figures(made: dict[str, RoutingTrace]) -> None:
    assert simulate(made["topics"], Policy(), 20) == simulate(made["topics"], Policy(), 20)


def test_slots_for_all_experts_hit_always(made: dict[str, RoutingTrace]) -> None:
    assert simulate(made["topics"], Policy(), 128).hit_rate == 1.0
    assert simulate(made["topics"], Policy(), 0) == Result(0.0, 0.0)


def test_table_and_picture_show_every_policy() -> None:
    results = {"one": {policy: [Result(0.5, 1.0)] * len(SHARES) for policy in POLICIES}}
    assert len(table(results)) == 2 + len(POLICIES)
    lines = ET.fromstring(picture(results)).findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == len(POLICIES)
