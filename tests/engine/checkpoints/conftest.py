"""A way to write a GGUF file into the test's own folder, small vocabularies, and one real model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import Tensors, write_gguf
from vocabularies import ByteLevelVocabulary, PieceVocabulary

from engine.errors import GreenroomError


@pytest.fixture
def gguf_file(tmp_path: Path) -> Callable[..., Path]:
    def make(tensors: Tensors | None = None, name: str = "model.gguf", **settings: Any) -> Path:
        return write_gguf(tmp_path / name, tensors, **settings)

    return make


@pytest.fixture(scope="session")
def smollm() -> Path:
    """SmolLM2-135M-Instruct as GGUF: the dense model that the demo is made from, fetched once per machine."""
    from engine.hub.demo import demo_folder, dense_path, fetch_dense

    if not dense_path().is_file():
        try:
            fetch_dense(demo_folder())
        except GreenroomError as error:
            pytest.skip(str(error))
    return dense_path()


@pytest.fixture(scope="session")
def vocabulary() -> ByteLevelVocabulary:
    return ByteLevelVocabulary()


@pytest.fixture(scope="session")
def pieces() -> PieceVocabulary:
    return PieceVocabulary()
