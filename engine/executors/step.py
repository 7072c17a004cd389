"""What all layers of one forward call share: positions, rotations and masks, each computed once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from engine.executors.devices import Device
from engine.executors.rope import Rope
from engine.models.spec import AttentionSpec, RopeSpec, TemperatureSpec


class Step:
    """tokens at positions start .. start + tokens - 1.

    draft: they are a guess
    """

    def __init__(
        self, start: int, tokens: int, ropes: Mapping[RopeSpec, Rope], device: Device, *, draft: bool = False
    ) -> None:
        self.start = start
        self.tokens = tokens
        self.draft = draft
        self._ropes = ropes
        self._device = device
        self._turns: dict[RopeSpec, torch.Tensor] = {}
        self._masks: dict[tuple[int, int | None, int | None, torch.dtype], torch.Tensor | None] = {}

    def turns(self, rope: RopeSpec) -> torch.Tensor:
        """As `Rope.turns` gives them, on the device."""
        if rope not in self._turns:
            turns = self._ropes[rope].turns(self.start, self.tokens)
            self._turns[rope] = self._device.upload(torch.from_numpy(turns))
        return self._turns[rope]

    def temperature(self, spec: TemperatureSpec) -> torch.Tensor:
        """float32 [T, 1, 1]: what each position's queries are multiplied by."""
        positions = np.arange(self.start, self.start + self.tokens)
        factors = 1.0 + spec.strength * np.log1p((positions + 1) // spec.interval)
        return self._device.upload(torch.from_numpy(factors.astype(np.float32)[:, None, None]))

    def mask(self, spec: AttentionSpec, first: int, dtype: torch.dtype) -> torch.Tensor | None:
        """[T, n], added to the scores over keys at positions first .. start + T - 1: 0 where visible, else -inf.

        None where every token sees every key up to itself and none is before the first token: attention's own causal
        form, or no mask at all, says the same.
        """
        key = (first, spec.window, spec.chunk, dtype)
        if key not in self._masks:
            self._masks[key] = self._make_mask(*key)
        return self._masks[key]

    def _make_mask(self, first: int, window: int | None, chunk: int | None, dtype: torch.dtype) -> torch.Tensor | None:
        end = self.start + self.tokens
        seen_by_last = end if window is None else window
        if chunk is not None:
            seen_by_last = (end - 1) % chunk + 1
        if end - first <= seen_by_last and (self.tokens == 1 or first == self.start):
            return None
        queries = torch.arange(self.start, end, device=self._device.torch_device)[:, None]
        keys = torch.arange(first, end, device=self._device.torch_device)
        visible = keys <= queries
        if window is not None:
            visible &= keys > queries - window
        if chunk is not None:
            visible &= keys >= queries // chunk * chunk
        mask = torch.zeros((self.tokens, end - first), dtype=dtype, device=self._device.torch_device)
        return mask.masked_fill_(~visible, float("-inf"))
