from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.checkpoints.opening import open_checkpoint
from engine.hub import other_programs
from tests.engine.hub.test_library import write_folder, write_gguf

DIGEST = "a" * 64


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OLLAMA_MODELS", "HF_HOME", "HF_HUB_CACHE", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(other_programs.sys, "platform", "linux")
    return tmp_path


def write_manifest(ollama: Path, *parts: str, digest: str = DIGEST) -> None:
    path = ollama.joinpath("manifests", *parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    layers = [
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "b" * 64},
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"},
    ]
    path.write_text(json.dumps({"layers": layers}))


def test_nothing_here_finds_nothing(home: Path) -> None:
    assert other_programs.find(home) == []


def test_every_program_is_found_in_place(home: Path) -> None:
    write_gguf(home / ".lmstudio/models/maker/big/Big-Q8_0.gguf", parts=2)
    write_gguf(home / ".lmstudio/models/maker/big/mmproj-big.gguf")
    write_gguf(home / ".local/share/nomic.ai/GPT4All/Tiny.gguf")
    write_gguf(home / ".local/share/Jan/data/llamacpp/models/maker/m/model.gguf")
    ollama = home / ".ollama/models"
    write_gguf(ollama / "blobs/x.gguf", "qwen3moe")
    (ollama / "blobs/x.gguf").rename(ollama / f"blobs/sha256-{DIGEST}")
    write_manifest(ollama, "registry.ollama.ai", "library", "qwen3", "30b")
    snapshot = home / ".cache/huggingface/hub/models--maker--soft/snapshots/c0ffee"
    write_folder(snapshot)
    found = other_programs.find(home)
    assert [(model.program, model.name) for model in found] == [
        ("LM Studio", "maker/big/Big-Q8_0"),
        ("Ollama", "qwen3:30b"),
        ("Hugging Face cache", "maker/soft"),
        ("GPT4All", "Tiny"),
        ("Jan", "maker/m/model"),
    ]
    for model in found:
        with_size = sum(f.stat().st_size for f in model.path.parent.glob("Big*")) if model.name.endswith("0") else None
        assert model.nbytes == (with_size or model.nbytes) > 0
        open_checkpoint(model.path).close()


def test_the_same_file_under_two_names_is_one_model(home: Path) -> None:
    write_gguf(home / ".lmstudio/models/maker/m/M.gguf")
    jan = home / "jan/models/m"
    jan.mkdir(parents=True)
    (jan / "M.gguf").symlink_to(home / ".lmstudio/models/maker/m/M.gguf")
    assert [model.program for model in other_programs.find(home)] == ["LM Studio"]


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b'{"layers": 3}', b'{"layers": [{"mediaType": 1}]}', b"\xff\xfe", b'{"layers": [1]}', b"[" * 50_000],
)
def test_broken_manifests_are_passed_over(home: Path, content: bytes) -> None:
    path = home / ".ollama/models/manifests/registry.ollama.ai/library/m/latest"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert other_programs.find(home) == []


def test_a_manifest_cannot_point_outside_the_blobs(home: Path) -> None:
    write_gguf(home / "secret.gguf")
    write_manifest(home / ".ollama/models", "h", "o", "m", "t", digest="../../../secret.gguf")
    write_manifest(home / ".ollama/models", "h", "o", "m", "gone")
    assert other_programs.find(home) == []


def test_folders_of_their_own_choice_are_honoured(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = home / "elsewhere"
    write_gguf(elsewhere / "models--a--b/snapshots/1/x-Q4_0.gguf")
    monkeypatch.setenv("HF_HUB_CACHE", str(elsewhere))
    assert [model.name for model in other_programs.find(home)] == ["a/b/x-Q4_0"]
