"""Models that other programs downloaded, found where they lie and used in place.

LM Studio, Ollama, the Hugging Face cache, GPT4All and Jan. Only names and sizes are read here, nothing is written.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.checkpoints.gguf import plain_stem, shard_number
from engine.clean_text import clean_text

_log = logging.getLogger(__name__)

_MANIFEST_BYTES = 1 << 20
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})\Z")
_MAX_FILES = 20_000


@dataclass(frozen=True)
class ForeignModel:
    """program: "Ollama"; name: what that program calls it; path: what `open_checkpoint` accepts; nbytes: on disk."""

    program: str
    name: str
    path: Path
    nbytes: int


def find(home: Path | None = None) -> list[ForeignModel]:
    """Every model of every program that is here, by program and name; each file once."""
    home = home or Path.home()
    data, seen = _data_folder(home), set[Path]()
    searches = (
        ("LM Studio", _tree, (home / ".lmstudio/models", home / ".cache/lm-studio/models")),
        ("Ollama", _ollama, (_from_environment("OLLAMA_MODELS") or home / ".ollama/models",)),
        ("Hugging Face cache", _hub_cache, (_hub_folder(home),)),
        ("GPT4All", _tree, (data / "nomic.ai/GPT4All",)),
        ("Jan", _tree, (data / "Jan/data/llamacpp/models", data / "Jan/data/models", home / "jan/models")),
    )
    found = []
    for program, search, folders in searches:
        for folder in folders:
            try:
                models = sorted(search(folder), key=lambda model: model[0].casefold()) if folder.is_dir() else []
            except OSError as error:
                _log.info("%s's models in %s cannot be listed: %s", program, folder, error)
                continue
            for name, path, nbytes in models:
                real = path.resolve()
                if real not in seen:
                    seen.add(real)
                    found.append(ForeignModel(program, clean_text(name), path, nbytes))
    return found


_Found = tuple[str, Path, int]


def _tree(folder: Path) -> Iterator[_Found]:
    """GGUF files anywhere below; a split one by its first part."""
    sizes: dict[Path, int] = {}
    first: dict[Path, Path] = {}
    for path in _files(folder, ".gguf"):
        if path.name.lower().startswith("mmproj"):
            continue
        whole = path.with_name(plain_stem(path.name))
        sizes[whole] = sizes.get(whole, 0) + path.stat().st_size
        if shard_number(path.name) in (None, 1):
            first[whole] = path
    for whole, path in first.items():
        yield whole.relative_to(folder).as_posix(), path, sizes[whole]


def _ollama(folder: Path) -> Iterator[_Found]:
    """Manifests name blobs by digest; the model's own layer is a GGUF file."""
    manifests = folder / "manifests"
    for path in _files(manifests, ""):
        parts = path.relative_to(manifests).parts
        try:
            if len(parts) != 4 or path.stat().st_size > _MANIFEST_BYTES:
                continue
            layers = json.loads(path.read_bytes()).get("layers", [])
            digests = [
                match[1]
                for layer in layers
                if layer.get("mediaType") == "application/vnd.ollama.image.model"
                and (match := _DIGEST.match(str(layer.get("digest"))))
            ]
        except (OSError, ValueError, AttributeError, TypeError, RecursionError):
            _log.info("%s is no manifest", path)
            continue
        host, owner, model, tag = parts
        blob = folder / "blobs" / f"sha256-{digests[0]}" if digests else None
        if blob is not None and blob.is_file():
            name = model if (host, owner) == ("registry.ollama.ai", "library") else f"{owner}/{model}"
            yield f"{name}:{tag}", blob, blob.stat().st_size


def _hub_cache(folder: Path) -> Iterator[_Found]:
    """models--owner--name/snapshots/commit/...: GGUF files, and folders of safetensors that are whole."""
    for repository in sorted(folder.glob("models--*--*")):
        name = "/".join(repository.name.split("--")[1:])
        # Of several snapshots the newest; the others mostly share its files.
        snapshots = sorted((repository / "snapshots").glob("*"), key=lambda path: path.stat().st_mtime)
        if not snapshots:
            continue
        newest = snapshots[-1]
        for stem, path, nbytes in _tree(newest):
            yield f"{name}/{stem}", path, nbytes
        weights = list(newest.glob("*.safetensors"))
        if weights and (newest / "config.json").exists() and all(path.exists() for path in weights):
            yield name, newest, sum(path.stat().st_size for path in weights)


def _files(folder: Path, ending: str) -> Iterator[Path]:
    """Files below folder with this ending, links to files included; a bounded number."""
    count = 0
    for parent, folders, names in os.walk(folder):
        count += len(folders)
        for name in sorted(names):
            count += 1
            if count > _MAX_FILES:
                _log.info("%s holds more files than are looked at", folder)
                return
            path = Path(parent, name)
            if name.lower().endswith(ending) and path.is_file():
                yield path


def _data_folder(home: Path) -> Path:
    """Where programs keep data for one user."""
    if sys.platform == "win32":
        return _from_environment("LOCALAPPDATA") or home / "AppData/Local"
    if sys.platform == "darwin":
        return home / "Library/Application Support"
    return _from_environment("XDG_DATA_HOME") or home / ".local/share"


def _hub_folder(home: Path) -> Path:
    chosen = _from_environment("HF_HUB_CACHE")
    base = _from_environment("HF_HOME") or (_from_environment("XDG_CACHE_HOME") or home / ".cache") / "huggingface"
    return chosen or base / "hub"


def _from_environment(name: str) -> Path | None:
    value = os.environ.get(name)
    return Path(value).expanduser() if value else None
