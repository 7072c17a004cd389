"""Runs that are kept come back as they were, and nothing else is taken for one."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.stage import recording as module
from app.stage.activity import Frame
from app.stage.recording import MAGIC, Recording, open_recording, save_recording
from engine.clean_text import clean_text
from engine.errors import GreenroomError

CELLS = 12


@st.composite
def runs(draw: st.DrawFn) -> Recording:
    run = Recording(draw(st.text(max_size=20)), (0, 3, 4), 4, draw(st.integers(0, 1 << 40)))
    seconds = 0.0
    cells = st.sets(st.integers(0, CELLS - 1)).map(lambda found: np.array(sorted(found), np.uint32))
    for _ in range(draw(st.integers(0, 5))):
        seconds += draw(st.floats(0, 100))
        used = draw(cells)
        counts = np.array([draw(st.integers(1, 1 << 31)) for _ in used], np.uint32)
        run.add(Frame(seconds, draw(st.integers(0, 1 << 31)), used, counts, draw(cells)))
    return run


@given(runs())
def test_a_run_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, run: Recording) -> None:
    path = tmp_path_factory.mktemp("runs") / "a.stage"
    save_recording(run, path)
    again = open_recording(path)
    assert again.model == clean_text(run.model)
    assert (again.layers, again.experts, again.expert_bytes) == ((0, 3, 4), 4, run.expert_bytes)
    assert len(again.frames) == len(run.frames)
    for first, second in zip(run.frames, again.frames, strict=True):
        assert (first.seconds, first.tokens) == (second.seconds, second.tokens)
        for name in ("used", "counts", "moved"):
            np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def run_of(seconds: int) -> Recording:
    """48 x 128 experts at 15 frames a second, about 50 tokens a second."""
    rng = np.random.default_rng(0)
    run = Recording("Qwen3-30B-A3B", tuple(range(48)), 128, 3_000_000)
    for number in range(seconds * 15):
        used = np.flatnonzero(rng.random(48 * 128) < 0.19).astype(np.uint32)
        counts = rng.integers(1, 3, len(used)).astype(np.uint32)
        run.add(Frame(number / 15, number * 3, used, counts, np.array([], np.uint32)))
    return run


def test_a_minute_is_a_small_file(tmp_path: Path) -> None:
    save_recording(run_of(10), tmp_path / "a.stage")
    assert (tmp_path / "a.stage").stat().st_size * 6 < 2_500_000


def test_a_long_run_keeps_its_beginning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 100_000)
    run = run_of(2)
    assert run.full
    assert 0 < len(run.frames) < 30
    save_recording(run, tmp_path / "a.stage")
    again = open_recording(tmp_path / "a.stage")
    assert again.full
    assert len(again.frames) == len(run.frames)
    monkeypatch.undo()
    monkeypatch.setattr(module, "MOST_FRAMES", 5)
    run = run_of(2)
    assert run.full
    assert len(run.frames) == 5


def packed(header: bytes, body: bytes) -> bytes:
    return MAGIC + struct.pack("<I", len(header)) + header + zlib.compress(body)


HEADER = b'{"model": "m", "layers": [0, 1], "experts": 3, "expert_bytes": 0}'
FRAME = struct.pack("<dIII", 1.0, 1, 1, 0) + struct.pack("<II", 2, 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04 something else",
        MAGIC,
        MAGIC + struct.pack("<I", 1 << 30) + b"{}",
        packed(b"[]", b""),
        packed(b"not json", b""),
        packed(b"[" * 60_000, b""),
        packed(b'{"layers": [], "experts": 3, "expert_bytes": 0}', b""),
        packed(b'{"layers": [0], "experts": 0, "expert_bytes": 0}', b""),
        packed(b'{"layers": [true], "experts": 1, "expert_bytes": 0}', b""),
        packed(b'{"layers": [0], "experts": 99999999, "expert_bytes": 0}', b""),
        packed(b'{"layers": [0], "experts": 3, "expert_bytes": -1}', b""),
        packed(HEADER, FRAME)[:-3],
        packed(HEADER, FRAME[:-2]),
        packed(HEADER, struct.pack("<dIII", float("nan"), 1, 0, 0)),
        packed(HEADER, struct.pack("<dIII", 2.0, 1, 0, 0) + struct.pack("<dIII", 1.0, 1, 0, 0)),
        packed(HEADER, struct.pack("<dIII", 1.0, 1, 7, 0) + bytes(56)),
        packed(HEADER, struct.pack("<dIII", 1.0, 1, 1, 0) + struct.pack("<II", 6, 1)),
        packed(HEADER, struct.pack("<dIII", 1.0, 1, 2, 0) + struct.pack("<IIII", 1, 0, 1, 1)),
    ],
)
def test_what_is_no_run_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.stage"
    path.write_bytes(data)
    with pytest.raises(GreenroomError, match=r"x\.stage could not be opened"):
        open_recording(path)


def test_a_small_file_cannot_unpack_to_a_huge_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FRAMES_BYTES", 1000)
    path = tmp_path / "bomb.stage"
    path.write_bytes(packed(HEADER, FRAME * 1000))
    with pytest.raises(GreenroomError, match="damaged"):
        open_recording(path)
    # Frames in which nothing happens are the smallest in a file and the largest in memory.
    monkeypatch.undo()
    path.write_bytes(packed(HEADER, bytes(20) * (module.MOST_FRAMES + 1)))
    with pytest.raises(GreenroomError, match="damaged"):
        open_recording(path)


def test_files_that_cannot_be_read_or_written_are_said(tmp_path: Path) -> None:
    with pytest.raises(GreenroomError, match="no such file"):
        open_recording(tmp_path / "nowhere.stage")
    with pytest.raises(GreenroomError, match="could not be saved"):
        save_recording(run_of(1), tmp_path / "no" / "folder.stage")
