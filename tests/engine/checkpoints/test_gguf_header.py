"""Damaged and hostile GGUF files: opened rightly or refused with a sentence, quickly and in little memory."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import write_gguf

from engine.checkpoints.opening import open_checkpoint
from engine.errors import GreenroomError

STRING, ARRAY, UINT32 = 8, 9, 4


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return u64(len(data)) + data


def pair(key: bytes | str, kind: int, value: bytes) -> bytes:
    return text(key) + u32(kind) + value


ARCHITECTURE = pair("general.architecture", STRING, text("llama"))


def record(name: bytes | str = "w", shape: tuple[int, ...] = (4,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + u32(len(shape)) + b"".join(map(u64, shape)) + u32(kind) + u64(offset)


def model(
    *records: bytes,
    keys: tuple[bytes, ...] = (),
    data: int = 1024,
    start: bytes = b"GGUF" + u32(3),
    counts: tuple[int, int] | None = None,
) -> bytes:
    tensors, settings_ = counts or (len(records), 1 + len(keys))
    head = start + u64(tensors) + u64(settings_) + ARCHITECTURE + b"".join(keys) + b"".join(records)
    return head + bytes(-len(head) % 32 + data)


def attempt(path: Path) -> GreenroomError | None:
    """Open within 8 MB; the error, or None when it opened (then every tensor must be readable)."""
    tracemalloc.start()
    try:
        checkpoint = open_checkpoint(path)
        for tensor in checkpoint.tensors.values():
            assert len(checkpoint.read(tensor.name)) == tensor.nbytes
        return None
    except GreenroomError as error:
        return error
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 << 20


def refused(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    error = attempt(path)
    assert error is not None
    assert "\n" not in str(error)
    return str(error)


def test_the_builder_of_these_tests_makes_a_sound_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(model(record()))
    assert attempt(path) is None
    path.write_bytes(model(record(), start=b"GGUF" + u32(2)))
    assert attempt(path) is None


HOSTILE = {
    "empty": (b"", "it is empty"),
    "another kind": (b"PK\x03\x04" + bytes(100), "does not start with the letters GGUF"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "Git LFS pointer"),
    "four bytes": (b"GGUF", "runs past the end"),
    "version 1": (model(start=b"GGUF" + u32(1)), "GGUF version 1"),
    "version 4": (model(start=b"GGUF" + u32(4)), "GGUF version 4"),
    "big-endian": (model(start=b"GGUF" + struct.pack(">I", 3)), "big-endian"),
    "2^60 tensors": (model(counts=(1 << 60, 1)), "tensors: 1,152,921,504,606,846,976,"),
    "2^63 settings": (model(counts=(0, 1 << 63)), "than any model has"),
    "more tensors than there are": (model(record(), counts=(1000, 1)), "cannot be read"),
    "endless key": (model(keys=(u64(1 << 62),)), "runs past the end"),
    "endless string": (model(keys=(pair("k", STRING, u64(1 << 40)),)), "runs past the end"),
    "key too long": (model(keys=(pair(b"k" * 70_000, UINT32, u32(1)),)), "holds a text of 70 kB"),
    "string array of 2^60": (model(keys=(pair("k", ARRAY, u32(STRING) + u64(1 << 60)),)), "claims more strings than"),
    "number array of 2^63": (model(keys=(pair("k", ARRAY, u32(UINT32) + u64(1 << 63)),)), "runs past the end"),
    "array of endless strings": (
        model(keys=(pair("k", ARRAY, u32(STRING) + u64(3) + u64(1 << 63) + bytes(64)),)),
        "runs past the end",
    ),
    "array of arrays": (model(keys=(pair("k", ARRAY, u32(ARRAY) + u64(1) + bytes(64)),)), "array of unknown type 9"),
    "unknown setting type": (model(keys=(pair("k", 77, bytes(8)),)), "unknown type 77"),
    "setting twice": (model(keys=(ARCHITECTURE,)), "twice"),
    "key no text": (model(keys=(pair(b"\xff\xfe", UINT32, u32(1)),)), "no UTF-8"),
    "name no text": (model(record(b"\xc3\x28")), "no UTF-8"),
    "name too long": (model(record(b"n" * 2000)), "holds a text of 2.0 kB"),
    "tensor twice": (model(record("w"), record("w", offset=32)), "twice"),
    "five dimensions": (model(record(shape=(1, 1, 1, 1, 1))), "5 dimensions"),
    "2^31 dimensions": (model(text("w") + u32(1 << 31)), "2,147,483,648 dimensions"),
    "empty dimension": (model(record(shape=(4, 0))), "impossible shape"),
    "shape overflows": (model(record(shape=(1 << 33, 1 << 33))), "impossible shape"),
    "shape wraps to zero": (model(record(shape=(1 << 32, 1 << 32))), "impossible shape"),
    "negative dimension": (model(record(shape=((1 << 64) - 1,))), "impossible shape"),
    "larger than the file": (model(record(shape=(1 << 40,))), "the file ends after 1.2 kB of 4398 GB"),
    "offset beyond the file": (model(record(offset=1 << 62)), "the file ends after"),
    "offset not aligned": (model(record(offset=7)), "multiple of 32"),
    "tensors overlap": (model(record("a", (64,)), record("b", (64,), offset=32)), "claim the same bytes"),
    "half a block": (model(record(shape=(33,), kind=8)), "no whole blocks of Q8_0"),
    "unknown format": (model(record(kind=12345)), "stored as type 12345"),
    "removed format": (model(record(kind=4)), "stored as type 4"),
    "alignment 0": (model(keys=(pair("general.alignment", UINT32, u32(0)),)), "not a power of two"),
    "alignment 3": (model(keys=(pair("general.alignment", UINT32, u32(3)),)), "not a power of two"),
    "alignment 2^31": (model(keys=(pair("general.alignment", UINT32, u32(1 << 31)),)), "not a power of two"),
    "alignment no number": (model(keys=(pair("general.alignment", STRING, text("32")),)), "not a power of two"),
    "many lists": (
        model(keys=tuple(pair(f"k{n}", ARRAY, u32(0) + u64(4096) + bytes(4096)) for n in range(65))),
        "longer lists than any model",
    ),
    "unprintable name": (model(record("\x1b[2J", kind=3000)), r"\\x1b"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_refused_with_its_reason(case: str, tmp_path: Path) -> None:
    data, reason = HOSTILE[case]
    assert reason.replace("\\\\", "\\") in refused(tmp_path, data)


def test_a_header_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    # A hole in the file: it takes no room on the disk.
    path.write_bytes(model(keys=(pair("k", ARRAY, u32(UINT32) + u64(70 << 20)),)))
    with path.open("r+b") as file:
        file.truncate(1 << 30)
    assert "goes on for more than 268 MB" in str(attempt(path))


def test_alignment_moves_the_data(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    head = model(record(shape=(2,)), keys=(pair("general.alignment", UINT32, u32(128)),), data=0)
    head += bytes(-len(head) % 128)
    path.write_bytes(head + np.array([1.5, -2], "<f4").tobytes())
    np.testing.assert_array_equal(open_checkpoint(path).read_float32("w"), [1.5, -2])


def sound_bytes(folder: Path) -> bytes:
    random = np.random.default_rng(1)
    return write_gguf(
        folder / "sound.gguf",
        {"a": (random.normal(size=(4, 64)), "Q8_0"), "b": (random.normal(size=(3, 32)), "F16")},
        llama__block_count=1,
        llama__heads=[1, 2, 3],
        tokenizer__ggml__tokens=["<s>", "hello", "world"],
        tokenizer__ggml__scores=[0.0, -1.0, -2.0],
        tokenizer__chat_template="{{ messages }}",
    ).read_bytes()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return sound_bytes(tmp_path_factory.mktemp("sound"))


def test_a_file_cut_at_any_byte_is_refused(sound: bytes, tmp_path: Path) -> None:
    for length in range(len(sound)):
        # The last tensor's padding is not needed.
        path = tmp_path / "m.gguf"
        path.write_bytes(sound[:length])
        error = attempt(path)
        assert error is not None or length >= len(sound) - 31
