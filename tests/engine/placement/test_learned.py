"""What answers taught is kept per model, and corrects the next prediction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_machines import make_report
from fake_models import moe_model

from engine.placement.learned import FILE_NAME, KEPT, corrected, remember
from engine.placement.plan import OffloadPlan, Range
from engine.placement.planner import plan

MODEL = moe_model("Q4_0", layers=4, experts=16)
HERE = make_report(bandwidth={"8": 60.0})


def answer(
    folder: Path,
    made: OffloadPlan,
    speed: float,
    *,
    tokens: int = 200,
    guessed: int = 0,
    prompt: int = 0,
    others: float = 0.0,
) -> bool:
    return remember(
        folder, MODEL, HERE, made, decode=(speed, tokens, guessed), prefill=(2 * speed, prompt), others=others
    )


def after(folder: Path, made: OffloadPlan, *shares: float) -> Range:
    """The prediction once answers have come at these shares of what was predicted."""
    for share in shares:
        answer(folder, made, share * made.prediction.decode_tps.likely)
    return corrected(folder, MODEL, HERE, made).prediction.decode_tps


def test_the_next_prediction_leans_on_the_median(tmp_path: Path) -> None:
    made = plan(MODEL, HERE)
    predicted = made.prediction.decode_tps.likely
    assert corrected(tmp_path, MODEL, HERE, made) == made
    for share in (0.8, 0.5, 0.82):
        # The correction of one answer is not taken for the prediction by the next.
        assert answer(tmp_path, corrected(tmp_path, MODEL, HERE, made), share * predicted)
    found = corrected(tmp_path, MODEL, HERE, made).prediction
    # Three answers against one prediction.
    factor = 0.8**0.75
    assert found.decode_tps.likely == pytest.approx(factor * predicted, rel=1e-3)
    assert found.decode_tps.low == pytest.approx(0.45 * predicted, rel=1e-3)
    high = made.prediction.decode_tps.high**0.25 * (0.902 * predicted) ** 0.75
    assert found.decode_tps.high == pytest.approx(high, rel=1e-3)
    assert found.prefill_tps == made.prediction.prefill_tps
    assert found.learned is not None
    assert (found.learned.answers, found.learned.predicted_decode_tps) == (3, made.prediction.decode_tps)
    assert found.full_context_tps == pytest.approx(factor * (made.prediction.full_context_tps or 0), rel=1e-3)


def test_one_answer_is_one_answer(tmp_path: Path) -> None:
    made = plan(MODEL, HERE)
    likely = made.prediction.decode_tps.likely
    found = after(tmp_path, made, 0.31)
    # Half of the way, and wide: what was measured lies within, and much between it and what was predicted.
    assert 0.5 * likely < found.likely < 0.6 * likely
    assert found.low <= 0.31 * likely
    assert found.high > 0.6 * likely


def test_the_range_narrows_with_answers_that_agree_and_not_with_others(tmp_path: Path) -> None:
    made = plan(MODEL, HERE)
    widths = []
    for number in (1, 3, KEPT):
        found = after(tmp_path / f"{number} alike", made, *[0.5] * number)
        widths.append(found.high / found.low)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 1.5 < widths[0]
    apart = after(tmp_path / "apart", made, *[0.4, 0.5, 0.6] * 3)
    assert apart.high / apart.low > 1.3 * widths[-1]


def test_an_answer_beside_busy_programs_teaches_nothing(tmp_path: Path) -> None:
    made = plan(MODEL, HERE)
    likely = made.prediction.decode_tps.likely
    assert not answer(tmp_path, made, 0.3 * likely, others=0.5)
    assert corrected(tmp_path, MODEL, HERE, made) == made
    assert answer(tmp_path, made, 0.3 * likely, others=0.05)


def test_the_sum_of_a_token_has_what_answers_taught(tmp_path: Path) -> None:
    made = plan(MODEL, HERE)
    for share in (0.5, 2.0):
        folder = tmp_path / str(share)
        found = after(folder, made, share)
        parts = corrected(folder, MODEL, HERE, made).prediction.token_time
        assert sum(part.seconds for part in parts) == pytest.approx(1 / found.likely)
        assert parts[:-1] == made.prediction.token_time
        assert (parts[-1].kind, parts[-1].seconds < 0) == ("learned", share > 1)


def test_the_factor_holds_for_other_contexts_and_threads_only(tmp_path: Path) -> None:
    made = plan(MODEL, HERE)
    answer(tmp_path, made, 0.5 * made.prediction.decode_tps.likely)
    for wishes in ({"context": 512}, {"threads": 4}):
        other = plan(MODEL, HERE, **wishes)  # type: ignore[arg-type]
        likely = corrected(tmp_path, MODEL, HERE, other).prediction.decode_tps.likely
        assert likely == pytest.approx(0.5**0.5 * other.prediction.decode_tps.likely, rel=1e-3)
    measured_anew = make_report(bandwidth={"8": 50.0})
    for report, model in ((measured_anew, MODEL), (HERE, moe_model("Q8_0", layers=4, experts=16))):
        assert corrected(tmp_path, model, report, made) == made


def test_prompts_are_learned_apart(tmp_path: Path) -> None:
    made = plan(MODEL, HERE)
    speed = made.prediction.prefill_tps.likely
    assert answer(tmp_path, made, speed, tokens=3, prompt=500)
    found = corrected(tmp_path, MODEL, HERE, made).prediction
    assert found.prefill_tps.likely == pytest.approx(2**0.5 * speed, rel=1e-3)
    assert found.decode_tps == made.prediction.decode_tps


@pytest.mark.parametrize("speed", [0.0, 1e-9, 1e9])
def test_impossible_speeds_teach_nothing(speed: float, tmp_path: Path) -> None:
    assert not answer(tmp_path, plan(MODEL, HERE), speed)


def test_short_or_guessed_answers_teach_nothing(tmp_path: Path) -> None:
    made = plan(MODEL, HERE)
    likely = made.prediction.decode_tps.likely
    assert not answer(tmp_path, made, likely, tokens=31, prompt=127)
    assert not answer(tmp_path, made, 3 * likely, tokens=100, guessed=40)
    assert corrected(tmp_path, MODEL, HERE, made) == made


def test_only_the_latest_answers_count(tmp_path: Path) -> None:
    made = plan(MODEL, HERE)
    likely = made.prediction.decode_tps.likely
    for share in [0.3] * 5 + [1.2] * KEPT:
        answer(tmp_path, made, share * likely)
    found = corrected(tmp_path, MODEL, HERE, made).prediction.decode_tps
    assert found.likely == pytest.approx(1.2 ** (KEPT / (KEPT + 1)) * likely, rel=1e-3)
    assert found.low > 0.9 * likely
    assert [file.name for file in tmp_path.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-5],
        lambda text: "[]",
        lambda text: text.replace("[0.5]", "[-3]"),
        lambda text: text.replace("[0.5]", "[NaN]"),
        lambda text: text.replace("[0.5]", "7"),
        lambda text: text.replace('"version": 1', '"version": 2'),
    ],
)
def test_a_damaged_file_is_as_good_as_none(change, tmp_path: Path) -> None:
    made = plan(MODEL, HERE)
    answer(tmp_path, made, 0.5 * made.prediction.decode_tps.likely)
    file = tmp_path / FILE_NAME
    text = file.read_text()
    assert json.loads(text)["models"]
    assert change(text) != text
    file.write_text(change(text))
    assert corrected(tmp_path, MODEL, HERE, made) == made


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    made = plan(MODEL, HERE)
    assert not answer(tmp_path / "file" / "cache", made, made.prediction.decode_tps.likely)
