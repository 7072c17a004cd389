"""Whatever a hub says a repository holds, and whatever lies in its place already, the user's files stay as they are."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from fuzzing import Fuzzer

from engine.errors import GreenroomError
from engine.hub import headers, repository
from engine.hub.downloads import DownloadManager
from engine.hub.headers import fetch_headers
from engine.hub.library import installed
from engine.hub.network import NetworkSettings
from engine.hub.repository import RemoteFile, RemoteModel
from engine.hub.transfer import FileTransfer
from engine.hub.trash import Trash
from tests.canary import Canary
from tests.fake_hub import COMMIT

SETTINGS = NetworkSettings(endpoint="http://127.0.0.1:9")
SAFETENSORS = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
CONTENT = {
    ".json": b'{"model_type": "llama"}',
    ".safetensors": struct.pack("<Q", len(SAFETENSORS)) + SAFETENSORS + bytes(4),
    ".gguf": b"GGUF" + struct.pack("<IQQ", 3, 0, 0) + bytes(40),
}


def content(path: str) -> bytes:
    return CONTENT.get(os.path.splitext(path)[1].lower(), b"text")


class Source:
    """In place of the network: each file is what its name says."""

    def __init__(self, client: object, url: str, file: RemoteFile, host: str, room: object) -> None:
        self._data = content(file.path).ljust(file.nbytes, b"\0")[: file.nbytes]
        self.nbytes = file.nbytes

    def bytes(self, first: int, nbytes: int) -> bytes:
        return self._data[first : first + nbytes]


def write_all(transfer: FileTransfer) -> None:
    data = content(transfer._file.path).ljust(transfer._file.nbytes, b"\0")[: transfer._file.nbytes]
    transfer._write(data[transfer._have :])


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "_Source", Source)
    monkeypatch.setattr(FileTransfer, "_fetch", write_all)


STEMS = ["a", "b", "A", "con", "COM²", "x" * 250, "모델", "e\u0301", "é", "~", "m~1", "a.gguf", "*", "\ud800"]
FOLDERS = ["", "", "", "Q4/", "q4/", "../", "../../../user/", "{user}/", "a.gguf/", "a.gguf.part/", "./", "/"]
PARTS = ["", "", "-00001-of-00002", "-00002-of-00002", "-00001-of-00001", "-00000-of-00000"]
ENDINGS = [".gguf", ".gguf", ".GGUF", ".safetensors", ".gguf.part", ".gguf ", "\0.gguf", ":x.gguf", ".json"]
WHOLE = ["config.json", "model.safetensors", "tokenizer.json", "model.safetensors.index.json", "precious"]


def hostile_name(rng: random.Random, user: Path, hostility: float) -> str:
    folder, stem, part, ending = (
        rng.choice(choices) if rng.random() < hostility else choices[0] for choices in (FOLDERS, STEMS, PARTS, ENDINGS)
    )
    return folder.format(user=user) + (rng.choice(WHOLE) if rng.random() < 0.4 else stem + part + ending)


def hostile_listing(rng: random.Random, user: Path) -> list[Any]:
    entries: list[Any] = []
    hostility = rng.choice([0.1, 0.5, 1.0])
    for _ in range(rng.randint(1, 12)):
        path: Any = (
            hostile_name(rng, user, hostility) if rng.random() < 0.97 else rng.choice([None, 7, b"x.gguf", ["x"]])
        )
        size = len(content(path)) if isinstance(path, str) else 3
        # Files without a hash are taken by their size.
        entries.append({"type": "file", "path": path, "size": rng.choice([size, size, size, 0]), "oid": None})
    return entries


def lay_traps(rng: random.Random, models: Path, user: Path, listed: list[RemoteModel]) -> None:
    """What another user of a shared disk could have put where files are to come."""
    often = rng.choice([0.0, 0.1, 0.5])
    for model in listed:
        for file in model.files:
            if rng.random() > often:
                continue
            target = models.joinpath(*model.repo.split("/"), *file.path.split("/"))
            part = target.with_name(target.name + ".part")
            place = rng.choice([target, part, part, target.parent, target.parent.parent])
            if place == models:
                continue
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                if os.path.lexists(place) or not place.parent.resolve().is_relative_to(models):
                    continue
                kind = rng.randrange(5)
                if kind == 0:
                    place.symlink_to(user / rng.choice(["precious", "folder", "folder", "missing"]))
                elif kind == 1:
                    place.hardlink_to(user / "precious")
                elif kind == 2:
                    os.mkfifo(place)
                elif kind == 3:
                    place.mkdir()
                else:
                    place.write_bytes(b"begun")
            except OSError:
                continue


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="lays pipes")
@pytest.mark.usefixtures("no_network")
def test_fuzzed_listings_hurt_nobody(fuzzer: Fuzzer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user, models, cache = tmp_path / "user", tmp_path / "models", tmp_path / "cache/headers"
    mine = models / "mine"
    for folder in (user, user / "folder", mine):
        folder.mkdir(parents=True)
        for name in (*WHOLE, "a.gguf", "a.gguf.part", "precious.part"):
            (folder / name).write_bytes(content(name))
    monkeypatch.setenv("HOME", str(user))
    canaries = [Canary(user), Canary(mine)]
    finished = failed = fetched = 0
    for rng in fuzzer.rounds():
        entries = hostile_listing(rng, user)
        files, _ = repository._files(iter(entries), "x")
        repo = rng.choice(["maker/model", "maker/model", "con/aux", "a/b"])
        listed = list(repository.group(repo, COMMIT, files))
        # As if nothing had looked at the listing before.
        raw = [RemoteFile(e["path"], 20, None, None) for e in entries if isinstance(e["path"], str)]
        commit = rng.choice([str(user), "../../../user", "..", "", "main", COMMIT])
        label = rng.choice([str(user), "../..", "x" * 300, "Q4_K_M"])
        forms = ["gguf"] + ["safetensors"] * any(file.path.endswith(".safetensors") for file in raw)
        if raw:
            listed.append(RemoteModel(repo, commit, label, "..", rng.choice(forms), tuple(raw)))
        lay_traps(rng, models, user, listed[:-1])
        for model in listed:
            try:
                opened = fetch_headers(model, SETTINGS, folder=cache)
                assert opened.resolve().is_relative_to(cache.resolve())
                fetched += 1
            except GreenroomError:
                continue
        manager = DownloadManager(models, tmp_path / "downloads.db", SETTINGS)
        manager.start()
        for model in listed:
            try:
                download = manager.add(model)
                state = manager.wait(download, 20).state
            except GreenroomError:
                continue
            assert state in ("finished", "failed")
            finished += state == "finished"
            failed += state == "failed"
            manager.cancel(download)
        manager.close()
        trash = Trash(models)
        for found in installed(models):
            if not found.path.is_relative_to(mine):
                try:
                    trash.delete(found.name, found.path)
                except GreenroomError:
                    continue
        trash.close()
        for canary in canaries:
            canary.check()
        for folder in ("maker", "a", "con", ".trash"):
            shutil.rmtree(models / folder, ignore_errors=True)
        assert {path.name for path in tmp_path.iterdir()} <= {
            "user", "models", "cache", "downloads.db", "downloads.db-wal", "downloads.db-shm"
        }  # fmt: skip
    if fuzzer.count > 50:
        assert min(finished, failed, fetched) > 0, "the fuzzer reaches what it is about"
