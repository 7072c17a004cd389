"""The JSON in a file or an archive that somebody imports, with every size bounded before anything is made of it.

Nothing is unpacked onto the disk, and no name in an archive is a path for us.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from json.decoder import scanstring
from pathlib import Path
from typing import Any, BinaryIO

from app.folders import holds_chats
from app.language import tr
from engine.errors import GreenroomError
from engine.regular_files import open_to_read

#: Of a file, and of what is packed in an archive.
MOST_BYTES = 512_000_000
#: Objects and lists, which take up to 120 bytes of memory each, and commas, which stand before values of up to 70.
#: A message has about twenty of either.
MOST_PARTS, MOST_VALUES = 8_000_000, 24_000_000
#: Bytes of an archive's list of files: some 80,000 of them, as an export with pictures and sound may have.
MOST_DIRECTORY = 8_000_000
#: Lists of chats in one archive.
MOST_LISTS = 1000
#: Bytes that are read at once.
PIECE = 1 << 20
#: In an archive of ChatGPT's; a large one is split: conversations-000.json, conversations-001.json ...
_CONVERSATIONS = re.compile(r"conversations(-\d{1,9})?\.json")
_SPACE = re.compile(r"[ \t\n\r]*")

#: Told now and then how much is done of how much. May raise Cancelled.
Told = Callable[[int, int], None]


def load(path: Path, told: Told) -> Iterator[Any]:
    """What the JSON of a file says, or that of each list of chats in an archive. Raises GreenroomError."""
    parts = values = 0
    for data in _texts(path, told):
        parts += data.count(b"{") + data.count(b"[")
        values += data.count(b",")
        if parts > MOST_PARTS or values > MOST_VALUES:
            raise refused(path, tr("it is too complex to be a chat export"))
        try:
            yield parse(data.decode("utf-8-sig"), told)
        except RecursionError as error:
            raise refused(path, tr("it is nested too deeply")) from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise refused(path, tr("it is not valid JSON, or it is truncated")) from error
        except ValueError as error:  # Python makes no number of so many digits
            raise refused(path, tr("a number in it is too long")) from error


def refused(path: Path, why: str) -> GreenroomError:
    return GreenroomError(tr("{name} was not imported", name=path.name), why, tr("Choose another file."))


def _texts(path: Path, told: Told) -> Iterator[bytes]:
    try:
        if path.exists() and not path.is_file():
            raise refused(path, tr("it is not a regular file"))
        if holds_chats(path):
            raise refused(path, tr("Greenroom stores its chats in it"))
        with open_to_read(path) as file:
            if zipfile.is_zipfile(file):
                yield from _unpacked(file, path, told)
                return
            file.seek(0)
            if os.fstat(file.fileno()).st_size > MOST_BYTES or len(data := _read(file, MOST_BYTES, told)) > MOST_BYTES:
                raise refused(path, tr("it is larger than {size} MB", size=MOST_BYTES // 1_000_000))
        if not data:
            raise refused(path, tr("it is empty"))
        yield data
    except OSError as error:
        raise refused(path, (error.strerror or str(error)).lower()) from error


def _unpacked(file: BinaryIO, path: Path, told: Told) -> Iterator[bytes]:
    left = MOST_BYTES
    try:
        with zipfile.ZipFile(_Bounded(file)) as archive:  # type: ignore[arg-type]
            found = [i for i in archive.infolist() if _CONVERSATIONS.fullmatch(i.filename.rsplit("/", 1)[-1])]
            if not found:
                raise refused(path, tr("it contains no conversations.json"))
            if len(found) > MOST_LISTS:
                raise refused(path, tr("it has more than {most} lists of chats", most=MOST_LISTS))
            for info in sorted(found, key=lambda info: info.filename):
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    # Others may ask for gigabytes of memory before the first byte.
                    raise refused(path, tr("it uses an unsupported compression method"))
                with archive.open(info) as member:
                    # Not by the size the archive states: that may be a lie.
                    data = _read(member, left, told)
                left -= len(data)
                if left < 0:
                    size = MOST_BYTES // 1_000_000
                    raise refused(path, tr("it is larger than {size} MB when unpacked", size=size))
                yield data
    except (zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError, RuntimeError, EOFError) as error:
        raise refused(path, tr("the archive is damaged or password-protected")) from error


class _Bounded:
    """A file for `zipfile`, which reads the list of files at once, however long it says it is."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if size > MOST_DIRECTORY:
            raise zipfile.BadZipFile("the list of files is too long")
        # To the end is asked for only where a comment of 64 KB may be the last thing.
        return self._file.read(size if size >= 0 else 1 << 17)


def _read(file: Any, most: int, told: Told) -> bytes:
    """At most one byte more than `most`."""
    pieces, size = [], 0
    while size <= most and (piece := file.read(min(PIECE, most + 1 - size))):
        told(0, 0)
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def parse(text: str, told: Told) -> Any:
    """What `json.loads` makes of it, piece by piece: the interpreter's other threads get their turn in between.

    A list, and the lists in an object, are read entry by entry. Raises as `json.loads`.
    """
    value, end = _value(text, _skip(text, 0), told)
    if _skip(text, end) != len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return value


_decode = json.JSONDecoder().raw_decode


def _skip(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    assert found is not None
    return found.end()


def _value(text: str, place: int, told: Told) -> tuple[Any, int]:
    opening = text[place : place + 1]
    if opening == "[":
        return _list(text, place, told)
    return _object(text, place, told) if opening == "{" else _decode(text, place)


def _list(text: str, place: int, told: Told) -> tuple[list[Any], int]:
    items: list[Any] = []
    place = _skip(text, place + 1)
    if text[place : place + 1] == "]":
        return items, place + 1
    while True:
        item, end = _decode(text, place)
        items.append(item)
        place, more = _next(text, end, "]")
        if not more:
            return items, place
        if len(items) % 50 == 0:
            told(place, len(text))


def _object(text: str, place: int, told: Told) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    place = _skip(text, place + 1)
    if text[place : place + 1] == "}":
        return found, place + 1
    while True:
        if text[place : place + 1] != '"':
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, place)
        name, end = scanstring(text, place + 1, True)
        end = _skip(text, end)
        if text[end : end + 1] != ":":
            raise json.JSONDecodeError("Expecting ':' delimiter", text, end)
        end = _skip(text, end + 1)
        found[name], end = _list(text, end, told) if text[end : end + 1] == "[" else _decode(text, end)
        place, more = _next(text, end, "}")
        if not more:
            return found, place


def _next(text: str, end: int, closing: str) -> tuple[int, bool]:
    """Where it goes on after an entry, and whether another entry is there."""
    end = _skip(text, end)
    sign = text[end : end + 1]
    if sign not in (",", closing):
        raise json.JSONDecodeError("Expecting ',' delimiter", text, end)
    return (_skip(text, end + 1), True) if sign == "," else (end + 1, False)
