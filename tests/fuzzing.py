"""Fuzzing for a number of seconds: every round has its own seed, and the report says how many rounds there were."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator


class Fuzzer:
    """for rng in fuzzer.rounds(): build one hostile input from rng and use it.

    seconds: how long; at least one round is made
    seed:    of the current round: `--fuzz-seed` with it repeats a failing round first
    """

    def __init__(self, seconds: float, first_seed: int) -> None:
        self.seconds, self.seed, self.count = seconds, first_seed, 0

    def rounds(self) -> Iterator[random.Random]:
        end = time.monotonic() + self.seconds
        while self.count == 0 or time.monotonic() < end:
            self.count += 1
            yield random.Random(self.seed)
            self.seed += 1
