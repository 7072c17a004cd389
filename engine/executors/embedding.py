"""Token embeddings, kept as stored and dequantised row by row as tokens ask for them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from engine.checkpoints.formats import FORMATS
from engine.executors.loading import Loader


class Embedding:
    def __init__(self, loader: Loader) -> None:
        vocab, self._hidden = loader.shape("embed")
        self._rows = loader.stored("embed").reshape(vocab, -1)
        self._dequantise = FORMATS[loader.format("embed")].dequantise

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def __call__(self, token_ids: npt.NDArray[np.int64]) -> torch.Tensor:
        """[T] -> float32 [T, hidden] on the CPU."""
        values = self._dequantise(self._rows[token_ids].reshape(-1))
        return torch.from_numpy(values.reshape(len(token_ids), self._hidden))
