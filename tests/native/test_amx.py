"""The AMX kernels, on any Linux machine with AVX-512: a library carries out the tile instructions the CPU refuses."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine import _native

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "benchmarks"))
import random_moe  # noqa: E402

#: Of the tier below, whose registers the AMX kernels use too.
NEEDED = {"avx512vnni", "avx512bf16"}

#: Where the trap cannot work there is nothing to test: it catches Linux's signals, and it carries out tile instructions
#: alone, so the AVX-512 around them must run on the CPU itself.
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="Linux on x86-64 only"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
    pytest.mark.skipif(not set(_native.cpu_features().usable) >= NEEDED, reason="needs AVX-512 with VNNI and BF16"),
]


@pytest.fixture(scope="module")
def trap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("amx") / "libamxtrap.so"
    subprocess.run(
        ["cc", "-O2", "-fPIC", "-shared", "-o", str(library), str(HERE / "amx" / "amxtrap.c"), "-ldl"], check=True
    )
    return library


def under(trap: Path, *arguments: str) -> tuple[str, dict[str, int]]:
    """Standard output of a Python under the trap, and how often each tile instruction ran."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "LD_PRELOAD": str(trap), "AMXTRAP_STATS": "1", "GREENROOM_ISA": ""},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    line = next(line for line in done.stderr.splitlines() if line.startswith("amxtrap: signals"))
    return done.stdout, {name: int(count) for name, count in re.findall(r"(\w+) (\d+)", line)}


def test_without_the_trap_there_is_no_door() -> None:
    usable = {"amx_tile", "amx_int8", "amx_bf16"} <= set(_native.cpu_features().usable)
    assert ("amx" in _native.tiers()) is usable
    if usable:
        assert "amx" in Path("/proc/cpuinfo").read_text()


@pytest.mark.parametrize(
    ("file", "least", "one"), [("matrix", 150, "[amx-Q4_K]"), ("experts", 40, "amx-Q4_K-Q4_K-Q6_K")]
)
def test_matrices_and_layers_match_float64(trap: Path, file: str, least: int, one: str) -> None:
    """The tests of the other tiers, run on this one."""
    out, ran = under(
        trap, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "amx", f"tests/native/test_{file}.py", "-rA"
    )
    assert out.count("PASSED") >= least
    assert one in out
    assert ran["tdpbsud"] > 1000
    assert ran["tdpbf16ps"] > 1000


SAME_BITS = """
import sys
import numpy as np
sys.path.insert(0, "tests/native")
from kernel_reference import FORMATS, stored
from engine import _native
assert _native.tiers()[0] == "amx"
assert _native.kernel_tier("int4") == _native.kernel_tier("int8") == _native.kernel_tier("bf16") == "amx"
assert _native.kernel_tier("e4m3") == "amx"
assert _native.kernel_tier("f32") == "avx512vnni"
pool = _native.ThreadPool(2)
rng = np.random.default_rng(1)
for fmt in FORMATS:
    for rows, tokens in ((16, 5), (40, 17), (50, 48), (33, 100), (64, 3)):
        raw = stored(rng, rows, 512, fmt)
        x = rng.standard_normal((tokens, 512)).astype(np.float32)
        results = []
        for isa in ("amx", "avx512vnni"):
            matrix = _native.Matrix(rows, 512, fmt, isa=isa)
            matrix.load(pool, raw)
            y = np.zeros((tokens, rows), np.float32)
            matrix.forward(pool, x.ctypes.data, tokens, y.ctypes.data)
            results.append(y)
        if fmt[:4] not in ("BF16", "E4M3"):
            assert np.array_equal(results[0].view(np.uint32), results[1].view(np.uint32)), (fmt, rows, tokens)
print("same")
"""


def test_integer_codes_have_the_bits_of_the_tier_below(trap: Path) -> None:
    out, ran = under(trap, "-c", SAME_BITS)
    assert out.strip() == "same"
    assert ran["tdpbsud"] > 1000


def test_few_tokens_stay_with_vnni(trap: Path) -> None:
    script = SAME_BITS.replace("((16, 5), (40, 17), (50, 48), (33, 100), (64, 3))", "((64, 4),)")
    assert script != SAME_BITS
    assert "tdpbsud" not in under(trap, "-c", script)[1]


def test_the_engine_computes_on_tiles(trap: Path) -> None:
    """A tiny mixture of experts from file to logits, in every format, against transformers."""
    out, ran = under(
        trap, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "qwen3_moe", "-rA",
        "tests/engine/executors/hybrid/test_torch_executor.py",
    )  # fmt: skip
    assert out.count("PASSED") >= 15
    assert ran["tdpbsud"] > 1000
    assert ran["tdpbf16ps"] > 1000


ANSWER = """
import sys
import numpy as np
import engine
from engine.runtime.events import SamplingParams
checkpoint = engine.open_checkpoint(sys.argv[1])
report = engine.probe(quick=True)
text = "A mixture of experts asks a few of them for every word, and reads the rest of its weights never."
told = {}
for isa in ("amx", "avx512bf16"):
    plan = engine.plan(checkpoint, report, 256, device="cpu", threads=2, isa=isa)
    with engine.load(checkpoint, plan) as loaded:
        events = list(loaded.generate(text, SamplingParams(max_tokens=12, temperature=0.0)))
        ids = [token for event in events for token in event.token_ids]
        assert events[-1].stop_reason in ("length", "end")
        told[isa] = loaded.kernel, ids, loaded.logits(loaded.tokenizer.encode(text))
(kernel, ids, logits), (_, below, expected) = told.values()
assert " amx" in kernel, kernel
error = np.linalg.norm(logits - expected) / np.linalg.norm(expected)
print(len(ids), ids == below, error == 0, error < 2e-3)
"""


@pytest.mark.parametrize(("form", "instruction"), [("Q8_0", "tdpbsud"), ("Q4_0", "tdpbsud"), ("BF16", "tdpbf16ps")])
def test_a_whole_mixture_answers_on_tiles(trap: Path, tmp_path: Path, form: str, instruction: str) -> None:
    """From a file to words: the answer of the tier below, of integer codes to the last bit."""
    shape = random_moe.Shape(layers=2, hidden=256, intermediate=64, experts=8, top_k=2, heads=4, kv_heads=2,
                             head_dim=64, vocab=512)  # fmt: skip
    random_moe.write(tmp_path / "model.gguf", shape, form)
    out, ran = under(trap, "-c", ANSWER, str(tmp_path / "model.gguf"))
    count, same_words, same_bits, close = out.split()
    assert int(count) >= 1
    if form == "BF16":
        assert close == "True"
    else:
        assert (same_words, same_bits) == ("True", "True")
    assert ran[instruction] > 500
