"""Names that come from outside, as paths."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from engine.errors import GreenroomError
from engine.safe_paths import Places, below, inside, is_safe, offered_name

HOSTILE = [
    "../evil.gguf",
    "/etc/evil.gguf",
    "a/../../evil.gguf",
    "a//b.gguf",
    "C:\\evil.gguf",
    "a\\b.gguf",
    "con.gguf",
    "aux",
    "COM¹.gguf",
    "com².gguf",
    "LPT³",
    "conin$",
    "CONOUT$.gguf",
    "nul .gguf",
    "a/prn.x/b.gguf",
    "MODEL~1.GGU",
    "MODELS~2/b.gguf",
    "x\x00.gguf",
    "x\n.gguf",
    "x.gguf\n",
    "a. /b.gguf",
    "a.gguf.",
    "a.gguf ",
    "n" * 241,
    "n" * 300 + ".gguf",
    "/".join("d" * 20) + "/x.gguf",
    "~root.gguf",
    "a:b.gguf",
    "a.gguf::$DATA",
    "\ud800.gguf",
    "\u202efugg.gguf",
    "",
    ".",
]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_are_no_files(name: str, tmp_path: Path) -> None:
    assert not is_safe(name)
    for join in (below, inside):
        with pytest.raises(GreenroomError, match="not a plain file name"):
            join(tmp_path, name)


@pytest.mark.parametrize(
    "name",
    ["m.gguf", "Q4/m-Q4_K_M-00001-of-00002.gguf", "모델 (1).gguf", "console.gguf", "com10.gguf", "m~1-long-name.gguf"],
)
def test_plain_names_are_files(name: str, tmp_path: Path) -> None:
    assert inside(tmp_path, name) == tmp_path / name


def test_the_longest_name_leaves_room_for_the_ending_of_an_unfinished_file(tmp_path: Path) -> None:
    target = inside(tmp_path, "모" * 80)
    target.with_name(target.name + ".part").write_bytes(b"x")


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "models", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "maker").symlink_to(outside)
    (root / "x.gguf").symlink_to(outside / "y.gguf")
    for name in ("maker/model/x.gguf", "x.gguf"):
        with pytest.raises(GreenroomError, match="leads out of"):
            inside(root, name)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a.gguf", "a.gguf"),
        ("a.gguf", "A.GGUF"),
        ("Q4/a.gguf", "q4/a.gguf"),
        (unicodedata.normalize("NFC", "é.gguf"), unicodedata.normalize("NFD", "É.gguf")),
        ("straße.gguf", "STRASSE.gguf"),
        ("a.gguf", "a.gguf.part"),
        ("a.gguf", "A.gguf.PART/b.gguf"),
        ("a.gguf", "a.gguf/b.gguf"),
        ("a/b/c.gguf", "a/b"),
    ],
)
def test_files_that_would_meet_on_some_file_system_are_not_taken_together(first: str, second: str) -> None:
    for order in ((first, second), (second, first)):
        places = Places()
        assert [places.take(name) for name in order] == [True, False]


def test_files_that_only_look_alike_are_taken_together() -> None:
    places = Places()
    assert all(places.take(name) for name in ("a.gguf", "b.gguf", "a/a.gguf", "b/a.gguf", "a-part.gguf"))


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Trip: a/b?", "Trip a b"),
        ("...", "chat"),
        ("여행 일정", "여행 일정"),
        ("x" * 200, "x" * 80),
        ("😀" * 80, "😀" * 50),
        ("a\u202egpj.exe", "a gpj.exe"),
        ("Con", "_Con"),
        ("com1.x", "_com1.x"),
        ("com².x", "_com².x"),
        ("console", "console"),
        ("\ud800x", "x"),
    ],
)
def test_a_title_as_the_name_of_a_file(title: str, name: str) -> None:
    assert offered_name(title, "chat") == name
