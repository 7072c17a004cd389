"""Token embeddings, dequantised row by row as tokens ask for them: kept as stored, or in the output head they share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.checkpoints.formats import FORMATS
from engine.executors.linear import Linear, NativeLinear
from engine.executors.loading import Loader


class Embedding:
    """Rows as the file stores them."""

    def __init__(self, loader: Loader) -> None:
        vocab, self._hidden = loader.shape("embed")
        if loader.column_order("embed") is not None or loader.factor("embed") != 1.0:
            raise loader.refuse("embed", ValueError("embeddings with factors or reordered columns are not looked up"))
        self._rows = loader.stored("embed").reshape(vocab, -1)
        self._dequantise = FORMATS[loader.format("embed")].dequantise

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def __call__(self, token_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """[T] -> float32 [T, hidden]."""
        values = self._dequantise(self._rows[token_ids].reshape(-1))
        return values.reshape(len(token_ids), self._hidden)


class TiedEmbedding:
    """Rows of the output head, which is the same matrix and in memory already."""

    #: Bytes beside the head's.
    nbytes = 0

    def __init__(self, head: NativeLinear) -> None:
        self._head = head

    def __call__(self, token_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """[T] -> float32 [T, hidden]."""
        return self._head.rows_of(token_ids)


def embedding(loader: Loader, head: Linear) -> Embedding | TiedEmbedding:
    """The embedding of a model whose output head is loaded: nothing is held twice in RAM."""
    if loader.has("lm_head") or not isinstance(head, NativeLinear):
        return Embedding(loader)
    loader.skip("embed")
    return TiedEmbedding(head)
