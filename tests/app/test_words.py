"""Figures as the user reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.language import tr
from app.words import about, file_name, home_path, rate, rate_range, sentence
from engine.placement.plan import Range


def test_paths_in_the_home_are_short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert home_path(tmp_path / "greenroom" / "models") == str(Path("~/greenroom/models"))
    assert home_path(tmp_path.parent) == str(tmp_path.parent)


@pytest.mark.parametrize(("value", "text"), [(0.4, "0.4"), (58.34, "58.3"), (99.96, "100"), (312.4, "312")])
def test_rates(value: float, text: str) -> None:
    assert rate(value) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(49, 66, "49 to 66"), (6.2, 8.9, "6.2 to 8.9"), (12.1, 12.3, "12"), (8.7, 12.2, "9 to 12")],
)
def test_ranges(low: float, high: float, text: str) -> None:
    assert rate_range(Range(low, (low + high) / 2, high)) == text


def test_sentences_begin_with_a_capital() -> None:
    assert sentence("limited by RAM bandwidth") == "Limited by RAM bandwidth"
    assert sentence("") == ""


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/m/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1"),
        ("/m/DeepSeek-V3-Q4_K_M-00001-of-00009.gguf", "DeepSeek-V3-Q4_K_M"),
        ("/m/Qwen3-0.6B", "Qwen3-0.6B"),
        ("/m/Qwen3-0.6B/config.json", "Qwen3-0.6B"),
        ("/m/Qwen3-0.6B/model-00001-of-00002.safetensors", "Qwen3-0.6B"),
        ("/m/한국어 모델.gguf", "한국어 모델"),
    ],
)
def test_a_model_is_called_by_its_file_or_folder(path: str, name: str) -> None:
    assert file_name(Path(path)) == name


@pytest.mark.parametrize(
    ("likely", "text"),
    [
        (12852, "about 13\u202f000"),
        (158, "about 160"),
        (57.4, "about 57"),
        (9.6, "about 10"),
        (9.4, "about 9.4"),
        (0.13, "about 0.1"),
    ],
)
def test_a_likely_figure_is_no_more_exact_than_a_prediction(likely: float, text: str) -> None:
    assert about(Range(likely / 2, likely, likely * 2)) == text


def test_thousands_are_set_apart_everywhere_alike() -> None:
    assert [rate(value) for value in (58.34, 99.96, 1755.2)] == ["58.3", "100", "1\u202f755"]
    assert rate_range(Range(950, 1200, 1440)) == "950 to 1\u202f440"
    assert tr("%n tokens", n=1755).startswith(rate(1755.2))
