from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine.checkpoints import open_checkpoint
from engine.errors import GreenroomError
from engine.hub import headers
from engine.hub.headers import fetch_headers
from engine.hub.network import NetworkSettings
from engine.hub.repository import Hub, RemoteModel
from tests.fake_hub import FakeHub, Fault


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        yield hub


def listed(hub: FakeHub, repo: str) -> tuple[RemoteModel, NetworkSettings]:
    settings = NetworkSettings(endpoint=hub.url, stall_s=2)
    return Hub(settings).repository(repo).models[0], settings


def test_a_gguf_header_is_fetched_without_the_weights(hub: FakeHub, demo_model: Path, tmp_path: Path) -> None:
    hub.add("maker/demo", {"demo-Q4_1.gguf": demo_model.read_bytes()})
    model, settings = listed(hub, "maker/demo")
    path = fetch_headers(model, settings, folder=tmp_path)
    remote, local = open_checkpoint(path), open_checkpoint(demo_model)
    assert {n: (t.shape, t.format, t.offset, t.nbytes) for n, t in remote.tensors.items()} == {
        n: (t.shape, t.format, t.offset, t.nbytes) for n, t in local.tensors.items()
    }
    assert remote.config == local.config
    assert remote.tokenizer().encode("Hello, world") == local.tokenizer().encode("Hello, world")
    header_bytes = min(t.offset for t in local.tensors.values())
    assert hub.bytes_sent["demo-Q4_1.gguf"] < header_bytes + headers._LARGEST_BLOCK
    # The rest of the file takes no room.
    assert path.stat().st_size == demo_model.stat().st_size
    assert path.stat().st_blocks * 512 <= header_bytes + headers._LARGEST_BLOCK + 65536


def test_a_folder_of_safetensors(hub: FakeHub, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    files: dict[str, bytes] = {"config.json": b'{"model_type": "llama"}'}
    for number in range(3):
        save_file({f"w{number}": np.ones((700, 900), np.float32)}, source / "x")
        files[f"part-{number}.safetensors"] = (source / "x").read_bytes()
    hub.add("maker/soft", files)  # type: ignore[arg-type]
    model, settings = listed(hub, "maker/soft")
    opened = open_checkpoint(fetch_headers(model, settings, folder=tmp_path / "cache"))
    assert {name: tensor.shape for name, tensor in opened.tensors.items()} == dict.fromkeys(
        ("w0", "w1", "w2"), (700, 900)
    )
    assert max(hub.bytes_sent.values()) == headers._TENSORS_BLOCK


def test_headers_are_fetched_once(hub: FakeHub, demo_model: Path, tmp_path: Path) -> None:
    hub.add("maker/demo", {"demo-Q4_1.gguf": demo_model.read_bytes()})
    model, settings = listed(hub, "maker/demo")
    first = fetch_headers(model, settings, folder=tmp_path)
    sent = hub.bytes_sent["demo-Q4_1.gguf"]
    assert fetch_headers(model, settings, folder=tmp_path) == first
    assert hub.bytes_sent["demo-Q4_1.gguf"] == sent


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault("no_range"), "cannot send parts"),
        (Fault("status", status=500), "status 500"),
        (Fault("reset", at=1000), "broke"),
        (Fault("short", at=1000), "broke"),
    ],
    ids=lambda value: value.kind if isinstance(value, Fault) else "",
)
def test_faults_are_sentences_and_leave_nothing_that_looks_whole(
    hub: FakeHub, demo_model: Path, tmp_path: Path, fault: Fault, says: str
) -> None:
    repository = hub.add("maker/demo", {"demo-Q4_1.gguf": demo_model.read_bytes()})
    model, settings = listed(hub, "maker/demo")
    repository.files["demo-Q4_1.gguf"].faults = [fault]
    with pytest.raises(GreenroomError, match=says):
        fetch_headers(model, settings, folder=tmp_path)
    assert open_checkpoint(fetch_headers(model, settings, folder=tmp_path)).architecture


def test_what_is_no_gguf_is_refused_after_one_block(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("maker/odd", {"odd-Q4_0.gguf": os.urandom(3_000_000)})
    model, settings = listed(hub, "maker/odd")
    with pytest.raises(GreenroomError, match="odd-Q4_0"):
        fetch_headers(model, settings, folder=tmp_path)
    assert hub.bytes_sent["odd-Q4_0.gguf"] == headers._FIRST_BLOCK
