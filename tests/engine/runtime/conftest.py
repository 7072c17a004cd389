"""A model small enough to see through."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scripted_model import ScriptedExecutor, saying, scripted_engine

from engine.runtime.engine import Engine


@pytest.fixture
def make_engine() -> Callable[..., tuple[Engine, ScriptedExecutor]]:
    return scripted_engine


@pytest.fixture
def say() -> Callable[..., tuple[Engine, ScriptedExecutor]]:
    """say(answer, prompt, context=...) -> an engine that answers just that to the prompt, and its executor."""

    def make(answer: str, prompt: str, context: int = 4096) -> tuple[Engine, ScriptedExecutor]:
        return scripted_engine(saying(answer, len(prompt.encode())), context)

    return make
