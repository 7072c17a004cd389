"""Archives and JSON made to hurt: bounded before memory is spent, one sentence, nothing on the disk."""

from __future__ import annotations

import contextlib
import json
import os
import random
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
from fuzzing import Fuzzer

from app.chat.storage import loading
from app.chat.storage.importing import read
from app.chat.storage.loading import parse
from engine.errors import Cancelled, GreenroomError

NODE = {
    "a": {"message": {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["hi"]}}, "children": []}
}
CHATS = json.dumps([{"title": "t", "mapping": NODE}])

NONE = "it is not a Greenroom, ChatGPT or LM Studio export"
DAMAGED, ENDS = "the archive is damaged or password-protected", "it is not valid JSON, or it is truncated"


def archive(path: Path, entries: dict[str, str | bytes], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as made:
        for name, content in entries.items():
            made.writestr(name, content)
    return path


def why(path: Path) -> str:
    with pytest.raises(GreenroomError) as refused:
        read(path)
    assert refused.value.what == f"{path.name} was not imported"
    assert refused.value.remedy
    return refused.value.why


def test_an_archive_that_unpacks_to_gigabytes_stops_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "MOST_BYTES", 20_000_000)
    path = tmp_path / "bomb.zip"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made,
        made.open("conversations.json", "w", force_zip64=True) as member,
    ):
        for _ in range(3000):
            member.write(bytes(1 << 20))
    assert path.stat().st_size < 4_000_000
    tracemalloc.start()
    assert why(path) == "it is larger than 20 MB when unpacked"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60_000_000


def test_the_limit_holds_for_all_lists_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "MOST_PARTS", 1000)
    lists = {f"conversations-{n}.json": "[" + "{}," * 200 + "{}]" for n in range(6)}
    assert why(archive(tmp_path / "a.zip", lists)) == "it is too complex to be a chat export"
    monkeypatch.setattr(loading, "MOST_VALUES", 1000)
    (tmp_path / "a.json").write_text("[" + "1," * 1001 + "1]")
    assert why(tmp_path / "a.json") == "it is too complex to be a chat export"


