"""Expert deferral, where the user asked for it: a token's weakest experts on the CPU take effect one layer later.

While the device goes on with the next layer's attention, the CPU computes what it would otherwise have been waited for.
The idea is KTransformers' (SOSP 2025). It changes the answers, so it is off unless asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, wait

import numpy as np
import numpy.typing as npt
import torch

from engine.executors.devices import Device
from engine.executors.native.expert_store import ExpertStore

Floats = npt.NDArray[np.float32]


class DeferredExperts:
    """count:  of a token's experts, so many may come later
    layers: with routed experts, in order; the last one defers none
    """

    def __init__(self, store: ExpertStore, device: Device, count: int, layers: Sequence[int], hidden: int) -> None:
        self.count = count
        self._store, self._device = store, device
        self._before = dict(zip(layers[1:], layers[:-1], strict=True))
        self._last = layers[-1]
        #: Results of one layer are read while the next one's are written.
        self._results = [device.host_buffer(1, hidden, dtype=torch.float32) for _ in range(2)]
        self._turn = 0
        self._pending: dict[int, tuple[Future[None], torch.Tensor]] = {}

    def split(self, layer: int, x: Floats, ids: npt.NDArray[np.int32], weights: Floats) -> None:
        """On the worker's thread, of one token's experts [1, top_k]: start the weakest ones, and set their ids to -1.

        Those with id -1 already are computed elsewhere; they count among the weakest, too.
        """
        if layer == self._last:
            return
        weakest = np.argsort(weights[0], kind="stable")[: self.count]
        weakest = weakest[ids[0, weakest] >= 0]
        if not len(weakest):
            return
        later = np.full_like(ids, -1)
        later[0, weakest] = ids[0, weakest]
        ids[0, weakest] = -1
        result, self._turn = self._results[self._turn], 1 - self._turn
        # The next token's or layer's inputs overwrite these.
        inputs = x.copy(), later, weights.copy()
        self._pending[layer] = self._store.later(layer, *inputs, result.numpy()), result

    def add(self, layer: int, out: torch.Tensor) -> None:
        """out [1, H] on the device += what the layer before has deferred. Raises what went wrong there."""
        pending = self._pending.pop(self._before.get(layer, -1), None)
        if pending is not None:
            future, result = pending
            future.result()
            out += self._device.upload(result)

    def drain(self) -> None:
        """Wait for what nobody wants any more."""
        wait([future for future, _ in self._pending.values()])
        self._pending.clear()
