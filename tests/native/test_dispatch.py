"""Which kernel runs where, and what the CPU is said to have."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine import _native

ORDER = ["amx", "avx512bf16", "avx512vnni", "avxvnni", "avx2", "portable"]


def test_tiers_come_best_first_and_end_with_portable() -> None:
    tiers = _native.tiers()
    assert tiers[-1] == "portable"
    assert tiers == [name for name in ORDER if name in tiers]


@pytest.mark.parametrize("cap", ["portable", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "amx"])
def test_environment_caps_tiers(cap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    free = _native.tiers()
    monkeypatch.setenv("GREENROOM_ISA", cap)
    order = ["portable", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "amx"]
    allowed = order[: order.index(cap) + 1]
    assert _native.tiers() == [name for name in free if name in allowed]
    assert _native.kernel_tier("int4") in allowed


def test_the_lower_of_both_caps_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENROOM_ISA", "portable")
    assert _native.kernel_tier("int8", "avx512bf16") == "portable"
    monkeypatch.setenv("GREENROOM_ISA", "amx")
    assert _native.kernel_tier("int8", "portable") == "portable"


def test_unknown_names_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="sse9"):
        _native.kernel_tier("int4", "sse9")
    with pytest.raises(ValueError, match="int3"):
        _native.kernel_tier("int3")
    with pytest.raises(ValueError, match="sse9"):
        _native.Matrix(16, 32, "F32", isa="sse9")
    with pytest.raises(ValueError, match="sse9"):
        _native.packed_nbytes(16, 32, "F32", isa="sse9")
    monkeypatch.setenv("GREENROOM_ISA", "sse9")
    with pytest.raises(ValueError, match="GREENROOM_ISA"):
        _native.tiers()


def test_only_bf16_uses_bf16_products() -> None:
    for code in ("int4", "int8", "f16", "f32"):
        assert _native.kernel_tier(code) != "avx512bf16"
    if "avx512bf16" in _native.tiers():
        assert _native.kernel_tier("bf16") in ("amx", "avx512bf16")
        assert _native.kernel_tier("bf16", "avx512bf16") == "avx512bf16"
        assert _native.kernel_tier("bf16", "avx512vnni") == "avx512vnni"


def test_usable_is_part_of_what_the_cpu_has() -> None:
    features = _native.cpu_features()
    assert set(features.usable) <= set(features.cpu)


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="compares with Linux's own list")
def test_features_agree_with_the_kernel() -> None:
    text = Path("/proc/cpuinfo").read_text()
    flags = next((line.split(":")[1].split() for line in text.splitlines() if line.startswith("flags")), None)
    if flags is None:
        pytest.skip("not an x86 CPU")
    features = _native.cpu_features()
    names = {"avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16", "avxvnni": "avx_vnni"}
    known = ["sse2", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", *names]
    assert {n for n in known if names.get(n, n) in flags} == {n for n in known if n in features.usable}
    line = next(line for line in text.splitlines() if line.startswith("model name"))
    assert features.brand == line.split(":", 1)[1].strip()
    assert (
        str(features.family) == next(s for s in text.splitlines() if s.startswith("cpu family")).split(":")[1].strip()
    )
    model = next(s for s in text.splitlines() if s.startswith("model\t"))
    assert str(features.model) == model.split(":")[1].strip()


@pytest.mark.skipif(sys.platform != "linux", reason="reads environment set after start")
def test_an_empty_cap_is_no_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    free = _native.tiers()
    monkeypatch.setenv("GREENROOM_ISA", "")
    assert _native.tiers() == free
