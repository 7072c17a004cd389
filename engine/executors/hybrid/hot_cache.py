"""Which experts lie in VRAM: a cache of slots for the experts that routers call again and again.

Pure bookkeeping, no bytes: `expert_slots` holds those. An expert that is missing is computed on the CPU at once, so
nothing ever waits for the cache, and an upload is worth its bytes only if the expert comes again.

Between two calls of `next_uploads` and `uploaded` the cache does not move: everybody who looks an expert up during one
step sees the same. One thread at a time, except for `resident`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.integer]
Flags = npt.NDArray[np.bool_]
Scores = npt.NDArray[np.float64]

#: What decides who stays. "lfru" weighs uses by their age: a use counts half after HALF_LIFE tokens.
POLICIES = ("lfru", "lru", "lfu", "static")
#: Tokens. See docs/hybrid-cache.md for how it was chosen.
HALF_LIFE = 32.0
#: How much more often than a resident an expert must have been called lately to take its slot. Less moves experts to
#: and fro that are called about equally often.
ADVANTAGE = 1.25


class Upload(NamedTuple):
    """An expert's way into a slot. layer: the model's number."""

    layer: int
    expert: int
    slot: int


@dataclass(frozen=True)
class Policy:
    """name: one of POLICIES; half_life in tokens and advantage as a factor are for "lfru" alone."""

    name: str = "lfru"
    half_life: float = HALF_LIFE
    advantage: float = ADVANTAGE

    def __post_init__(self) -> None:
        if self.name not in POLICIES or self.half_life <= 0 or self.advantage < 1:
            raise ValueError(f"no such policy: {self}")


class HotCache:
    """layers: the model's numbers of the layers with routed experts; experts: most of any of them.
    slots:      experts that VRAM has room for, over all layers
    statistics: float [L, E], how often each expert was called lately, as `statistics()` gave them; None: unknown

    hits, misses: of the experts looked up, those that were and were not in a slot
    """

    def __init__(
        self,
        layers: Sequence[int],
        experts: int,
        slots: int,
        policy: Policy | None = None,
        statistics: npt.NDArray[np.floating] | None = None,
    ) -> None:
        if not layers or experts < 1 or slots < 0:
            raise ValueError(f"{len(layers)} layers of {experts} experts in {slots} slots")
        self.layers = tuple(layers)
        self.experts = experts
        self.slots = min(slots, len(layers) * experts)
        self.policy = policy or Policy()
        self.frozen = False
        self.hits = self.misses = 0
        self._row = {layer: i for i, layer in enumerate(self.layers)}
        self._now = 0.0  # tokens
        size = len(layers) * experts
        self._slot_of = np.full(size, -1, np.int32)
        self._owner = np.full(self.slots, -1, np.int64)
        self._free = list(range(self.slots - 1, -1, -1))
        self._coming: dict[int, int] = {}  # slot -> expert, until its upload is done
        self._asked: list[Ids] = []
        self._missed = np.zeros(size, np.bool_)
        if statistics is not None and statistics.shape != (len(layers), experts):
            raise ValueError(f"statistics {statistics.shape} of {len(layers)} layers of {experts} experts")
        known = np.zeros(size) if statistics is None else np.asarray(statistics, np.float64).ravel()
        self._score = self._first_scores(known)

    def lookup(self, layer: int, ids: Ids) -> npt.NDArray[np.int32]:
        """The slots of a layer's experts, of the shape of ids; -1: not there. Each counts as one use."""
        flat = self._row[layer] * self.experts + ids
        self._asked.append(flat.ravel())
        return self._slot_of[flat]

    def table(self, layer: int) -> npt.NDArray[np.int32]:
        """int32 [E]: the slot of each of a layer's experts, -1 for none. Counts nothing."""
        first = self._row[layer] * self.experts
        return self._slot_of[first : first + self.experts].copy()

    def observe(self, layer: int, uses: npt.NDArray[np.integer], tokens: int) -> None:
        """A prompt's chunk of so many tokens has called the layer's experts so often, uses [E]: no hits, no misses,
        but what is called in a prompt is often called in the answer, so what is missing is wanted.
        """
        if self.frozen or self.policy.name == "static":
            return
        self._settle()
        first = self._row[layer] * self.experts
        called = np.flatnonzero(uses) + first
        # Spread evenly over the chunk, a use's weight is the mean of their ages'.
        weight = min(1.0, self.policy.half_life / (np.log(2.0) * tokens)) if self.policy.name == "lfru" else 1.0
        self._use(called, uses[called - first] * weight)
        self._missed[called[self._slot_of[called] < 0]] = True

    def advance(self, tokens: int) -> None:
        """So many tokens have gone through all layers."""
        self._settle()
        self._now += tokens

    def next_uploads(self, most: int) -> list[Upload]:
        """What should come into slots now, most wanted first. Those slots hold nothing until `uploaded`."""
        self._settle()
        # Some may have arrived since they were missed.
        missed = np.flatnonzero(self._missed & (self._slot_of < 0))
        self._missed[:] = False
        if self.frozen or most <= 0 or not self.slots or not len(missed):
            return []
        if self.policy.name == "static":
            return []
        wanted = missed[np.argsort(-self._score[missed], kind="stable")][:most]
        return self._place(wanted)

    def fill(self) -> list[Upload]:
        """Uploads for every empty slot: the experts called most, evenly over the layers where that is not known."""
        self._settle()
        coming = np.fromiter(self._coming.values(), np.int64, len(self._coming))
        absent = self._slot_of < 0
        absent[coming] = False
        # Layer after layer for one expert, then for the next.
        order = np.arange(len(absent)).reshape(len(self.layers), self.experts).T.ravel()
        order = order[absent[order]]
        order = order[np.argsort(-self._score[order], kind="stable")][: len(self._free)]
        return self._place(order)

    def uploaded(self, upload: Upload) -> None:
        """The bytes are there, for whoever looks from now on. Raises ValueError for what was not on its way."""
        expert = self._arrived(upload)
        self._owner[upload.slot] = expert
        self._slot_of[expert] = upload.slot

    def failed(self, upload: Upload) -> None:
        """The bytes never arrived: the slot is empty."""
        self._arrived(upload)
        self._free.append(upload.slot)

    def shrink(self, slots: int) -> None:
        """Have no more than so many slots, those of the highest numbers go. Nothing may be on its way."""
        if self._coming:
            raise ValueError("uploads are on their way")
        self._settle()
        for slot in range(slots, self.slots):
            if self._owner[slot] >= 0:
                self._slot_of[self._owner[slot]] = -1
        self.slots = min(self.slots, slots)
        self._owner = self._owner[: self.slots].copy()
        self._free = [slot for slot in self._free if slot < self.slots]

    def resident(self) -> Flags:
        """bool [L, E]: what is in a slot. Any thread may ask."""
        return (self._slot_of >= 0).reshape(len(self.layers), self.experts)

    def statistics(self) -> npt.NDArray[np.float32]:
        """float32 [L, E]: how often each expert was called lately, to start the next cache with."""
        self._settle()
        if self.policy.name == "lfru":
            # A power of two of a negative number of half-lives: no overflow, and small ones become 0.
            uses = np.exp2(self._score - self._now / self.policy.half_life)
        else:
            uses = np.maximum(self._score, 0.0)
        return uses.astype(np.float32).reshape(len(self.layers), self.experts)

    def _first_scores(self, known: Scores) -> Scores:
        """known: float64 [L * E]"""
        if self.policy.name == "lfru":
            with np.errstate(divide="ignore"):
                scores: Scores = np.log2(known)
                return scores
        if self.policy.name == "lru":
            # Below everything that will be used.
            below: Scores = known / max(1.0, 2 * known.max()) - 1.0
            return below
        return known.copy()

    def _settle(self) -> None:
        """Take note of what was looked up."""
        if not self._asked:
            return
        asked, self._asked = np.concatenate(self._asked), []
        there = int((self._slot_of[asked] >= 0).sum())
        self.hits += there
        self.misses += len(asked) - there
        if self.frozen:
            return
        called, uses = np.unique(asked, return_counts=True)
        self._missed[called[self._slot_of[called] < 0]] = True
        if self.policy.name != "static":
            self._use(called, uses)

    def _use(self, called: Ids, uses: npt.NDArray[np.integer] | Scores) -> None:
        if self.policy.name == "lfru":
            # The logarithm of the sum of all uses, each halved per half-life since it happened, is kept relative to
            # time 0: so the order of two experts never changes while neither is used.
            then = self._now / self.policy.half_life
            self._score[called] = np.logaddexp2(self._score[called], np.log2(uses) + then)
        elif self.policy.name == "lru":
            self._score[called] = self._now
        else:
            self._score[called] += uses

    def _place(self, wanted: Ids) -> list[Upload]:
        """Free slots first, then those of the least wanted, as long as they are less wanted."""
        uploads: list[Upload] = []
        held = np.flatnonzero(self._owner >= 0)
        needed = max(0, len(wanted) - len(self._free))
        victims = held[np.argsort(self._score[self._owner[held]], kind="stable")[:needed]].tolist() if needed else []
        margin = np.log2(self.policy.advantage) if self.policy.name == "lfru" else 0.0
        coming = set(self._coming.values())
        for expert in wanted.tolist():
            if expert in coming:
                continue
            if self._free:
                slot = self._free.pop()
            elif victims and self._score[self._owner[victims[0]]] + margin < self._score[expert]:
                slot = victims.pop(0)
                self._slot_of[self._owner[slot]] = -1
                self._owner[slot] = -1
            else:
                break
            self._coming[slot] = expert
            uploads.append(Upload(self.layers[expert // self.experts], expert % self.experts, slot))
        return uploads

    def _arrived(self, upload: Upload) -> int:
        # What has been looked up so far was looked up without it.
        self._settle()
        expert = self._row[upload.layer] * self.experts + upload.expert
        if self._coming.get(upload.slot) != expert:
            raise ValueError(f"{upload} is not on its way")
        del self._coming[upload.slot]
        return expert
