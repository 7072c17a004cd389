from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint_files import write_folder
from safetensors.torch import save_file

from engine.checkpoints.opening import open_checkpoint
from engine.errors import GreenroomError


def values(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_dtype_is_read_as_torch_reads_it(dtype: torch.dtype, tmp_path: Path) -> None:
    stored = values(3, 4, 6).to(dtype)
    write_folder(tmp_path / "tiny", {})
    save_file({"w": stored, "b": values(5)}, tmp_path / "tiny" / "model.safetensors")
    checkpoint = open_checkpoint(tmp_path / "tiny")
    expected = stored.float().numpy()
    assert (checkpoint.form, checkpoint.architecture, checkpoint.name) == ("safetensors", "llama", "tiny")
    assert checkpoint.tensors["w"].shape == (3, 4, 6)
    np.testing.assert_array_equal(checkpoint.read_float32("w"), expected)
    np.testing.assert_array_equal(checkpoint.read_float32("w", index=1), expected[1])
    np.testing.assert_array_equal(checkpoint.read_float32("w", index=2, rows=(1, 3)), expected[2, 1:3])
    np.testing.assert_array_equal(checkpoint.read_float32("w", rows=(1, 4)), expected[:, 1:4])
    np.testing.assert_array_equal(checkpoint.read_float32("b", index=4), expected.dtype.type(values(5)[4]))


def sharded(folder: Path, index: bool = True) -> Path:
    write_folder(folder, {})
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for number in range(2):
        file = f"model-0000{number + 1}-of-00002.safetensors"
        save_file({f"w{number}": torch.full((2, 3), float(number))}, folder / file)
        weight_map[f"w{number}"] = file
    if index:
        write_index(folder, weight_map)
    return folder


def write_index(folder: Path, weight_map: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


@pytest.mark.parametrize("index", [True, False])
def test_shards_are_joined(index: bool, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(sharded(tmp_path / "m", index))
    assert sorted(checkpoint.tensors) == ["w0", "w1"]
    np.testing.assert_array_equal(checkpoint.read_float32("w1"), np.ones((2, 3)))


def test_a_file_of_the_folder_opens_the_folder(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "m")
    assert open_checkpoint(folder / "model-00002-of-00002.safetensors").path == folder


def test_a_single_file_comes_before_an_index(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "m")
    save_file({"whole": values(2)}, folder / "model.safetensors")
    assert list(open_checkpoint(folder).tensors) == ["whole"]


def test_an_index_that_names_a_missing_file_is_refused(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "m")
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(GreenroomError, match=r"model-00002-of-00002\.safetensors.*is missing"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    "file", ["../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..\\x.safetensors", "C:x.safetensors", ".."]
)
def test_an_index_never_leads_out_of_its_folder(file: str, tmp_path: Path) -> None:
    save_file({"w0": values(2)}, tmp_path / "x.safetensors")
    folder = sharded(tmp_path / "m")
    write_index(folder, {"w0": file})
    with pytest.raises(GreenroomError, match="outside the model's folder"):
        open_checkpoint(folder)


@pytest.mark.parametrize("weight_map", [None, [], {"w0": 3}, {"w0": None}])
def test_an_index_without_a_map_is_refused(weight_map: Any, tmp_path: Path) -> None:
    folder = sharded(tmp_path / "m")
    write_index(folder, weight_map)
    with pytest.raises(GreenroomError, match="no weight_map"):
        open_checkpoint(folder)


def test_an_index_that_promises_too_much_is_refused(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "m")
    write_index(folder, {"w9": "model-00001-of-00002.safetensors"})
    with pytest.raises(GreenroomError, match='lacks tensor "w9"'):
        open_checkpoint(folder)


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "m", index=False)
    save_file({"w0": values(2)}, folder / "more.safetensors")
    with pytest.raises(GreenroomError, match="is also in"):
        open_checkpoint(folder)


def test_a_dtype_that_is_not_read_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", {"w": np.zeros(3, np.int32)})
    with pytest.raises(GreenroomError, match=r'"w" is stored as I32.*BF16'):
        open_checkpoint(folder)


def test_leftover_buffers_of_positions_and_masks_are_passed_over(tmp_path: Path) -> None:
    buffers = {"position_ids": np.arange(3), "causal_mask": np.ones((2, 2), bool)}
    folder = write_folder(tmp_path / "m", {"w": np.zeros(3, np.float32), **buffers})
    assert list(open_checkpoint(folder).tensors) == ["w"]


def test_a_file_that_lacks_its_last_bytes_tells_the_bytes(tmp_path: Path) -> None:
    file = write_folder(tmp_path / "m", {"w": np.zeros(25_000, np.float32)}) / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(GreenroomError, match=f"ends after {len(whole) - 1:,} of {len(whole):,} bytes"):
        open_checkpoint(tmp_path / "m")


def file_bytes(header: Any, data: int = 64) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data)


def tensor(dtype: Any = "F32", shape: Any = (4,), offsets: Any = (0, 16)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


HOSTILE = {
    "empty": (b"", "it is empty"),
    "seven bytes": (bytes(7), "ends after 7 B"),
    "2^63 header": (struct.pack("<Q", 1 << 63) + bytes(9), "header claims to be"),
    "header of 101 MB": (struct.pack("<Q", 101_000_000) + bytes(9), "header claims to be 101 MB"),
    "header longer than the file": (struct.pack("<Q", 5000) + b"{}", "runs past the end"),
    "no JSON": (file_bytes(b"\x80\x04pickle"), "JSON is damaged"),
    "no UTF-8": (file_bytes(b'{"\xff": 1}'), "JSON is damaged"),
    "no object": (file_bytes([1, 2]), "not an object"),
    "nested without end": (file_bytes(b"[" * 100_000), "JSON is damaged"),
    "number without end": (file_bytes(b'{"a":' + b"9" * 10_000 + b"}"), "JSON is damaged"),
    "tensor twice": (file_bytes(b'{"a": 1, "a": 2}'), "given twice"),
    "negative size": (file_bytes({"w": tensor(shape=[-4])}), "makes no sense"),
    "size no number": (file_bytes({"w": tensor(shape=["4"])}), "makes no sense"),
    "size true": (file_bytes({"w": tensor(shape=[True])}), "makes no sense"),
    "size 4.0": (file_bytes({"w": tensor(shape=[4.0])}), "makes no sense"),
    "shape missing": (file_bytes({"w": {"dtype": "F32", "data_offsets": [0, 16]}}), "makes no sense"),
    "shape overflows": (file_bytes({"w": tensor(shape=[1 << 40, 1 << 40])}), "makes no sense"),
    "2^200": (file_bytes({"w": tensor(shape=[1 << 200])}), "makes no sense"),
    "nine dimensions": (file_bytes({"w": tensor(shape=[1] * 9)}), "makes no sense"),
    "backward offsets": (file_bytes({"w": tensor(offsets=[16, 0])}), "makes no sense"),
    "negative offset": (file_bytes({"w": tensor(offsets=[-16, 0])}), "makes no sense"),
    "one offset": (file_bytes({"w": tensor(offsets=[16])}), "makes no sense"),
    "dtype no text": (file_bytes({"w": tensor(dtype=7)}), "makes no sense"),
    "record no object": (file_bytes({"w": 5}), "makes no sense"),
    "wrong size": (file_bytes({"w": tensor(shape=[5])}), "does not fill its 16 bytes"),
    "beyond the file": (file_bytes({"w": tensor(offsets=[1000, 1016])}), "the file ends after"),
    "overlap": (file_bytes({"a": tensor(), "b": tensor(offsets=[8, 24])}), "claim the same bytes"),
}


def attempt(folder: Path) -> GreenroomError | None:
    """Open within 16 MB; the error, or None when it opened (then every tensor must be readable)."""
    tracemalloc.start()
    try:
        checkpoint = open_checkpoint(folder)
        for record in checkpoint.tensors.values():
            assert len(checkpoint.read(record.name)) == record.nbytes
        return None
    except GreenroomError as error:
        return error
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 16 << 20


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_refused_with_its_reason(case: str, tmp_path: Path) -> None:
    data, reason = HOSTILE[case]
    folder = write_folder(tmp_path / "m", {})
    (folder / "model.safetensors").write_bytes(data)
    error = attempt(folder)
    assert error is not None
    assert reason in str(error)


def test_empty_tensors_are_allowed(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", {"none": np.zeros((0, 3), np.float32), "one": np.ones(1, np.float32)})
    assert open_checkpoint(folder).read_float32("none").shape == (0, 3)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = write_folder(
        tmp_path_factory.mktemp("sound"), {"a": np.ones((3, 4), np.float32), "b": np.ones(5, np.float16)}
    )
    return (folder / "model.safetensors").read_bytes()


@pytest.fixture
def place(tmp_path: Path) -> Callable[[bytes], Path]:
    folder = write_folder(tmp_path / "m", {})

    def put(data: bytes) -> Path:
        (folder / "model.safetensors").write_bytes(data)
        return folder

    return put


def test_a_file_cut_at_any_byte_is_refused(sound: bytes, place: Callable[[bytes], Path]) -> None:
    for length in range(len(sound)):
        assert attempt(place(sound[:length])) is not None
    assert attempt(place(sound)) is None
