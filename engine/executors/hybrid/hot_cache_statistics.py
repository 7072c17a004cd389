"""Which experts a model called most, kept between starts, so that the cache in VRAM begins warm.

One small file per checkpoint in the cache folder, named by a hash of the checkpoint's identity. It holds numbers of
uses and nothing of what was said. A file that is broken or belongs to something else is ignored.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.folders import make_private
from engine.whole_file import write_whole

if TYPE_CHECKING:
    from engine.checkpoints.checkpoint import Checkpoint

log = logging.getLogger(__name__)

FOLDER = "experts"
MAGIC = b"greenroom experts 1\n"
#: Layers x experts of the largest model that is remembered.
MOST_EXPERTS = 1 << 20
#: Models remembered; those not used for longest go first.
MOST_MODELS = 100
_MOST_HEADER = 4096


def identity(checkpoint: Checkpoint) -> str:
    """The same for the same file wherever it lies, another for every other model, also of the same shapes."""
    tensors = sorted((name, info.format, list(info.shape)) for name, info in checkpoint.tensors.items())
    facts = [checkpoint.name, checkpoint.nbytes, tensors]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def read(folder: Path, checkpoint: Checkpoint, layers: tuple[int, ...], experts: int) -> npt.NDArray[np.float32] | None:
    """float32 [L, E], uses weighted by their age; None where nothing fitting is kept."""
    path = folder / FOLDER / f"{identity(checkpoint)}.bin"
    size = len(layers) * experts
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ValueError("it is of another kind or version")
            header = json.loads(file.readline(_MOST_HEADER))
            if (header["layers"], header["experts"]) != (list(layers), experts):
                raise ValueError("it belongs to a model of another shape")
            data = file.read(2 * size + 1)
        if len(data) != 2 * size:
            raise ValueError("it is cut short or has something behind its end")
        values = np.frombuffer(data, "<f2").astype(np.float32).reshape(len(layers), experts)
        if not np.isfinite(values).all() or values.min() < 0:
            raise ValueError("a number of uses is impossible")
        # The models used last are kept.
        os.utime(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        log.warning("what is known of this model's experts is ignored: %s", error)
        return None
    return values


def write(folder: Path, checkpoint: Checkpoint, layers: tuple[int, ...], uses: npt.NDArray[np.floating]) -> bool:
    """uses: [L, E] as `read` gives them. False when they cannot be kept."""
    if uses.size > MOST_EXPERTS or not np.isfinite(uses).all():
        return False
    # Only the proportions count; so they fit into half precision.
    scaled = np.maximum(uses, 0.0) * (1000.0 / max(1e-30, float(uses.max())))
    header = json.dumps({"layers": list(layers), "experts": uses.shape[1]}).encode() + b"\n"
    if len(header) > _MOST_HEADER or not uses.max() > 0:
        return False
    target = folder / FOLDER / f"{identity(checkpoint)}.bin"
    try:
        make_private(target.parent)
        write_whole(target, MAGIC + header + scaled.astype("<f2").tobytes())
        _forget_oldest(target.parent)
    except OSError as error:
        log.warning("which experts were called most was not kept: %s", error)
        return False
    return True


def _forget_oldest(folder: Path) -> None:
    files = sorted(folder.glob("[0-9a-f]" * 32 + ".bin"), key=lambda path: path.stat().st_mtime)
    for path in files[: max(0, len(files) - MOST_MODELS)]:
        path.unlink(missing_ok=True)
