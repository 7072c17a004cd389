"""The catalogue: Mixture-of-Experts models people want, known without a network.

Each entry carries what a plan needs (its config and its tensors' shapes), so that mode and speed are predicted before
anything is fetched. File sizes that nobody has confirmed are computed from the shapes and say so.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.checkpoints.checkpoint import Checkpoint, TensorInfo
from engine.checkpoints.formats import FORMATS
from engine.errors import GreenroomError
from engine.folders import data_folder, make_private
from engine.hub.repository import is_repo
from engine.regular_files import open_to_read
from engine.resources import asset
from engine.safe_paths import is_safe_name
from engine.whole_file import write_whole
from engine.words import say

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from engine.checkpoints.chat_template import ChatTemplate
    from engine.checkpoints.tokenizer import Tokenizer
    from engine.hub.network import NetworkSettings

_log = logging.getLogger(__name__)

VERSION = 1
TIERS = ("home", "workstation", "server")
_MAX_BYTES = 4 << 20
_MAX_MODELS, _MAX_TENSORS, _MAX_LAYERS, _MAX_EXPERTS = 1000, 400, 1000, 4096
_LAYERS = re.compile(r"\d{1,3}(-\d{1,3})?(,\d{1,3}(-\d{1,3})?)*\Z")

#: How each quantisation stores matrices: (most of them, the output head and half of the value and down projections).
#: llama.cpp's mixes, without the finer points; a row that its blocks do not divide takes the third.
RECIPES: Mapping[str, tuple[str, str, str]] = {
    "safetensors": ("BF16", "BF16", "BF16"),
    "BF16": ("BF16", "BF16", "BF16"),
    "F16": ("F16", "F16", "F16"),
    "Q8_0": ("Q8_0", "Q8_0", "F16"),
    "Q6_K": ("Q6_K", "Q6_K", "Q8_0"),
    "Q5_K_M": ("Q5_K", "Q6_K", "Q5_1"),
    "Q4_K_M": ("Q4_K", "Q6_K", "Q5_0"),
    "Q4_K_S": ("Q4_K", "Q4_K", "Q5_0"),
    "UD-Q4_K_M": ("Q4_K", "Q6_K", "Q5_0"),
    "UD-Q4_K_XL": ("Q4_K", "Q6_K", "Q5_0"),
    "Q4_0": ("Q4_0", "Q4_0", "F16"),
    "IQ4_XS": ("IQ4_XS", "Q5_K", "IQ4_NL"),
    "Q3_K_M": ("Q3_K", "Q4_K", "IQ4_NL"),
    "UD-Q3_K_XL": ("Q3_K", "Q4_K", "IQ4_NL"),
    "Q2_K": ("Q2_K", "Q4_K", "IQ4_NL"),
    "UD-Q2_K_XL": ("Q2_K", "Q4_K", "IQ4_NL"),
    "MXFP4": ("MXFP4", "Q8_0", "Q8_0"),
    "FP8": ("E4M3_G128_F32", "BF16", "BF16"),
}
#: What llama.cpp takes where a row is no multiple of the blocks of 256 values.
_INSTEAD = {"Q6_K": "Q8_0", "Q5_K": "Q5_1", "Q4_K": "Q5_0"}


@dataclass(frozen=True)
class CatalogueDownload:
    """repo and label: what `greenroom download repo:label` takes. nbytes: None where nobody confirmed it."""

    repo: str
    label: str
    nbytes: int | None


@dataclass(frozen=True)
class CatalogueModel:
    """params_total, params_active: weights. good_at: a few plain words. config, tensors: for `checkpoint`."""

    id: str
    name: str
    author: str
    family: str
    params_total: int
    params_active: int
    licence: str
    context: int
    good_at: str
    tier: str
    sources: tuple[str, ...]
    downloads: tuple[CatalogueDownload, ...]
    config: Mapping[str, Any]
    tensors: tuple[_Tensors, ...]

    def checkpoint(self, label: str) -> Checkpoint:
        """Headers as a file of this quantisation has them, for a plan; it holds no bytes to read."""
        return _Described(self, label)

    def nbytes(self, download: CatalogueDownload) -> int:
        """Confirmed, or worked out from the shapes."""
        if download.nbytes is not None:
            return download.nbytes
        recipe = RECIPES[download.label]
        return sum(tensors.nbytes(recipe) for tensors in self.tensors)


@dataclass(frozen=True)
class _Tensors:
    """Tensors of one shape and, but for the numbers of layer and expert, one name."""

    name: str
    shape: tuple[int, ...]
    layers: tuple[int, ...]
    experts: int

    def expand(self) -> Iterator[str]:
        for layer in self.layers:
            name = self.name.replace("{i}", str(layer))
            for expert in range(self.experts):
                yield name.replace("{e}", str(expert))

    def nbytes(self, recipe: tuple[str, str, str]) -> int:
        by_layer = (_info(self.name.replace("{i}", str(layer)), self.shape, recipe).nbytes for layer in self.layers)
        return self.experts * sum(by_layer)


def catalogue() -> tuple[CatalogueModel, ...]:
    """The newest one here: what came with the program, or an update the user fetched since."""
    shipped = _read(asset("catalogue.json"))
    update = update_path()
    if os.path.exists(update):
        try:
            newer = _read(update)
            if newer[0] > shipped[0]:
                return newer[1]
        except GreenroomError as error:
            _log.warning("the catalogue's update is not used: %s", error)
    return shipped[1]


def update_path() -> Path:
    return data_folder() / "catalogue.json"


def fetch_update(url: str, settings: NetworkSettings) -> int:
    """Fetch a newer catalogue, only ever because the user asked for it. Returns how many models it holds.

    Raises GreenroomError when it cannot be had or is no catalogue; the one in use stays then.
    """
    from engine.hub.client import open_client
    from engine.hub.network import check_address, status_error
    from engine.hub.transfer import disk_errors

    check_address(url, "The catalogue's address")
    what = "The catalogue was not updated"
    there = replace(settings, endpoint=url)
    with open_client(there) as client:
        failed = partial(GreenroomError, what)
        response, content = client.whole(there.hub, failed, _MAX_BYTES)
    if response.status_code != 200:
        raise status_error(response.status_code, what, there.host)
    try:
        _, models = parse(content, there.host)
    except GreenroomError as error:
        raise GreenroomError(error.what, error.why, say("Check the address; the catalogue in use stays.")) from error
    path = update_path()
    with disk_errors(path):
        make_private(path.parent)
        write_whole(path, bytes(content))
    return len(models)


def _read(path: Path) -> tuple[str, tuple[CatalogueModel, ...]]:
    try:
        with open_to_read(path) as file:
            return parse(file.read(_MAX_BYTES + 1), path.name)
    except OSError as error:
        raise GreenroomError(
            say("{path} cannot be read", path=path), error.strerror or str(error), say("Install Greenroom again.")
        ) from error


def parse(content: bytes, where: str) -> tuple[str, tuple[CatalogueModel, ...]]:
    """(date, models). Raises GreenroomError for anything that is not a catalogue of this version."""
    try:
        if len(content) > _MAX_BYTES:
            raise ValueError("it is too large")
        document = json.loads(content)
        if document["version"] != VERSION:
            raise ValueError(f"its version is {document['version']!r}, this program reads {VERSION}")
        models = tuple(_model(entry) for entry in _list(document["models"], _MAX_MODELS))
        if len({model.id for model in models}) != len(models):
            raise ValueError("two models have the same id")
        return _text(document["date"], 10), models
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = say("it lacks {error}", error=error) if isinstance(error, KeyError) else str(error)
        if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | TypeError | RecursionError):
            why = say("what it says is no list of models")
        raise GreenroomError(
            say("{where} is not a catalogue", where=where), why, say("Install Greenroom again, or delete the update.")
        ) from error


def _model(entry: Any) -> CatalogueModel:
    if entry["tier"] not in TIERS:
        raise ValueError(f"tier {entry['tier']!r}")
    if not is_safe_name(_text(entry["id"], 80)):
        raise ValueError(f"id {entry['id']!r}")
    tensors = tuple(_tensors(row) for row in _list(entry["tensors"], _MAX_TENSORS))
    downloads = tuple(
        CatalogueDownload(
            _repo(d["repo"]), _text(d["label"], 80), None if d.get("bytes") is None else _count(d["bytes"])
        )
        for d in _list(entry["downloads"], 100)
    )
    if not tensors or not downloads or not isinstance(entry["config"], dict):
        raise ValueError(f"{entry['id']!r} is incomplete")
    if any(d.nbytes is None and d.label not in RECIPES for d in downloads):
        raise ValueError(f"{entry['id']!r} has a download whose size is neither stated nor known")
    return CatalogueModel(
        id=entry["id"],
        name=_text(entry["name"], 80),
        author=_text(entry["author"], 80),
        family=_text(entry["family"], 80),
        params_total=_count(entry["params_total"]),
        params_active=_count(entry["params_active"]),
        licence=_text(entry["licence"], 80),
        context=_count(entry["context"]),
        good_at=_text(entry["good_at"], 200),
        tier=entry["tier"],
        sources=tuple(_text(source, 300) for source in _list(entry["sources"], 20)),
        downloads=downloads,
        config=entry["config"],
        tensors=tensors,
    )


def _tensors(row: Any) -> _Tensors:
    """A row is [name, shape], [name with {i}, shape, layers like "0-2,5"] or that with {e} and how many experts."""
    experts = _count(row[3]) if len(row) > 3 else 1
    if experts > _MAX_EXPERTS:
        raise ValueError("too many experts")
    layers = _layers(row[2]) if len(row) > 2 else [0]
    return _Tensors(_text(row[0], 200), tuple(_count(size) for size in _list(row[1], 4)), tuple(layers), experts)


def _layers(text: Any) -> list[int]:
    if not isinstance(text, str) or not _LAYERS.match(text):
        raise ValueError(f"layers {text!r}")
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    if len(numbers) > _MAX_LAYERS:
        raise ValueError("too many layers")
    return numbers


def _list(value: Any, limit: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > limit:
        raise ValueError(f"no list of up to {limit}: {str(value)[:40]!r}")
    return value


def _text(value: Any, limit: int) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= limit or not value.isprintable():
        raise ValueError(f"no text of up to {limit} characters: {str(value)[:40]!r}")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 50:
        raise ValueError(f"no count: {str(value)[:40]!r}")
    return value


def _repo(value: Any) -> str:
    if not isinstance(value, str) or not is_repo(value):
        raise ValueError(f"no repository: {str(value)[:40]!r}")
    return value


class _Described(Checkpoint):
    """A checkpoint that is only described."""

    described = True

    def __init__(self, model: CatalogueModel, label: str) -> None:
        self.path = Path(model.id)
        self.form = "safetensors"
        self.architecture = str(model.config.get("model_type", model.family))
        self.name = f"{model.name} {label}"
        self.config = model.config
        recipe = RECIPES.get(label, RECIPES["Q4_K_M"])
        self.tensors = {
            name: _info(name, tensors.shape, recipe) for tensors in model.tensors for name in tensors.expand()
        }

    def read(self, name: str, index: int | None = None, rows: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
        raise self._nothing_here()

    def read_float32(
        self, name: str, index: int | None = None, rows: tuple[int, int] | None = None
    ) -> npt.NDArray[np.float32]:
        raise self._nothing_here()

    def tokenizer(self) -> Tokenizer:
        raise self._nothing_here()

    def chat_template(self) -> ChatTemplate:
        raise self._nothing_here()

    def close(self) -> None:
        """Nothing is open."""

    def _nothing_here(self) -> GreenroomError:
        return GreenroomError(
            say("{name} is not here", name=self.name), say("only its description is"), say("Download it first.")
        )


def _info(name: str, shape: tuple[int, ...], recipe: tuple[str, str, str]) -> TensorInfo:
    usual, finer, other = recipe
    if usual == "MXFP4":
        # Only the experts are stored so, and all of them.
        usual = finer = usual if "expert" in name else other
    if len(shape) < 2 or "router" in name or name.endswith("mlp.gate.weight"):
        format_name = "F32"
    else:
        finer_here = "lm_head" in name or (("v_proj" in name or "down" in name) and _layer(name) % 2 == 0)
        format_name = finer if finer_here else usual
        if shape[-1] % FORMATS[format_name].block_values:
            format_name = _INSTEAD.get(format_name, other)
    record = FORMATS[format_name]
    values = 1
    for size in shape:
        values *= size
    return TensorInfo(name, shape, format_name, Path(name), 0, values // record.block_values * record.block_bytes)


def _layer(name: str) -> int:
    match = re.search(r"\.(\d+)\.", name)
    return int(match[1]) if match else 1
