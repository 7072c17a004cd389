"""Routing traces: recorded step by step, kept in a file, refused when they are none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "engine" / "runtime"))
from routing_trace import RoutingTrace, record_routing
from scripted_model import scripted_engine

from engine.errors import GreenroomError
from engine.models.spec import MoeSpec
from engine.status import ExpertUsage


@pytest.fixture
def routed() -> Any:
    """An engine whose tokens t go to experts t % 4 and t % 4 + 4 of layer 1."""
    engine, executor = scripted_engine(lambda tokens: (tokens[-1] + 1) % 256)
    counts = np.zeros(8, np.uint64)
    forward = executor.forward

    def counted(token_ids: Any, logits: str = "last") -> Any:
        for token in token_ids:
            counts[[token % 4, token % 4 + 4]] += 1
        return forward(token_ids, logits)

    executor.forward = counted
    executor.usage = lambda: ExpertUsage.of({1: counts.copy()})
    ffn = object.__new__(MoeSpec)
    object.__setattr__(ffn, "top_k", 2)
    engine.spec = SimpleNamespace(
        vocab=engine.spec.vocab, context_length=8192, layers=[SimpleNamespace(ffn=None), SimpleNamespace(ffn=ffn)]
    )
    return engine


def test_every_step_is_recorded_with_its_experts(routed: Any, tmp_path: Path) -> None:
    from engine.runtime.events import SamplingParams

    trace = record_routing(routed, ["abc", "dddd"], SamplingParams(temperature=0, max_tokens=3))
    assert trace.layers.tolist() == [1]
    assert trace.tokens.tolist() == [3, 1, 1, 4, 1, 1]
    assert trace.answer.tolist() == [False, True, True] * 2
    assert trace.counts[0, 0].tolist() == [0, 1, 1, 1, 0, 1, 1, 1]  # a, b, c
    assert trace.counts[3, 0].tolist() == [4, 0, 0, 0, 4, 0, 0, 0]  # d, d, d, d
    assert trace.counts[4, 0].tolist() == [0, 1, 0, 0, 0, 1, 0, 0]  # e
    path = tmp_path / "trace.npz"
    trace.save(path)
    again = RoutingTrace.load(path)
    for name in ("layers", "tokens", "answer", "counts"):
        np.testing.assert_array_equal(getattr(again, name), getattr(trace, name))


def test_a_dense_model_has_nothing_to_record() -> None:
    engine, _ = scripted_engine(lambda tokens: 1)
    with pytest.raises(GreenroomError, match="no routed experts"):
        record_routing(engine, ["a"])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"PK\x03\x04 and so on"),
        lambda path: path.unlink(),
        lambda path: np.savez(path, version=np.int32(1)),
        lambda path: np.savez(path, version=np.int32(7), layers=np.zeros(1)),
        lambda path: np.savez(path, version=np.int32(1), layers=[[1]], tokens=[1], answer=[True], counts=[[[1]]]),
        lambda path: np.savez(path, version=np.int32(1), layers=[1], tokens=[0], answer=[True], counts=[[[1]]]),
        lambda path: np.savez(
            path, version=np.int32(1), layers=[1], tokens=[1], answer=[True], counts=np.array([[[None]]], object)
        ),
    ],
)
def test_a_file_that_is_no_trace_is_refused_in_words(tmp_path: Path, spoil: Callable[[Path], Any]) -> None:
    path = tmp_path / "trace.npz"
    RoutingTrace(np.ones(1, np.int32), np.ones(1, np.int32), np.ones(1, bool), np.ones((1, 1, 2), np.uint16)).save(path)
    spoil(path)
    with pytest.raises(GreenroomError, match="cannot be read"):
        RoutingTrace.load(path)


def test_an_array_too_large_for_memory_is_refused_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint16), (1 << 10, 1 << 10, 1 << 10), (0, 0, 0))
    header = {"descr": "<u2", "fortran_order": False, "shape": huge.shape}
    import io
    import zipfile

    np.savez(path, version=np.int32(1), layers=np.ones(1), tokens=np.ones(1), answer=np.ones(1))
    with zipfile.ZipFile(path, "a") as archive:
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(buffer, header)
        archive.writestr("counts.npy", buffer.getvalue())
    with pytest.raises(GreenroomError, match="too large"):
        RoutingTrace.load(path)
