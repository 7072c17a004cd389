"""Files as attachments: text in any usual coding, and one clear sentence for what is none."""

from __future__ import annotations

import pytest

from app.chat.composing import attaching
from app.chat.composing.attaching import beginning, read_text_file, with_attachments
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
        (b"ELF\x00\x01\x02", "it is no text"),
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