def test_many_lists_of_chats_are_not_read_one_by_one(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", {f"{n}/conversations.json": "[]" for n in range(loading.MOST_LISTS + 1)})
    assert why(path) == f"it has more than {loading.MOST_LISTS} lists of chats"


def test_an_endless_list_of_files_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """Each entry costs half a kilobyte of memory: eleven million of them fit into a file of half a gigabyte."""
    path = tmp_path / "a.zip"
    size = loading.MOST_DIRECTORY + 1
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(size)
        file.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65535, 65535, size, 0, 0))
    tracemalloc.start()
    assert why(path) == DAMAGED
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_overlapping_entries_count_as_often_as_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One packed text that many entries name."""
    monkeypatch.setattr(loading, "MOST_BYTES", 1_000_000)
    path = archive(tmp_path / "a.zip", {"conversations.json": " " * 100_000 + CHATS})
    whole = path.read_bytes()
    end = whole.rindex(b"PK\x05\x06")
    start = struct.unpack("<L", whole[end + 16 : end + 20])[0]
    entry = whole[start:end]
    count = 500
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(entry) * count, start, 0)
    path.write_bytes(whole[:start] + entry * count + tail)
    assert why(path) in (
        "it is larger than 1 MB when unpacked",
        DAMAGED,  # a newer Python sees it itself
    )


@pytest.mark.parametrize("name", ["../../conversations.json", "/etc/conversations.json", "C:\\x/conversations.json"])
def test_names_in_an_archive_are_no_paths(tmp_path: Path, name: str) -> None:
    before = set(tmp_path.rglob("*"))
    path = archive(tmp_path / "a.zip", {name: CHATS, "../../evil.txt": "x", "\x1b[2Jconversations-x.json": "{"})
    assert [chat.title for chat in read(path)] == ["t"]
    assert set(tmp_path.rglob("*")) == before | {path}


def test_a_link_in_an_archive_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text(CHATS)
    path = tmp_path / "a.zip"
    info = zipfile.ZipInfo("conversations.json")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(info, str(tmp_path / "secret.json"))
    assert why(path) == ENDS


def test_an_archive_in_an_archive_is_not_opened(tmp_path: Path) -> None:
    inner = archive(tmp_path / "inner.zip", {"conversations.json": CHATS}).read_bytes()
    path = archive(tmp_path / "a.zip", {"conversations.json": inner})
    assert why(path) == ENDS
    assert why(archive(tmp_path / "b.zip", {"inner.zip": inner})) == "it contains no conversations.json"


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_packings_that_may_ask_for_gigabytes_are_refused(tmp_path: Path, kind: int) -> None:
    path = archive(tmp_path / "a.zip", {"conversations.json": CHATS}, kind)
    assert why(path) == "it uses an unsupported compression method"


def test_a_locked_archive_and_one_that_lies_about_sizes(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", {"conversations.json": CHATS})
    whole = bytearray(path.read_bytes())
    place = whole.rindex(b"PK\x01\x02")
    for field, lie, size in ((8, 1, 2), (24, 1, 4), (42, 2**31, 4)):
        changed = bytearray(whole)
        changed[place + field : place + field + size] = lie.to_bytes(size, "little")
        path.write_bytes(changed)
        assert why(path) in (DAMAGED, ENDS)
    for field in (20, 24):  # gigabytes, packed and unpacked, which are not there
        changed = bytearray(whole)
        changed[place + field : place + field + 4] = (2**32 - 2).to_bytes(4, "little")
        path.write_bytes(changed)
        assert [chat.title for chat in read(path)] == ["t"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 1_000_000, "it is nested too deeply"),
        ('{"a":' * 1_000_000, "it is nested too deeply"),
        ("[" + "9" * 1_000_000 + "]", "a number in it is too long"),
        ('[{"mapping": {"x": ' + "-" + "9" * 10_000 + "}}]", "a number in it is too long"),
        ('["' + "x" * 100_000, ENDS),
        (
            "[NaN, Infinity]",
            NONE,
        ),
        ("null", NONE),
    ],
)
def test_json_made_to_hurt(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    assert why(path) == said


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no such files here")
def test_what_would_make_us_wait_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    assert why(tmp_path / "pipe.json") == "it is not a regular file"
    (tmp_path / "link.json").symlink_to("/dev/zero")
    assert why(tmp_path / "link.json") == "it is not a regular file"
    assert why(tmp_path) == "it is not a regular file"


def test_a_huge_file_with_nothing_in_it_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert why(path) == "it is larger than 512 MB"


def test_reading_can_be_cancelled_between_pieces_and_entries(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", {"conversations.json": " " * (5 * loading.PIECE) + CHATS})
    for steps in (2, 4):
        left = iter(range(steps))

        def stop(progress: object, left: Any = left) -> None:
            if next(left, None) is None:
                raise Cancelled

        with pytest.raises(Cancelled):
            read(path, progress=stop)
    told: list[int] = []

    def tell(done: int, total: int) -> None:
        told.append(done)
        if len(told) == 3:
            raise Cancelled

    with pytest.raises(Cancelled):
        parse("[" + "{}," * 10_000 + "{}]", tell)
    assert told[-1] < 1000


def nothing(done: int, total: int) -> None:
    pass


CASES = '| |[|[]|[ ]|{}|{ }|[1,]|[1 2]|[,]|{"a"}|{"a":}|{"a":1,}|{"a":1 "b":2}|{a:1}|{"a":[1,2,],"b":3}|[1]x|{"a":[]} '


@pytest.mark.parametrize("text", [*CASES.split("|"), "nul", '{"a":1,"a":[2]}', '"x"', "1e999", "[1\x0b]"])
def test_it_reads_what_json_loads_reads(text: str) -> None:
    assert outcome(parse, text, nothing) == outcome(json.loads, text)


def outcome(reader: Any, *arguments: Any) -> str:
    """The value, or that there is none."""
    try:
        return ascii(reader(*arguments))
    except json.JSONDecodeError:
        return "refused"


MARKS = ('"', ",", ":", "]", "}", "[", "{", " ", "\n", "1", "\x00", "")


def value(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(8 if depth else 6)
    if kind == 6:
        return [value(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind == 7:
        return {rng.choice(("a", "b", "\\", '"', "é")): value(rng, depth - 1) for _ in range(rng.randrange(4))}
    return rng.choice((None, True, 0, -1, 1.5e300, "", "a,]}[{", '"\\', "\ud800", "é\u2028", 2**70))


def test_json_is_read_as_by_the_library_and_refused_as_by_it(fuzzer: Fuzzer) -> None:
    for rng in fuzzer.rounds():
        text = json.dumps(value(rng, 4), indent=rng.choice((None, 1)), ensure_ascii=rng.random() < 0.5)
        for _ in range(rng.randrange(3)):
            place, gone = rng.randrange(len(text) + 1), rng.randrange(2)
            text = text[:place] + rng.choice(MARKS) + text[place + gone :]
        assert outcome(parse, text, nothing) == outcome(json.loads, text), ascii(text)


def test_damaged_archives_are_read_or_refused_in_one_sentence(fuzzer: Fuzzer, tmp_path: Path) -> None:
    """Headers, sizes, names and data of a good export changed; nothing is written anywhere."""
    path = tmp_path / "a.zip"
    whole = archive(
        path, {"conversations-0.json": CHATS, "x/conversations-1.json": CHATS * 1, "chat.html": "x" * 500}
    ).read_bytes()
    fields = [found for sign in (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06") for found in _all(whole, sign)]
    for rng in fuzzer.rounds():
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            kind = rng.randrange(4)
            if kind == 0:  # a field of a header
                place = rng.choice(fields) + rng.randrange(4, 46)
                size = rng.choice((1, 2, 4))
                data[place : place + size] = rng.choice((0, 1, 255, 2 ** (8 * size) - 1)).to_bytes(size, "little")
            elif kind == 1:
                place = rng.randrange(len(data))
                data[place] = rng.randrange(256)
            elif kind == 2:
                del data[rng.randrange(len(data)) :]
                data += whole[-22:]
            else:
                data += whole[rng.randrange(len(whole)) :]
            if not data:
                break
        path.write_bytes(data)
        with contextlib.suppress(GreenroomError):
            assert read(path)
        assert list(tmp_path.iterdir()) == [path]


def _all(data: bytes, sign: bytes) -> list[int]:
    return [place for place in range(len(data)) if data.startswith(sign, place)]
