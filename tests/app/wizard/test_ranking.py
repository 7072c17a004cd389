"""Which models come first."""

from __future__ import annotations

from dataclasses import replace

from fakes import make_plan

from app.models.survey import ModelRow, find_offers
from app.wizard.ranking import SHOWN, rank
from engine.placement.plan import Range

ROOM = 10**15


def planned(mode: str = "cpu", speed: float = 20.0) -> list[ModelRow]:
    plan = make_plan(mode)
    plan = replace(plan, prediction=replace(plan.prediction, decode_tps=Range(speed, speed, speed)))
    return [replace(row, plan=plan) for row in find_offers()]


def test_the_largest_tier_that_runs_well_comes_first() -> None:
    fits = rank(planned(), ROOM)
    assert fits.best is fits.rows[0]
    assert fits.best.entry.tier == "server"


def test_what_is_slow_comes_after_what_is_not() -> None:
    slow = make_plan("cpu")
    slow = replace(slow, prediction=replace(slow.prediction, decode_tps=Range(1, 2, 3)))
    rows = [replace(row, plan=slow) if row.entry.tier == "server" else row for row in planned()]
    assert rank(rows, ROOM).best.entry.tier == "workstation"


def test_models_of_one_make_and_size_take_one_place() -> None:
    rows = rank(planned(), ROOM).rows
    assert len({(row.entry.author, row.entry.params_total) for row in rows}) == len(rows) == SHOWN


def test_what_does_not_run_is_shown_last_and_never_recommended() -> None:
    large = make_plan("too_large")
    rows = [replace(row, plan=large) if row.entry.tier != "home" else row for row in planned()]
    fits = rank(rows, ROOM)
    assert [row.plan.runnable for row in fits.rows] == [True, True, True, False]
    assert fits.best.entry.tier == "home"


def test_what_the_disk_has_no_room_for_is_not_recommended() -> None:
    rows = planned()
    smallest = min(row.nbytes for row in rows)
    assert rank(rows, smallest).best.nbytes == smallest
    assert rank(rows, smallest - 1).best is None


def test_models_without_a_plan_are_left_out() -> None:
    assert rank(find_offers(), ROOM).rows == ()
