"""Which models are shown, in which order."""

from __future__ import annotations

from dataclasses import replace

from fakes import FakeApi, make_plan, make_report

from app.models.survey import ModelRow, find_offers
from app.settings.store import Settings
from app.wizard.ranking import SHOWN, arrange, plan_catalogue
from engine.hardware.report import DiskReport


def planned(mode: str = "cpu") -> list[ModelRow]:
    return [replace(row, plan=make_plan(mode)) for row in find_offers()]


def test_the_order_of_the_recommendation_is_kept() -> None:
    rows = planned()[::-1]
    assert arrange(rows, []).best is rows[0]


def test_models_of_one_make_and_size_take_one_place() -> None:
    rows = arrange(planned(), []).rows
    assert len({(row.entry.author, row.entry.params_total) for row in rows}) == len(rows) == SHOWN


def test_what_does_not_fit_comes_last_and_is_the_next_one_up() -> None:
    home = [row for row in planned() if row.entry.tier == "home"]
    larger = [row for row in planned("too_large") if row.entry.tier != "home"]
    smaller = replace(home[0], entry=replace(home[0].entry, author="Other", params_total=1), plan=make_plan("tight"))
    fits = arrange(home, [smaller, *larger])
    assert [row.plan.runnable for row in fits.rows] == [True, True, True, False]
    assert fits.rows[-1].entry.tier != "home"


def test_where_nothing_fits_nothing_is_recommended() -> None:
    fits = arrange([], planned("too_large"))
    assert fits.best is None
    assert len(fits.rows) == SHOWN


def test_models_without_a_plan_are_left_out() -> None:
    assert arrange(find_offers(), []).rows == ()


def test_the_catalogue_is_planned_with_the_wish_for_threads() -> None:
    api = FakeApi()
    api.mode = "too_large"
    fits = plan_catalogue(api, make_report(), Settings(threads=3))
    assert {wishes["threads"] for _, wishes in api.plans} == {3}
    assert fits.best is None


def test_what_the_disk_has_no_room_for_is_shown_but_not_recommended() -> None:
    fits = plan_catalogue(FakeApi(), make_report(disk=DiskReport("/", 1000, 10_000)), Settings())
    assert fits.best is None
    assert all(row.plan.runnable for row in fits.rows)
