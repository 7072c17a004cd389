"""Matrices on a device, as floats and re-coded to int8 and int4."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import TOKENS, Tiny

from engine.executors import loading
from engine.executors.device import linear as device_linear
from engine.executors.device.linear import Int4Linear, Int8Linear, TorchLinear, int4_codes, int4_values, int8_codes
from engine.executors.devices import Device
from engine.executors.loading import Loader
from engine.executors.opening import open_device
from engine.progress import ignore_progress

MakeTiny = Callable[[str, str], Tiny]


@pytest.fixture
def sim() -> Iterator[Device]:
    device = open_device("sim:latency=0")
    yield device
    device.close()


def random_values(rows: int, columns: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(3).standard_normal((rows, columns), np.float32))


def test_int8_rounds_by_half_a_step_at_most() -> None:
    values = random_values(20, 96)
    values[3] = 0
    codes, scales = int8_codes(values, torch.bfloat16)
    steps = scales.float()[:, None]
    # A scale rounded to bfloat16 may be too small for the largest value by 2 ** -9 of it, half a step of 127.
    assert ((codes.float() * steps - values).abs() <= 0.76 * steps + 1e-9).all()
    assert (codes[3] == 0).all()


def test_int4_loses_about_a_twelfth() -> None:
    values = random_values(64, 256)
    values[5] = 0.25
    codes, scales = int4_codes(values, torch.bfloat16)
    assert codes.shape == (64, 128)
    got = int4_values(codes, scales)
    error = (got - values).std() / values.std()
    # 16 steps over what 32 normal values span, 4.1 of their deviations: 4.1 / 15 / sqrt(12).
    assert error < 0.08
    torch.testing.assert_close(got[5], values[5], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("operator", [True, False])
@pytest.mark.parametrize("tokens", [1, 5, 40])
@pytest.mark.parametrize("kind", [TorchLinear, Int8Linear, Int4Linear])
def test_products_on_a_device_are_those_of_its_codes(
    tiny: MakeTiny, sim: Device, monkeypatch: pytest.MonkeyPatch, kind: Any, tokens: int, operator: bool
) -> None:
    """Whether torch's operator is used or not, whole or in pieces of few rows, rows in another order."""
    model = tiny("qwen3_moe", "gguf-F32")
    loader = Loader(model.checkpoint, model.spec, ignore_progress)
    if not operator:
        monkeypatch.setattr(device_linear, "int8_works", lambda *_: False)
        monkeypatch.setattr(device_linear, "DENSE_AT_ONCE", 1000)
        monkeypatch.setattr(loading, "PIECE", 4000)
    roles = ["layers.0.attention.q", "layers.0.attention.k"]
    q, k = (torch.from_numpy(loader.float32(role)) for role in roles)
    order = np.arange(len(q))[::-1].copy()
    stacked = torch.cat((q[torch.from_numpy(order)], k))
    x = random_values(tokens, stacked.shape[1])
    with torch.inference_mode(), sim.working():
        layer = kind(sim, torch.bfloat16, loader, roles, [order, None])
        got = sim.download(layer(sim.upload(x)))
    if kind is Int8Linear:
        codes, scales = int8_codes(stacked, torch.bfloat16)
        stacked = codes.float() * scales.float()[:, None]
        assert layer._operator is operator
    elif kind is Int4Linear:
        stacked = int4_values(*int4_codes(stacked, torch.bfloat16))
    expected = x @ stacked.T
    # Activations, and weights but int8's, are rounded to bfloat16.
    assert (got - expected).std() < 0.006 * expected.std()
    assert layer.nbytes <= stacked.numel() * 2


def test_an_operator_that_is_wrong_is_not_used(sim: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.inference_mode(), sim.working():
        assert device_linear.int8_works(sim, torch.bfloat16)
        other = open_device("sim")
        monkeypatch.setattr(torch, "_weight_int8pack_mm", lambda x, codes, scales: x @ codes.to(x.dtype).T)
        assert not device_linear.int8_works(other, torch.bfloat16)
        other.close()
        # There is none for int4 on this device.
        assert device_linear.int4_tiles(sim, torch.bfloat16, 64, 256) == 0


@pytest.mark.parametrize("mode", ["hybrid", "all_gpu"])
@pytest.mark.parametrize(("dense_dtype", "limit"), [("int8", 0.03), ("int4", 0.25)])
def test_dense_weights_may_be_rounded(
    tiny: MakeTiny, run: Callable[..., Any], mode: str, dense_dtype: str, limit: float
) -> None:
    model = tiny("qwen3_moe", "gguf-F32")
    executor = run(model, device="sim", mode=mode, dense_dtype=dense_dtype)
    errors = np.sqrt(((executor.forward(TOKENS, "all") - model.logits) ** 2).mean(axis=1)) / model.logits.std()
    assert 1e-3 < np.median(errors) < limit
