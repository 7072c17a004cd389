from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine import own_folders
from engine.checkpoints.opening import open_checkpoint
from engine.errors import GreenroomError
from engine.hub import headers
from engine.hub.headers import fetch_headers
from engine.hub.network import NetworkSettings
from engine.hub.repository import Hub, RemoteFile, RemoteModel
from tests.canary import Canary
from tests.fake_hub import COMMIT, FakeHub, Fault


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


def hostile(commit: str, label: str = "Q4_0", paths: tuple[str, ...] = ("m-Q4_0.gguf",)) -> RemoteModel:
    files = tuple(RemoteFile(path, 100, None, None) for path in paths)
    return RemoteModel("maker/demo", commit, label, "m", "gguf", files)


@pytest.mark.parametrize("climbs", ["../../../user", "{user}"])
def test_what_a_hub_says_of_commit_and_label_leads_nowhere(hub: FakeHub, tmp_path: Path, climbs: str) -> None:
    user = tmp_path / "user"
    user.mkdir()
    (user / "precious").write_bytes(b"precious")
    canary, settings = Canary(user), NetworkSettings(endpoint=hub.url, stall_s=2)
    climbs = climbs.format(user=user)
    for model in (hostile(climbs), hostile(COMMIT, climbs), hostile(COMMIT, paths=(f"{climbs}/precious",))):
        with pytest.raises(GreenroomError):
            fetch_headers(model, settings, folder=tmp_path / "cache/headers")
    canary.check()
    assert list((tmp_path / "cache/headers").iterdir()) == []


def test_two_models_of_one_label_are_kept_apart(hub: FakeHub, demo_model: Path, tmp_path: Path) -> None:
    content = demo_model.read_bytes()
    hub.add("maker/demo", {"a-Q4_1.gguf": content, "b-Q4_1.gguf": content})
    settings = NetworkSettings(endpoint=hub.url, stall_s=2)
    for model in Hub(settings).repository("maker/demo").models:
        assert open_checkpoint(fetch_headers(model, settings, folder=tmp_path)).path.name == model.files[0].path


def test_headers_that_the_system_has_thinned_out_are_fetched_again(
    hub: FakeHub, demo_model: Path, tmp_path: Path
) -> None:
    hub.add("maker/demo", {"demo-Q4_1.gguf": demo_model.read_bytes()})
    model, settings = listed(hub, "maker/demo")
    path = fetch_headers(model, settings, folder=tmp_path)
    path.unlink()
    assert fetch_headers(model, settings, folder=tmp_path) == path
    assert open_checkpoint(path).architecture


def test_a_folder_of_somebody_else_in_their_place_stays(hub: FakeHub, demo_model: Path, tmp_path: Path) -> None:
    hub.add("maker/demo", {"demo-Q4_1.gguf": demo_model.read_bytes()})
    model, settings = listed(hub, "maker/demo")
    place = fetch_headers(model, settings, folder=tmp_path).parent
    (place / own_folders.MARK).unlink()
    canary = Canary(place)
    with pytest.raises(GreenroomError, match="did not make it"):
        fetch_headers(model, settings, folder=tmp_path)
    canary.check()


def test_two_programs_fetch_the_same_headers_at_once(hub: FakeHub, demo_model: Path, tmp_path: Path) -> None:
    hub.add("maker/demo", {"demo-Q4_1.gguf": demo_model.read_bytes()})
    model, settings = listed(hub, "maker/demo")
    barrier = threading.Barrier(4)

    def fetch() -> Path:
        barrier.wait()
        return fetch_headers(model, settings, folder=tmp_path)

    with ThreadPoolExecutor(4) as pool:
        found = {future.result() for future in [pool.submit(fetch) for _ in range(4)]}
    assert len(found) == 1
    assert open_checkpoint(found.pop()).architecture
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("nbytes", [0, 1, 7, 8])
def test_a_file_too_short_for_a_header_is_no_endless_wait(hub: FakeHub, tmp_path: Path, nbytes: int) -> None:
    hub.add("maker/soft", {"config.json": b'{"model_type": "llama"}', "model.safetensors": bytes(nbytes)})
    model, settings = listed(hub, "maker/soft")
    folder = fetch_headers(model, settings, folder=tmp_path)
    assert (folder / "model.safetensors").stat().st_size == nbytes
    with pytest.raises(GreenroomError):
        open_checkpoint(folder)


def test_many_large_headers_are_not_all_fetched(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may be as large as it is, but a repository has thousands of files."""
    monkeypatch.setattr(headers, "_MOST_BYTES", 3_000_000)
    header = (1_000_000).to_bytes(8, "little") + bytes(1_100_000)
    files: dict[str, bytes] = {"config.json": b'{"model_type": "llama"}'}
    files |= {f"part-{number}.safetensors": header for number in range(20)}
    hub.add("maker/wide", files)  # type: ignore[arg-type]
    model, settings = listed(hub, "maker/wide")
    with pytest.raises(GreenroomError, match="far too large"):
        fetch_headers(model, settings, folder=tmp_path / "cache")
    assert sum(hub.bytes_sent.values()) <= 3_000_000
    assert list((tmp_path / "cache").iterdir()) == []
