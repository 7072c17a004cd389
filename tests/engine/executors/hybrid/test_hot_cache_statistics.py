"""What is known of a model's experts survives a restart, and a broken file never does harm."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.executors.hybrid import hot_cache_statistics as kept
from engine.executors.hybrid.hot_cache import HotCache

LAYERS = (1, 3)


def checkpoint(name: str = "model", nbytes: int = 1000) -> Any:
    info = SimpleNamespace(format="Q4_0", shape=(4, 8))
    return SimpleNamespace(name=name, nbytes=nbytes, tensors={"a": info, "b": info})


@pytest.fixture
def uses() -> np.ndarray:
    return np.random.default_rng(0).random((2, 6)).astype(np.float32) * 50


def test_a_cache_begins_with_what_the_last_one_knew(tmp_path: Path, uses: np.ndarray) -> None:
    assert kept.read(tmp_path, checkpoint(), LAYERS, 6) is None
    assert kept.write(tmp_path, checkpoint(), LAYERS, uses)
    again = kept.read(tmp_path, checkpoint(), LAYERS, 6)
    assert again is not None
    np.testing.assert_allclose(again / again.max(), uses / uses.max(), rtol=2e-3)
    first, second = (HotCache(LAYERS, 6, 4, statistics=values) for values in (uses, again))
    assert first.fill() == second.fill()
    (file,) = (tmp_path / kept.FOLDER).iterdir()
    assert file.stat().st_size < 200


def test_models_do_not_get_each_others(tmp_path: Path, uses: np.ndarray) -> None:
    kept.write(tmp_path, checkpoint(), LAYERS, uses)
    assert kept.read(tmp_path, checkpoint("other"), LAYERS, 6) is None
    assert kept.read(tmp_path, checkpoint(nbytes=1001), LAYERS, 6) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: b"something else entirely",
        lambda data: data.replace(b"experts 1", b"experts 2"),
        lambda data: data.replace(b'"experts": 6', b'"experts": 9'),
        lambda data: data.replace(b'{"layers"', b'["layers"'),
        lambda data: data[:-2] + b"\x00\x7e",  # NaN
        lambda data: data[:-2] + b"\x00\xc0",  # -2
    ],
)
def test_a_broken_file_is_ignored_with_a_line_in_the_log(
    tmp_path: Path, uses: np.ndarray, spoil: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    kept.write(tmp_path, checkpoint(), LAYERS, uses)
    (file,) = (tmp_path / kept.FOLDER).iterdir()
    file.write_bytes(spoil(file.read_bytes()))
    with caplog.at_level(logging.WARNING):
        assert kept.read(tmp_path, checkpoint(), LAYERS, 6) is None
    assert "ignored" in caplog.text
    assert kept.write(tmp_path, checkpoint(), LAYERS, uses)
    assert kept.read(tmp_path, checkpoint(), LAYERS, 6) is not None


def test_nothing_is_written_where_nothing_was_called(tmp_path: Path) -> None:
    assert not kept.write(tmp_path, checkpoint(), LAYERS, np.zeros((2, 6)))
    assert not kept.write(tmp_path, checkpoint(), LAYERS, np.full((2, 6), np.nan))
    assert not (tmp_path / kept.FOLDER).exists()


def test_a_folder_that_cannot_be_written_costs_no_answer(
    tmp_path: Path, uses: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / kept.FOLDER).write_text("a file in the way")
    assert not kept.write(tmp_path, checkpoint(), LAYERS, uses)
    assert "not kept" in caplog.text


def test_the_oldest_models_are_forgotten(tmp_path: Path, uses: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_MODELS", 2)
    import os

    for age, name in enumerate(["c", "b", "a"]):
        kept.write(tmp_path, checkpoint(name), LAYERS, uses)
        path = tmp_path / kept.FOLDER / f"{kept.identity(checkpoint(name))}.bin"
        if path.exists():
            os.utime(path, (1000 + age, 1000 + age))
    kept.write(tmp_path, checkpoint("d"), LAYERS, uses)
    found = [name for name in "abcd" if kept.read(tmp_path, checkpoint(name), LAYERS, 6) is not None]
    assert found == ["a", "d"]
