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
#: A single use lights an expert this much. Where more were called lately, the busiest of a layer is full and the others
#: are by so much darker as they were called less: at a hundred tokens a second all would be full otherwise.
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

    lately: float32 [L, E], uses that count the less the longer they are ago; uses: uint64 [L, E] in this run
    in_vram: bool [L, E]; overall: whether `glow` is by the whole run instead of the moment
    """

    def __init__(self, layers: tuple[int, ...], experts: int) -> None:
        shape = (len(layers), experts)
        self.layers, self.experts = layers, experts
        self.lately = np.zeros(shape, np.float32)
        self.overall = False
        self.uses = np.zeros(shape, np.uint64)
        self.in_vram = np.zeros(shape, np.bool_)
        self.seconds, self.tokens = 0.0, 0
        #: Uses in this run served from each; those from RAM in decoding alone, and of how many tokens in what time.
        self.from_vram = self.from_ram = 0
        self.decoded_from_ram = self.decoded_tokens = 0
        self.decoded_seconds = 0.0

    @property
    def cells(self) -> int:
        return int(self.uses.size)

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
    def decoded_per_second(self) -> float:
        """Tokens of the answer, in its own time: reading the prompt takes none of it. 0 before the second."""
        return self.decoded_tokens / self.decoded_seconds if self.decoded_seconds > 0 else 0.0

    @property
    def alight(self) -> bool:
        """Whether something of the last moment can be seen."""
        return bool(self.lately.max(initial=0.0) * SPARK > DARK)

    @property
    def glow(self) -> npt.NDArray[np.float32]:
        """float32 [L, E] from 0 to 1: the brightness of each expert beside the busiest of its layer."""
        if self.overall:
            busiest = np.maximum(self.uses.max(axis=1, keepdims=True, initial=0), 1)
            return np.sqrt(self.uses / busiest, dtype=np.float32, casting="unsafe")
        busy = np.maximum(self.lately.max(axis=1, keepdims=True, initial=0.0), np.float32(1 / SPARK))
        return self.lately / busy

    def play(self, frame: Frame) -> None:
        """Let a frame happen. Fading is the caller's: pictures come more often than frames."""
        if len(frame.moved):
            self.in_vram.ravel()[frame.moved] ^= True
        if len(frame.used):
            self.lately.ravel()[frame.used] += frame.counts
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
            self.decoded_seconds += max(0.0, frame.seconds - self.seconds)
        self.seconds, self.tokens = frame.seconds, frame.tokens

    def fade(self, seconds: float) -> None:
        if seconds > 0:
            self.lately *= np.float32(math.exp(-seconds / FADE_S))

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
