"""A device makes of packed bytes the numbers that our kernels multiply with, for every format, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine import _native
from engine.checkpoints.formats import FORMATS
from engine.executors.hybrid.packed_codes import PackedExpert

HIDDEN, INNER, EXPERTS = 512, 256, 3


def packed(formats: tuple[str, str, str], recode: str | None = None, nodes: tuple[int, ...] = ()) -> _native.Experts:
    """Experts of random bytes; of random numbers where they are floats, whose bytes could be infinite."""
    random = np.random.default_rng(3)
    pool = _native.ThreadPool(1)
    experts = _native.Experts(EXPERTS, HIDDEN, INNER, *formats, recode, None, nodes)
    for expert in range(EXPERTS):
        for part, name in zip(("gate", "up", "down"), formats, strict=True):
            form = FORMATS[name]
            values = HIDDEN * INNER
            if form.block_values == 1:
                numbers = random.normal(size=values).astype(np.float32)
                data = {
                    "F32": numbers.view(np.uint8),
                    "F16": numbers.astype(np.float16).view(np.uint8),
                    "BF16": (numbers.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8),
                }[name]
            else:
                data = random.integers(0, 256, values // form.block_values * form.block_bytes).astype(np.uint8)
            experts.load(pool, expert, part, data)
    return experts


def check(experts: _native.Experts) -> None:
    layout = PackedExpert.of(experts, HIDDEN, INNER)
    pieces = [np.concatenate(experts.pieces(expert)) for expert in range(EXPERTS)]
    assert all(len(piece) == layout.nbytes for piece in pieces)
    raw = torch.from_numpy(np.stack(pieces))
    gate_up, down = layout.gate_up(raw).numpy(), layout.down(raw).numpy()
    assert gate_up.shape == (EXPERTS, 2 * INNER, HIDDEN)
    assert down.shape == (EXPERTS, HIDDEN, INNER)
    for expert in range(EXPERTS):
        got = {"gate": gate_up[expert, :INNER], "up": gate_up[expert, INNER:], "down": down[expert]}
        for part, values in got.items():
            np.testing.assert_array_equal(values, experts.dequantise(expert, part))


@pytest.mark.parametrize("form", sorted(FORMATS))
@pytest.mark.filterwarnings("ignore:invalid value")
def test_every_format_is_unpacked_to_the_same_numbers(form: str) -> None:
    check(packed((form, form, form)))


@pytest.mark.parametrize("recode", ["int8", "int4", "int4_g128", "float32"])
def test_recoded_experts_too(recode: str) -> None:
    check(packed(("BF16", "BF16", "F32"), recode))


def test_parts_may_differ_and_lie_on_several_nodes() -> None:
    experts = packed(("Q4_K", "Q6_K", "Q5_0"), nodes=(0, 0, 0))
    assert len(experts.strips) == 3
    check(experts)


def test_rows_that_do_not_fill_a_strip_are_left_out() -> None:
    experts = _native.Experts(1, 40, 20, "F32", "F32", "F32")
    random = np.random.default_rng(0)
    parts = {part: random.normal(size=(20, 40)).astype(np.float32) for part in ("gate", "up")}
    parts["down"] = random.normal(size=(40, 20)).astype(np.float32)
    for part, values in parts.items():
        experts.load(_native.ThreadPool(1), 0, part, values.reshape(-1).view(np.uint8))
    raw = torch.from_numpy(np.concatenate(experts.pieces(0))[None])
    layout = PackedExpert.of(experts, 40, 20)
    np.testing.assert_array_equal(layout.gate_up(raw)[0], np.concatenate([parts["gate"], parts["up"]]))
    np.testing.assert_array_equal(layout.down(raw)[0], parts["down"])


def test_an_expert_that_is_not_there_has_no_bytes() -> None:
    experts = packed(("F32", "F32", "F32"))
    with pytest.raises(ValueError, match="does not exist"):
        experts.pieces(EXPERTS)
    with pytest.raises(ValueError, match="read-only"):
        experts.pieces(0)[0][0] = 1
