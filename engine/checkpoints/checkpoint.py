"""A model on disk: its headers now, its bytes when asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from engine.checkpoints.chat_template import ChatTemplate
    from engine.checkpoints.tokenizer import Tokenizer


@dataclass(frozen=True)
class TensorInfo:
    """One tensor as its file stores it.

    shape:  in row-major order, last axis contiguous ([out, in] for a linear layer; GGUF's is reversed on reading)
    format: a key of `engine.checkpoints.formats.FORMATS`, e.g. "BF16", "Q4_1"
    offset, nbytes: where the stored bytes lie in `path`
    """

    name: str
    shape: tuple[int, ...]
    format: str
    path: Path
    offset: int
    nbytes: int


class Checkpoint(ABC):
    """Opened from headers only; tensor bytes are read on demand.

    path:         the .gguf file (first shard of a split) or the folder of safetensors
    form:         "gguf" or "safetensors"
    architecture: as the file names it: GGUF `general.architecture` ("qwen2moe"), config.json `model_type` ("qwen2_moe")
    name:         what to call it on screen
    config:       GGUF key-values (without the tokenizer's arrays) or config.json
    tensors:      by the file's own names
    """

    path: Path
    form: str
    architecture: str
    name: str
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]

    @abstractmethod
    def read(self, name: str, index: int | None = None, rows: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
        """Stored bytes of a tensor as uint8 [nbytes], copied from disk.

        index: one slice of the first axis (one expert of a stacked tensor).
        rows:  a half-open range of rows, the second-to-last axis of what index left.
        Raises GreenroomError when the file is shorter than its header says.
        """

    @abstractmethod
    def read_float32(
        self, name: str, index: int | None = None, rows: tuple[int, int] | None = None
    ) -> npt.NDArray[np.float32]:
        """The same, dequantised to float32 in the tensor's shape."""

    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """Raises GreenroomError when the checkpoint carries none."""

    @abstractmethod
    def chat_template(self) -> ChatTemplate:
        """The model's own template; a plain one (named so) when the checkpoint carries none."""

    @abstractmethod
    def close(self) -> None: ...

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(t.nbytes for t in self.tensors.values())
