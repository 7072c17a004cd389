"""A model on disk: its headers now, its bytes when asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from engine.checkpoints.chat_template import ChatTemplate
    from engine.checkpoints.tokenizer import Tokenizer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor as `Checkpoint.read` gives it: as stored, or put together from several stored ones.

    shape:  in row-major order, last axis contiguous ([out, in] for a linear layer; GGUF's is reversed on reading)
    format: a key of `engine.checkpoints.formats.FORMATS`, e.g. "BF16", "Q4_1", "I4_G128_F16"
    offset: where the stored bytes lie in `path`; of the first part where there are several
    nbytes: what the tensor takes on disk, all parts together
    origin: what the file itself calls its way of storing it ("GPTQ", "IQ3_XXS"), where that is not `format`; else ""
    """

    name: str
    shape: tuple[int, ...]
    format: str
    path: Path
    offset: int
    nbytes: int
    origin: str = ""


@dataclass(frozen=True)
class FileRange:
    """Bytes of a file that are stored rows as they are, one after the other."""

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
    described:    there is no file, only a description of one: nothing can be read
    tensors:      by the file's own names. A quantised matrix that a file spreads over several tensors is one tensor
                  here, named as the plain one would be (its parts are not listed)
    """

    path: Path
    form: str
    architecture: str
    name: str
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    described = False

    @abstractmethod
    def read(self, name: str, index: int | None = None, rows: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
        """A tensor's blocks as uint8 [n], in its format: stored bits, read from disk.

        The weights are these values times `factor`, and the columns stand in `column_order`.
        index: one slice of the first axis (one expert of a stacked tensor).
        rows:  a half-open range of rows, the second-to-last axis of what index left.
        Raises GreenroomError when the file is shorter than its header says.
        """

    def location(self, name: str, index: int | None = None, rows: tuple[int, int] | None = None) -> FileRange | None:
        """Where `read` would find its bytes, for readers that need no copy; None when it puts them together itself."""
        return None

    @abstractmethod
    def read_float32(
        self, name: str, index: int | None = None, rows: tuple[int, int] | None = None
    ) -> npt.NDArray[np.float32]:
        """The weights themselves as float32 in the tensor's shape: dequantised, `factor` and `column_order` applied."""

    def factor(self, name: str, index: int | None = None) -> float:
        """What every value of a matrix is to be multiplied with (NVFP4 has one float32 per matrix); mostly 1.

        index: which matrix of a stacked tensor. Raises IndexError when it is needed and missing.
        """
        return 1.0

    def column_order(self, name: str) -> npt.NDArray[np.int32] | None:
        """The order in which columns are stored, int32 [in]: read(...) @ x[order] is the product. None when as usual.

        GPTQ with activation order keeps columns of similar weight together in one group.
        """
        return None

    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """Raises GreenroomError when the checkpoint carries none."""

    @abstractmethod
    def chat_template(self) -> ChatTemplate:
        """The model's own template; a plain one (named so) when the checkpoint carries none."""

    @abstractmethod
    def close(self) -> None: ...

    def once(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """What follows from the headers, worked out at the first call with this key and kept as long as the checkpoint.

        The largest headers take 15 ms, and plans follow a slider.
        """
        if key not in self._known:
            self._known[key] = work_out()
        value: T = self._known[key]
        return value

    @cached_property
    def _known(self) -> dict[Hashable, Any]:
        return {}

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(t.nbytes for t in self.tensors.values())
