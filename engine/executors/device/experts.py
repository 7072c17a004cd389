"""Routed experts on the device itself, for plans that keep the whole model there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from engine.checkpoints.formats import FORMATS
from engine.executors.device.block_decoder import BlockDecoder, Tables
from engine.executors.device.blocks import activate
from engine.executors.devices import DenseDevice, Device
from engine.executors.loading import Loader
from engine.models.spec import MlpSpec, MoeSpec
from engine.placement.sizes import DEQUANTISED_AT_ONCE, FLOATS
from engine.status import ExpertUsage
from engine.words import say


@dataclass(frozen=True)
class ExpertMatrices:
    """One projection of every expert of a layer.

    stored:  floats [E, rows, columns], or blocks as the file has them, uint8 [E, rows, blocks, block bytes]
    dtype:   of products
    decoder: of the blocks; None for floats
    factors: float32 [E], of products, or None
    columns: int64 [E, columns], which element of the input each stored column meets, or None for all as they are
    """

    stored: torch.Tensor
    dtype: torch.dtype
    decoder: BlockDecoder | None = None
    factors: torch.Tensor | None = None
    columns: torch.Tensor | None = None

    @property
    def nbytes(self) -> int:
        return self.stored.nbytes

    @property
    def at_once(self) -> int:
        """How many experts' weights may be dequantised together."""
        values = self.stored[0].numel()
        if self.decoder is not None:
            values = values // self.decoder.block_bytes * self.decoder.block_values
        return max(1, DEQUANTISED_AT_ONCE // values)

    def products(self, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """chosen int64 [n]; x float32 [n or 1, columns], a row for each -> float32 [n, rows]."""
        x = x.expand(len(chosen), -1)
        if self.columns is not None:
            x = x.gather(1, self.columns[chosen])
        weights = self._values(self.stored[chosen])
        y = torch.bmm(weights, x.to(self.dtype)[:, :, None])[:, :, 0].float()
        return y if self.factors is None else y.mul_(self.factors[chosen, None])

    def product(self, x: torch.Tensor, expert: int) -> torch.Tensor:
        """x float32 [T, columns] through one expert -> float32 [T, rows]."""
        if self.columns is not None:
            x = x[:, self.columns[expert]]
        weights = self._values(self.stored[expert : expert + 1])[0]
        y = torch.mm(x.to(self.dtype), weights.T).float()
        return y if self.factors is None else y.mul_(self.factors[expert])

    def _values(self, stored: torch.Tensor) -> torch.Tensor:
        """Of some experts -> [n, rows, columns] in dtype."""
        if self.decoder is None:
            return stored
        experts, rows = stored.shape[:2]
        return self.decoder(stored.view(-1, self.decoder.block_bytes)).to(self.dtype).view(experts, rows, -1)


@dataclass(frozen=True)
class LayerExperts:
    """biases: float32 [E, I] twice and [E, H], of gate, up and down, or None"""

    spec: MlpSpec
    gate: ExpertMatrices
    up: ExpertMatrices
    down: ExpertMatrices
    biases: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None

    @property
    def nbytes(self) -> int:
        return self.gate.nbytes + self.up.nbytes + self.down.nbytes

    def one(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """One token, without waiting for the device. -> float32 [1, top_k, H]."""
        parts = []
        for chosen in torch.split(ids[0].long(), min(self.gate.at_once, self.down.at_once)):
            gate, up = self.gate.products(x, chosen), self.up.products(x, chosen)
            if self.biases is not None:
                gate += self.biases[0][chosen]
                up += self.biases[1][chosen]
            y = self.down.products(activate(self.spec, torch.cat((gate, up), -1)), chosen)
            parts.append(y if self.biases is None else y + self.biases[2][chosen])
        return torch.cat(parts)[None]

    def many(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Several tokens: expert by expert, each over its own tokens. -> float32 [T, top_k, H]."""
        y = x.new_empty((*ids.shape, x.shape[1]))
        for expert in sorted(set(ids.flatten().tolist())):
            tokens, slots = torch.where(ids == expert)
            rows = x[tokens]
            gate, up = self.gate.product(rows, expert), self.up.product(rows, expert)
            if self.biases is not None:
                gate += self.biases[0][expert]
                up += self.biases[1][expert]
            part = self.down.product(activate(self.spec, torch.cat((gate, up), -1)), expert)
            y[tokens, slots] = part if self.biases is None else part + self.biases[2][expert]
        return y


class DeviceExperts:
    """Weights per layer, as the file stores them; each use dequantises those that it needs."""

    overlaps = False

    def __init__(self, device: Device, layers: Mapping[int, LayerExperts], kernel: str) -> None:
        self._device = device
        self._layers = dict(layers)
        #: Row i belongs to the i-th layer with experts.
        self._rows = {layer: i for i, layer in enumerate(sorted(layers))}
        experts = max((len(weights.down.stored) for weights in layers.values()), default=0)
        self._counts = device.empty(len(layers), experts, dtype=torch.int64).zero_()
        self.kernel = kernel

    @classmethod
    def load(cls, device: DenseDevice, loader: Loader) -> DeviceExperts:
        tables = Tables(device.device)
        layers: dict[int, LayerExperts] = {}
        for i, layer in enumerate(loader.spec.layers):
            if isinstance(layer.ffn, MoeSpec):
                layers[i] = _load_layer(device, loader, i, layer.ffn, tables)
        return cls(
            device.device,
            layers,
            say("{dtype} on {device}", dtype=str(device.dtype).removeprefix("torch."), device=device.device.name),
        )

    @property
    def nbytes(self) -> int:
        return sum(weights.nbytes for weights in self._layers.values())

    def usage(self) -> ExpertUsage | None:
        """Any thread may ask."""
        if not self._layers:
            return None
        counts = self._device.download(self._counts).numpy()
        experts = {layer: len(weights.down.stored) for layer, weights in list(self._layers.items())}
        return ExpertUsage.of({layer: counts[self._rows[layer], :most] for layer, most in experts.items()}, True)

    def forward(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> None:
        """out += sum over slots of weight * expert(x). All on the device; shapes as in RoutedExperts."""
        experts = self._layers[layer]
        chosen = ids.flatten().long()
        self._counts[self._rows[layer]].index_add_(0, chosen, torch.ones_like(chosen))
        y = experts.one(x, ids) if x.shape[0] == 1 else experts.many(x, ids)
        out += torch.bmm(weights[:, None], y)[:, 0]

    def submit(self, layer: int, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> None:
        raise RuntimeError("experts on the device are computed at once")

    def wait(self, out: torch.Tensor) -> None:
        raise RuntimeError("experts on the device are computed at once")

    def drain(self) -> None:
        """Nothing runs beside the device."""

    def close(self) -> None:
        self._layers.clear()
        self.__dict__.pop("_counts", None)


def _load_layer(device: DenseDevice, loader: Loader, layer: int, spec: MoeSpec, tables: Tables) -> LayerExperts:
    on, prefix = device.device, f"layers.{layer}.moe.experts"
    loader.report(say("Reading experts of layer {layer} of {layers}", layer=layer + 1, layers=len(loader.spec.layers)))
    gate = _load_matrices(device, loader, prefix, "gate", spec, tables)
    up = _load_matrices(device, loader, prefix, "up", spec, tables)
    down = _load_matrices(device, loader, prefix, "down", spec, tables)
    biases = None
    if spec.bias:
        hidden, inner = loader.spec.hidden, spec.intermediate
        biases = on.empty(spec.experts, inner), on.empty(spec.experts, inner), on.empty(spec.experts, hidden)
        for part, target in zip(("gate", "up", "down"), biases, strict=True):
            values = [loader.float32(f"{prefix}.{e}.{part}_bias").reshape(-1) for e in range(spec.experts)]
            on.upload(torch.from_numpy(np.stack(values)), target)
    return LayerExperts(spec.expert, gate, up, down, biases)


def _load_matrices(
    device: DenseDevice, loader: Loader, prefix: str, part: str, spec: MoeSpec, tables: Tables
) -> ExpertMatrices:
    roles = [f"{prefix}.{expert}.{part}" for expert in range(spec.experts)]
    on, form = device.device, loader.format(roles[0])
    rows, columns = loader.shape(roles[0])
    if form in FLOATS:
        values = on.empty(spec.experts, rows, columns, dtype=device.dtype)
        for role, target in zip(roles, values, strict=True):
            loader.report_again()
            on.upload(torch.from_numpy(loader.float32(role)).to(device.dtype), target)
        return ExpertMatrices(values, device.dtype)
    record = FORMATS[form]
    blocks = on.empty(spec.experts, rows, columns // record.block_values, record.block_bytes, dtype=torch.uint8)
    for role, target in zip(roles, blocks, strict=True):
        loader.report_again()
        if loader.format(role) != form:
            raise loader.refuse(role, ValueError(f"other experts of this layer are stored as {form}"))
        on.upload(torch.from_numpy(loader.stored(role)).view(target.shape), target)
    factors, orders = [loader.factor(role) for role in roles], [loader.column_order(role) for role in roles]
    usual = np.arange(columns, dtype=np.int64)
    return ExpertMatrices(
        blocks,
        device.dtype,
        BlockDecoder(form, tables),
        on.upload(torch.tensor(factors)) if any(factor != 1.0 for factor in factors) else None,
        on.upload(torch.from_numpy(np.stack([usual if order is None else order.astype(np.int64) for order in orders])))
        if any(order is not None for order in orders)
        else None,
    )
