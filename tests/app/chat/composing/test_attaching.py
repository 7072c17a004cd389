"""Files as attachments: text in any usual coding, and one clear sentence for what is none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from app.chat.composing import attaching
from app.chat.composing.attaching import beginning, pasted, read_text_file, with_attachments
from app.chat.storage.records import Attachment
from engine.errors import GreenroomError


@pytest.mark.parametrize(
    "data",
    ["Größe\n한국어".encode(), "Größe\n한국어".encode("utf-8-sig"), "Größe\r\n한국어".encode("utf-16")],
)
def test_codings(tmp_path, data):
    path = tmp_path / "notes.txt"
    path.write_bytes(data)
    assert read_text_file(path) == Attachment("notes.txt", "Größe\n한국어", 9)


def test_an_old_windows_file(tmp_path):
    path = tmp_path / "alt.txt"
    path.write_bytes("Größe – 5 €".encode("cp1252"))
    assert read_text_file(path).text == "Größe – 5 €"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"%PDF-1.7 ...", "it is a PDF"),
        (b"PK\x03\x04 docx", "it is an archive"),
        (b"\x89PNG\r\n", "it is a picture"),
        (b"ELF\x00\x01\x02", "it is not a text file"),
        (b" \n ", "it is empty"),
        (b"x" * 101, "larger than"),
    ],
)
def test_what_is_no_text(tmp_path, monkeypatch, data, why):
    monkeypatch.setattr(attaching, "MOST_BYTES", 100)
    path = tmp_path / "thing"
    path.write_bytes(data)
    with pytest.raises(GreenroomError, match=why) as refused:
        read_text_file(path)
    assert refused.value.what == "thing was not attached"


def test_folders_and_missing_files(tmp_path):
    with pytest.raises(GreenroomError, match="folder"):
        read_text_file(tmp_path)
    with pytest.raises(GreenroomError, match="no such file"):
        read_text_file(tmp_path / "missing.txt")


def test_the_beginning_ends_with_a_line():
    whole = Attachment("a", "first line\nsecond line\nthird", 28)
    assert beginning(whole, 25).text == "first line\nsecond line"
    assert not beginning(whole, 25).whole
    assert beginning(whole, 12).text == "first line"
    assert beginning(whole, 100) == whole
    assert beginning(Attachment("a", "x" * 50, 50), 10).text == "x" * 10


def test_without_a_question_the_files_stand_alone():
    assert with_attachments("", [Attachment("a", "b", 1)]) == '<file name="a">\nb\n</file>'
    assert with_attachments("q", []) == "q"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no such files here")
def test_what_never_ends_or_never_comes_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "link.txt").symlink_to("/dev/zero")
    (tmp_path / "round.txt").symlink_to(tmp_path / "round.txt")
    (tmp_path / "folder.txt").symlink_to(tmp_path)
    for name, why in (
        ("pipe.txt", "it is not a regular file"),
        ("link.txt", "it is not a regular file"),
        ("round.txt", "too many levels of symbolic links"),
        ("folder.txt", "it is a folder"),
    ):
        with pytest.raises(GreenroomError) as refused:
            read_text_file(tmp_path / name)
        assert refused.value.why == why


def test_a_huge_file_with_nothing_in_it_is_refused(tmp_path):
    path = tmp_path / "sparse.txt"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(GreenroomError, match="larger than 20 MB"):
        read_text_file(path)


@pytest.mark.skipif(not os.path.exists("/proc/self"), reason="no such files here")
@pytest.mark.parametrize("name", ["/proc/self/pagemap", "/proc/self/mem"])
def test_files_of_the_system_are_read_to_a_bound_or_refused(name):
    with pytest.raises(GreenroomError) as refused:
        read_text_file(Path(name))
    assert refused.value.what == f"{Path(name).name} was not attached"


@pytest.mark.skipif(sys.platform == "win32", reason="no such names there")
def test_a_name_that_steers_is_cleaned(tmp_path):
    path = tmp_path / "a\n\x1b[2J\u202etxt.exe"
    path.write_text("x")
    assert read_text_file(path).name == "a \ufffd[2Jtxt.exe"


def test_a_paste_without_end_is_refused(monkeypatch):
    assert pasted("x" * 1000).whole
    monkeypatch.setattr(attaching, "MOST_BYTES", 1000)
    with pytest.raises(GreenroomError, match="longer than 1\u202f000 characters"):
        pasted("x" * 1001)
