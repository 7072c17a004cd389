"""Stacked projections on stored codes and as float tensors."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from engine import _native
from engine.checkpoints.opening import open_checkpoint
from engine.errors import GreenroomError
from engine.executors.device.blocks import TorchMlp
from engine.executors.device.linear import TorchLinear
from engine.executors.devices import HostDevice
from engine.executors.embedding import Embedding
from engine.executors.linear import Linear, NativeLinear
from engine.executors.loading import Loader
from engine.executors.mlp import NativeMlp
from engine.models.spec import MlpSpec, ModelSpec, TensorRef
from engine.progress import ignore_progress

#: Several formats and heights, so that stacking must group, order and cut.
TENSORS = {
    "a": ("Q8_0", (24, 64)),
    "b": ("Q8_0", (8, 64)),
    "c": ("Q4_0", (40, 64)),
    "d": ("F32", (1, 64)),
    "gate": ("Q4_0", (32, 64)),
    "up": ("Q8_0", (32, 64)),
    "down": ("Q8_0", (64, 32)),
    "vector": ("F32", (64,)),
    "embed": ("Q4_0", (50, 64)),
}


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    path = tmp_path_factory.mktemp("linear") / "some.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    rng = np.random.default_rng(3)
    for name, (kind, shape) in TENSORS.items():
        stored = gguf.GGMLQuantizationType[kind]
        data = gguf.quants.quantize(rng.standard_normal(shape).astype(np.float32), stored)
        writer.add_tensor(name, data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    weights = {name: TensorRef(name) for name in TENSORS}
    weights |= {f"mlp.{part}": TensorRef(part) for part in ("gate", "up", "down")}
    return Loader(open_checkpoint(path), ModelSpec("llama", 64, 50, 1, 1e-5, (), weights), ignore_progress)


@pytest.fixture
def pool() -> _native.ThreadPool:
    return _native.ThreadPool(2)


def relative_error(got: torch.Tensor, expected: np.ndarray) -> float:
    return float(np.sqrt(((got.numpy() - expected) ** 2).mean() / (expected**2).mean()))


@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("roles", [["a", "b"], ["a", "b", "c"], ["c", "a", "vector", "b"], ["d"]])
@pytest.mark.parametrize("native", [True, False])
def test_stacked_rows(loader: Loader, pool: _native.ThreadPool, roles: list[str], tokens: int, native: bool) -> None:
    orders = [np.random.default_rng(len(r)).permutation(TENSORS[r][1][0]) if r in "ac" else None for r in roles]
    layer: Linear
    if native:
        layer = NativeLinear(pool, loader, roles, orders, recode="float32")
    else:
        layer = TorchLinear(HostDevice(), torch.float32, loader, roles, orders)
    matrices = [loader.float32(role).reshape(-1, 64) for role in roles]
    stacked = np.concatenate([m if o is None else m[o] for m, o in zip(matrices, orders, strict=True)])
    x = np.random.default_rng(1).standard_normal((tokens, 64)).astype(np.float32)
    y = layer(torch.from_numpy(x))
    assert layer.rows == len(stacked)
    assert layer.nbytes >= stacked.nbytes
    assert y.is_contiguous()
    assert relative_error(y, x @ stacked.T) < 1e-5


def test_stored_codes_stay_codes(loader: Loader, pool: _native.ThreadPool) -> None:
    layer = NativeLinear(pool, loader, ["c"])
    x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    assert layer.nbytes < loader.float32("c").nbytes / 4
    # Activations rounded to int8 per 32: 0.5 % of noise.
    assert relative_error(layer(torch.from_numpy(x)), x @ loader.float32("c").T) < 0.01


@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("gated", [True, False])
def test_mlps_agree(loader: Loader, pool: _native.ThreadPool, tokens: int, gated: bool) -> None:
    gate, up, down = (loader.float32(name).astype(np.float64) for name in ("gate", "up", "down"))
    rng = np.random.default_rng(2)
    x = rng.standard_normal((tokens, 64)).astype(np.float32)
    factors = rng.random((tokens, 1)).astype(np.float32)
    inner = x @ gate.T
    expected = 1.0 + (inner / (1 + np.exp(-inner)) * (x @ up.T)) @ down.T * (factors if gated else 1.0)
    device = HostDevice()
    both = TorchLinear(device, torch.float32, loader, ["gate", "up"])
    for mlp in (
        NativeMlp(pool, loader, "mlp", MlpSpec(32), recode="float32"),
        TorchMlp(MlpSpec(96), both, TorchLinear(device, torch.float32, loader, ["down"])),
    ):
        out = torch.ones(tokens, 64)
        mlp.add(torch.from_numpy(x), out, torch.from_numpy(factors) if gated else None)
        assert relative_error(out, expected) < 1e-5
        # More tokens than last time, then fewer: nothing sized by the first call may be left over.
        more = torch.from_numpy(np.tile(x, (3, 1)))
        again = torch.ones(3 * tokens, 64)
        mlp.add(more, again, torch.from_numpy(np.tile(factors, (3, 1))) if gated else None)
        assert relative_error(again, np.tile(expected, (3, 1))) < 1e-5


def test_embedding_rows_are_dequantised_as_asked(loader: Loader) -> None:
    embedding = Embedding(loader)
    ids = np.array([7, 0, 49, 7])
    np.testing.assert_array_equal(embedding(ids), loader.float32("embed")[ids])
    assert embedding.nbytes == loader.nbytes("embed")


def test_a_matrix_the_kernels_refuse_is_named(loader: Loader, pool: _native.ThreadPool) -> None:
    with pytest.raises(GreenroomError, match=r'"a" \(Q8_0\).*another format'):
        NativeLinear(pool, loader, ["a"], recode="int3")


ORDERS = {name: np.random.default_rng(n).permutation(64).astype(np.int32) for n, name in enumerate("ab")}


class Rearranged(Loader):
    """The same matrices, as if "a" and "b" were stored with their columns in an order of their own and with factors."""

    def column_order(self, role: str) -> np.ndarray | None:
        return ORDERS.get(role)

    def factor(self, role: str) -> float:
        return {"b": 3.0, "c": 0.25}.get(role, 1.0)


@pytest.mark.parametrize("roles", [["a"], ["a", "b"], ["c", "a", "c"]])
@pytest.mark.parametrize("tokens", [1, 9])
def test_stored_column_orders_and_factors(
    loader: Loader, pool: _native.ThreadPool, roles: list[str], tokens: int
) -> None:
    rearranged = Rearranged(loader.checkpoint, loader.spec, ignore_progress)
    x = torch.from_numpy(np.random.default_rng(5).standard_normal((tokens, 64)).astype(np.float32))
    y = NativeLinear(pool, rearranged, roles, recode="float32")(x)
    expected = []
    for role in roles:
        order = rearranged.column_order(role)
        columns = x.numpy() if order is None else x.numpy()[:, order]
        expected.append(columns @ loader.float32(role).T * rearranged.factor(role))
    assert relative_error(y, np.concatenate(expected, 1)) < 1e-6
