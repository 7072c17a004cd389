"""What loading costs: memory, tensors read after a cancel, a tied embedding held once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import Tiny, make_plan

from engine import _native
from engine.checkpoints.opening import open_checkpoint
from engine.errors import Cancelled, GreenroomError
from engine.executors import load, loading
from engine.executors.embedding import Embedding, TiedEmbedding, embedding
from engine.executors.linear import NativeLinear
from engine.executors.loading import Loader
from engine.models import model_spec
from engine.progress import Progress, ignore_progress

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import random_moe

MakeTiny = Callable[[str, str], Tiny]

#: Loads a model in a process of its own; prints bytes: its weights' share of the plan, and how much its peak grew.
CHILD = """
import sys
import engine
import engine.executors.native.executor  # the program's own memory is not the model's
from engine.placement.plan import PlanBytes

def status(key):
    line = next(line for line in open("/proc/self/status") if line.startswith(key))
    return int(line.split()[1]) * 1024

checkpoint = engine.open_checkpoint(sys.argv[1])
plan = engine.plan(checkpoint, engine.probe(quick=True), 512, device="cpu", threads=2)
# What the plan took (measuring the RAM's speed takes 256 MB) is not the load's: the peak begins anew.
with open("/proc/self/clear_refs", "w") as peak:
    peak.write("5")
before = status("VmRSS")
with engine.load(checkpoint, plan) as loaded:
    peak = status("VmHWM")
    ram = plan.bytes.ram
    print(sum(n for role, n in ram.items() if role not in ("buffers", "reserve")), peak - before)
"""


#: Tokenizer, tables and whatever else does not grow with the model.
PROGRAM = 12 << 20


def peak(model: Path) -> tuple[int, int]:
    done = subprocess.run([sys.executable, "-c", CHILD, str(model)], capture_output=True, text=True, check=True)
    planned, grown = map(int, done.stdout.split())
    return planned, grown


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's peak of resident memory")
@pytest.mark.parametrize(
    ("form", "shape"),
    [
        ("Q4_0", random_moe.Shape(layers=1, hidden=1024, experts=96)),
        pytest.param("Q8_0", random_moe.Shape(layers=1, vocab=32768, tied=True), marks=pytest.mark.slow),
        pytest.param("BF16", random_moe.Shape(layers=1, experts=48), marks=pytest.mark.slow),
    ],
    ids=["130 MB", "730 MB", "500 MB"],
)
def test_a_load_never_holds_a_second_copy(tmp_path: Path, form: str, shape: random_moe.Shape) -> None:
    """Peak resident memory while loading: at most the packed weights and 5 %, beside what every program needs."""
    random_moe.write(tmp_path / "model.gguf", shape, form)
    planned, grown = peak(tmp_path / "model.gguf")
    assert grown < 1.05 * planned + PROGRAM


@pytest.mark.parametrize("moment", [0.0, 0.3, 0.6, 0.9])
def test_a_cancelled_load_reads_no_more_than_a_piece_per_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: float
) -> None:
    shape = random_moe.Shape(layers=2, hidden=256, intermediate=64, experts=32, heads=2, kv_heads=1, vocab=2048)
    random_moe.write(tmp_path / "model.gguf", shape, "Q8_0")
    checkpoint = open_checkpoint(tmp_path / "model.gguf")
    monkeypatch.setattr(loading, "PIECE", 1 << 16)
    monkeypatch.setattr(loading, "REPORT_INTERVAL", 0.0)
    cancelled = False
    after = 0

    def counting(self: Loader, nbytes: int, add: Callable[[Loader, int], None] = Loader._add) -> None:
        nonlocal after
        after += cancelled
        add(self, nbytes)

    def progress(told: Progress) -> None:
        nonlocal cancelled
        if told.fraction >= moment:
            cancelled = True
            raise Cancelled

    monkeypatch.setattr(Loader, "_add", counting)
    with pytest.raises(Cancelled):
        load(checkpoint, model_spec(checkpoint), make_plan(threads=2), progress)
    # Two readers; each may be in the middle of one matrix.
    assert after <= 2


def test_a_tied_head_gives_the_embeddings(tmp_path: Path) -> None:
    shape = random_moe.Shape(layers=1, hidden=64, intermediate=32, experts=2, top_k=1, heads=1, kv_heads=1, vocab=300,
                             head_dim=32, tied=True)  # fmt: skip
    random_moe.write(tmp_path / "model.gguf", shape, "Q8_0")
    checkpoint = open_checkpoint(tmp_path / "model.gguf")
    loader = Loader(checkpoint, model_spec(checkpoint), ignore_progress)
    pool = _native.ThreadPool(2)
    head = NativeLinear(pool, loader, ["embed"])
    tied = embedding(loader, head)
    ids = np.array([299, 0, 7, 7])
    assert isinstance(tied, TiedEmbedding)
    np.testing.assert_array_equal(tied(ids), Embedding(loader)(ids))
    with pytest.raises(ValueError, match="does not exist"):
        tied(np.array([300]))
    pool.close()


@pytest.mark.parametrize("broken", ["gone", "shorter"])
def test_a_file_that_changed_since_it_was_opened(tmp_path: Path, broken: str) -> None:
    shape = random_moe.Shape(layers=1, hidden=64, intermediate=32, experts=2, top_k=1, heads=1, kv_heads=1, vocab=300,
                             head_dim=32)  # fmt: skip
    path = tmp_path / "model.gguf"
    random_moe.write(path, shape, "Q8_0")
    checkpoint = open_checkpoint(path)
    if broken == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-4000])
    with pytest.raises(GreenroomError, match=r"no such file|ends [\d.]+ k?B(ytes)? too early"):
        load(checkpoint, model_spec(checkpoint), make_plan())


def test_progress_ends_at_the_whole_model(tmp_path: Path) -> None:
    shape: Any = random_moe.Shape(layers=1, hidden=64, intermediate=32, experts=2, top_k=1, heads=1, kv_heads=1,
                                  vocab=300, head_dim=32, tied=True)  # fmt: skip
    random_moe.write(tmp_path / "model.gguf", shape, "Q8_0")
    checkpoint = open_checkpoint(tmp_path / "model.gguf")
    told: list[Progress] = []
    load(checkpoint, model_spec(checkpoint), make_plan(), told.append).close()
    assert told[-1].fraction == 1.0
    assert [p.done for p in told] == sorted(p.done for p in told)


ANSWER = """
import sys
import engine
from engine.runtime.events import SamplingParams

checkpoint = engine.open_checkpoint(sys.argv[1])
plan = engine.plan(checkpoint, engine.probe(quick=True), 64, device="cpu", threads=1)
with engine.load(checkpoint, plan) as loaded:
    for event in loaded.generate("a", SamplingParams(max_tokens=3, temperature=0.8)):
        pass
print(event.stats.completion_tokens, "torch" in sys.modules)
"""


def test_an_answer_of_our_kernels_imports_no_torch(tmp_path: Path) -> None:
    """It would take a second of every start, and 170 MB."""
    random_moe.write(tmp_path / "model.gguf", random_moe.Shape(layers=1, hidden=256, experts=8), "Q4_0")
    command = [sys.executable, "-c", ANSWER, str(tmp_path / "model.gguf")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "False"]
