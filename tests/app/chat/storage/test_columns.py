"""What columns hold as JSON may be somebody's trap: sentences that grow, reach into objects or never end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.chat.storage import columns
from app.language import told
from engine.errors import GreenroomError
from engine.words import say


def said(template: str, values: dict[str, Any], n: object = None) -> dict[str, Any]:
    return {"said": [template, values, n, ""]}


def test_what_the_engine_says_is_kept_with_its_parts() -> None:
    error = GreenroomError(say("{a} of {b:.1f}", a="x", b=2.0), say("%n layers, {why!r}", n=3, why=say("no")), "r")
    kept = columns.error(columns.packed_error(error))
    assert kept is not None
    assert (kept.what, kept.why, kept.remedy) == ("x of 2.0", "3 layers, 'no'", "r")


@pytest.mark.parametrize(
    "trap",
    [
        said("{a.__class__.__init__}", {"a": "x"}),
        said("{a[0]}", {"a": "x"}),
        said("{a:>999999999}", {"a": "x"}),
        said("{a:0999999999d}", {"a": 1}),
        said("{a:.99999f}", {"a": 1.0}),
        said("{a:{a}}", {"a": 999999999}),
        said("x" * 10_000, {}),
        said("{missing}", {"a": 1}),
        said("{a:d}", {"a": "x"}),
        said("{a}", {"a": []}),
    ],
)
def test_templates_that_no_engine_makes_are_passed_over(trap: dict[str, Any]) -> None:
    assert columns.error(json.dumps([trap, "why", "remedy"])) is None
    assert columns.stepped_down(json.dumps({"stepped_down": [trap]})) == ()


def test_a_sentence_of_sentences_does_not_grow_without_end() -> None:
    grown: Any = "x" * 100
    for _ in range(60):
        grown = said("{a}{a}{a}", {"a": grown})
    assert columns.error(json.dumps([grown, "why", "remedy"])) is None
    grown = "x" * 100
    for _ in range(5):
        grown = said("{a}" * 600, {"a": grown})
    kept = columns.error(json.dumps([grown, "why", "remedy"]))
    assert kept is not None
    assert len(told(kept.what)) <= 4000


@pytest.mark.parametrize("n", [1e999, [], "x", 10**400])
def test_counts_that_are_none(n: object) -> None:
    kept = columns.error(json.dumps([said("%n layers", {}, n), "why", "remedy"]))
    assert kept is None or len(told(kept.what)) < 1000


def test_figures_that_make_no_sense_are_left_out() -> None:
    kept = columns.stats('{"prompt_tokens": NaN, "completion_tokens": 1e999, "decode_tps": 2, "first_token_s": -1}')
    assert kept is not None
    assert (kept.prompt_tokens, kept.completion_tokens, kept.decode_tps, kept.first_token_s) == (0, 0, 2.0, 0.0)
    assert columns.predicted('{"predicted_tps": [1, NaN, 2]}') is None
    assert columns.draft('["x", [], [99999999999999999999, "y", []]]').edit is None
    assert len(columns.draft(json.dumps(["x", [["a", "b", 1]] * 1000])).attachments) == 20
