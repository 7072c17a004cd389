"""What the stage shows, without a picture: uses of each expert, where it lives, how lately it was called."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.uint32]
Cells = npt.NDArray[np.uint32]

#: Seconds after which the glow of an expert has fallen to a third.
FADE_S = 0.28
#: One use lights an expert this much; a second one makes it full.
SPARK = 0.85
#: Below this the eye sees nothing more.
DARK = 1 / 64


@dataclass(frozen=True)
class Frame:
    """What happened between two looks. Cells are numbered layer by layer, row * experts + expert.

    seconds: since the run began, at the end of the frame
    tokens:  of the answer, so far
    used:    cells that were called, ascending; counts: how often each
    moved:   cells that have changed their place, between RAM and VRAM
    """

    seconds: float
    tokens: int
    used: Cells
    counts: Counts
    moved: Cells


class Activity:
    """A run of one model. layers: the model's numbers of those that have experts, one a row.

    glow: float32 [L, E] from 0 to 1; uses: uint64 [L, E] in this run; in_vram: bool [L, E]
    """

    def __init__(self, layers: tuple[int, ...], experts: int) -> None:
        shape = (len(layers), experts)
        self.layers, self.experts = layers, experts
        self.glow = np.zeros(shape, np.float32)
        self.uses = np.zeros(shape, np.uint64)
        self.in_vram = np.zeros(shape, np.bool_)
        self.seconds, self.tokens = 0.0, 0
        #: Uses in this run served from each; those from RAM in decoding alone, and of how many tokens.
        self.from_vram = self.from_ram = 0
        self.decoded_from_ram = self.decoded_tokens = 0

    @property
    def cells(self) -> int:
        return int(self.glow.size)

    @property
    def served_from_vram(self) -> float | None:
        """Share of this run's uses; None before the first."""
        total = self.from_vram + self.from_ram
        return self.from_vram / total if total else None

    @property
    def ram_uses_per_token(self) -> float | None:
        """Experts that a decoded token reads from RAM, over all layers."""
        return self.decoded_from_ram / self.decoded_tokens if self.decoded_tokens else None

    @property
    def alight(self) -> bool:
        return bool(self.glow.max(initial=0.0) > DARK)

    def play(self, frame: Frame) -> None:
        """Let a frame happen. Fading is the caller's: pictures come more often than frames."""
        if len(frame.moved):
            self.in_vram.ravel()[frame.moved] ^= True
        if len(frame.used):
            glow = self.glow.ravel()
            glow[frame.used] = np.minimum(glow[frame.used] + SPARK * frame.counts.astype(np.float32), 1.0)
            self.uses.ravel()[frame.used] += frame.counts
            here = self.in_vram.ravel()[frame.used]
            from_vram, total = int(frame.counts[here].sum()), int(frame.counts.sum())
            self.from_vram += from_vram
            self.from_ram += total - from_vram
            # The first token ends the prompt's own uses.
            if self.tokens > 0:
                self.decoded_from_ram += total - from_vram
        if self.tokens > 0:
            self.decoded_tokens += max(0, frame.tokens - self.tokens)
        self.seconds, self.tokens = frame.seconds, frame.tokens

    def fade(self, seconds: float) -> None:
        if seconds > 0:
            self.glow *= np.float32(math.exp(-seconds / FADE_S))

    def settle(self) -> None:
        """Light each expert by its uses in this run, the busiest of each layer in full, instead of by the moment."""
        busiest = np.maximum(self.uses.max(axis=1, keepdims=True, initial=0), 1)
        np.sqrt(self.uses / busiest, out=self.glow, casting="unsafe")

    def share(self, row: int, expert: int) -> float:
        """Of its layer's uses in this run, those that went to this expert."""
        total = int(self.uses[row].sum())
        return int(self.uses[row, expert]) / total if total else 0.0

    @property
    def never_used(self) -> float:
        """Share of the experts that this run has not called."""
        return float((self.uses == 0).mean()) if self.cells else 0.0


class Watcher:
    """Turns cumulative counts, as the engine gives them, into frames."""

    def __init__(self, counts: npt.NDArray[np.uint64]) -> None:
        """counts: [L, E] as the run begins."""
        self._before = counts.astype(np.uint64).ravel()
        self._in_vram = np.zeros(self._before.shape, np.bool_)

    def look(
        self, seconds: float, tokens: int, counts: npt.NDArray[np.uint64], in_vram: npt.NDArray[np.bool_]
    ) -> Frame:
        """counts, in_vram: [L, E] as before."""
        now, here = counts.ravel(), in_vram.ravel()
        used = np.flatnonzero(now > self._before).astype(np.uint32)
        calls = np.minimum(now[used] - self._before[used], np.iinfo(np.uint32).max).astype(np.uint32)
        moved = np.flatnonzero(here != self._in_vram).astype(np.uint32)
        self._before = now.copy()
        if len(moved):
            self._in_vram = here.copy()
        return Frame(seconds, tokens, used, calls, moved)
