from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.hub.download_words import duration, progress_text
from engine.hub.downloads import DownloadStatus


def status(state: str, done: int, total: int, **changes: Any) -> DownloadStatus:
    values = {"bytes_per_s": 0.0, "remaining_s": None, "error": None, "notice": ""} | changes
    return DownloadStatus(1, "a/b", "Q4_0", "b", "gguf", state, done, total, path=Path("b.gguf"), **values)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            status("downloading", 1_200_000_000, 4_700_000_000, bytes_per_s=34e6, remaining_s=103),
            "1.2 / 4.7 GB (26%) · 34 MB/s · 2 min left",
        ),
        (status("downloading", 5_000_000, 4_700_000_000, bytes_per_s=2.5e6), "5.0 MB / 4.7 GB (0%) · 2.5 MB/s"),
        (status("downloading", 20_400_000, 200_000_000), "20 / 200 MB (10%)"),
        (status("downloading", 999_999, 1_000_000), "1.0 / 1.0 MB (99%)"),
        (status("verifying", 400, 1000), "Verifying 40%"),
        (status("queued", 0, 1000), "Waiting for its turn"),
        (status("queued", 500, 1000), "Waiting for its turn, 50% is here"),
        (status("paused", 260, 1000), "Paused at 26%"),
        (status("failed", 260, 1000), "Stopped at 26%"),
        (status("finished", 4_700_000_000, 4_700_000_000), "4.7 GB"),
    ],
)
def test_how_a_download_stands(given: DownloadStatus, text: str) -> None:
    assert progress_text(given) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (12, "12 s"),
        (100, "2 min"),
        (3900, "1 h 5 min"),
        (7200, "2 h"),
        (50000, "14 h"),
        (260000, "3 days"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
