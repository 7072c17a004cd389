"""From logits to the next token."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from engine.errors import GreenroomError
from engine.runtime.events import SamplingParams
from engine.words import say

Logits = npt.NDArray[np.float32] | npt.NDArray[np.float64]


class Sampler:
    """Chooses the tokens of one answer. The steps, in this order:

    1. logit bias is added;
    2. repetition penalty on every token of the prompt or the answer, presence and frequency penalties on the answer's;
    3. temperature 0: the largest logit, the lowest id among equals, and nothing below applies;
    4. logits are divided by the temperature;
    5. top-k keeps the k largest (the lowest ids among equals);
    6. top-p keeps the smallest set, taken from the most probable down, that holds at least top_p of what top-k left;
    7. min-p keeps what is at least min_p times as probable as the most probable token;
    8. one token is drawn from what is left, in proportion to its probability.

    Computed in float64. The same seed, params and logits give the same tokens on every machine with the same numpy.
    """

    def __init__(self, params: SamplingParams, vocab: int, prompt: Iterable[int] = ()) -> None:
        """prompt: its token ids, for the repetition penalty. Raises GreenroomError for a setting out of range."""
        _check(params, vocab)
        self._params = params
        self._vocab = vocab
        self._random = np.random.Generator(np.random.PCG64(params.seed))
        self._seen = np.zeros(vocab, dtype=bool)
        self._seen[list(prompt)] = True
        self._counts: dict[int, int] = {}
        # Reused for every token: fresh memory of this size is paged in again each time, which costs milliseconds.
        self._adjusted = np.empty(vocab)
        self._adjusts = bool(
            params.logit_bias or params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0
        )
        #: top-k leaves so few that the others need not become float64.
        self._few = 0 < params.top_k < vocab
        self._bias_ids = np.fromiter(params.logit_bias.keys(), dtype=np.int64, count=len(params.logit_bias))
        self._bias = np.fromiter(params.logit_bias.values(), dtype=np.float64, count=len(params.logit_bias))

    def sample(self, logits: npt.NDArray[np.float32]) -> int:
        """The next token id for logits [vocab]; it counts as part of the answer from now on.

        Raises GreenroomError when the logits hold no distribution (NaN, or infinitely large).
        """
        if logits.shape != (self._vocab,):
            raise ValueError(f"logits have shape {logits.shape}, expected ({self._vocab},)")
        if self._params.temperature == 0.0 and not self._adjusts:
            token = int(logits.argmax())
            _check_finite(logits[token])
        else:
            _check_finite(logits.max())
            token = self._choose(logits if self._few and not self._adjusts else self._adjust(logits))
        self._seen[token] = True
        self._counts[token] = self._counts.get(token, 0) + 1
        return token

    def _adjust(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Steps 1 and 2."""
        p, x = self._params, self._adjusted
        np.copyto(x, logits)
        if not self._adjusts:
            return x
        x[self._bias_ids] += self._bias
        if x.max() == -math.inf:
            raise GreenroomError(
                say("No token is left to choose"),
                say("the logit bias forbids every token of this model"),
                say("Remove some of it."),
            )
        if p.repetition_penalty != 1.0:
            seen = x[self._seen]
            x[self._seen] = np.where(seen > 0, seen / p.repetition_penalty, seen * p.repetition_penalty)
        if p.presence_penalty or p.frequency_penalty:
            used = np.fromiter(self._counts.keys(), dtype=np.int64, count=len(self._counts))
            times = np.fromiter(self._counts.values(), dtype=np.int64, count=len(self._counts))
            x[used] -= p.presence_penalty + p.frequency_penalty * times
        return x

    def _choose(self, x: Logits) -> int:
        if self._params.temperature == 0.0:
            return int(x.argmax())
        ids, probabilities = distribution(x, self._params)
        cumulative = np.cumsum(probabilities)
        index = int(np.searchsorted(cumulative, self._random.random() * cumulative[-1], side="right"))
        return int(ids[min(index, ids.size - 1)])


def _check_finite(largest: np.float32) -> None:
    """numpy's max and argmax give NaN if any value is."""
    if not math.isfinite(largest):
        raise GreenroomError(
            say("The model gave no usable answer"),
            say("its output contains values that are not numbers, so its weights or the arithmetic went wrong"),
            say("Check the file (download it again if in doubt) or load it with float32 arithmetic."),
        )


def distribution(x: Logits, params: SamplingParams) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Steps 4 to 7: (token ids, their probabilities) left of adjusted logits x [vocab].

    params.temperature > 0. x is float64 and overwritten, unless top-k leaves only a few.
    """
    ids = _largest(x, params.top_k) if 0 < params.top_k < x.size else None
    weights = np.asarray(x if ids is None else x[ids], np.float64)
    # The maximum is taken off before the division, so that a tiny temperature underflows to 0 instead of giving NaN.
    with np.errstate(over="ignore"):
        weights -= weights.max()
        weights /= params.temperature
        np.exp(weights, out=weights)
    if params.top_p < 1.0:
        kept = _nucleus(weights, params.top_p)
        ids, weights = kept if ids is None else ids[kept], weights[kept]
    if params.min_p > 0.0:
        # The most probable token has weight exp(0) = 1.
        likely = np.flatnonzero(weights >= params.min_p)
        ids, weights = likely if ids is None else ids[likely], weights[likely]
    return np.arange(x.size) if ids is None else ids, weights / weights.sum()


def _largest(values: Logits, size: int) -> npt.NDArray[np.int64]:
    """Positions of the `size` largest values in ascending order; the first among equals."""
    return _from_smallest(values, size, np.partition(values, values.size - size)[values.size - size])


def _from_smallest(values: Logits, size: int, smallest: np.floating) -> npt.NDArray[np.int64]:
    """`_largest`, where the smallest of those is known."""
    positions = np.flatnonzero(values >= smallest)
    if positions.size > size:
        # Of those that equal the smallest, the last are too many.
        equal = np.flatnonzero(values[positions] == smallest)
        positions = np.delete(positions, equal[size - positions.size :])
    return positions


def _nucleus(weights: npt.NDArray[np.float64], top_p: float) -> npt.NDArray[np.int64]:
    """Positions of the fewest weights that hold at least top_p of them all."""
    total = float(weights.sum())
    # Sorting 150,000 weights costs milliseconds per token. All weights below this floor hold less than 1 - top_p
    # together, so the nucleus lies above it; usually a few hundred are left to sort.
    likely = np.flatnonzero(weights >= (1.0 - top_p) * total / weights.size)
    among = weights[likely]
    descending = np.sort(among)[::-1]
    size = min(int(np.cumsum(descending).searchsorted(top_p * total)) + 1, likely.size)
    return likely[_from_smallest(among, size, descending[size - 1])]


def _check(p: SamplingParams, vocab: int) -> None:
    finite = (
        ("temperature", p.temperature, p.temperature >= 0, say("0 or more")),
        ("top_k", p.top_k, p.top_k >= 0, say("0 (off) or more")),
        ("top_p", p.top_p, 0 <= p.top_p <= 1, say("from 0 to 1")),
        ("min_p", p.min_p, 0 <= p.min_p <= 1, say("from 0 to 1")),
        ("repetition_penalty", p.repetition_penalty, p.repetition_penalty > 0, say("more than 0")),
        ("presence_penalty", p.presence_penalty, True, say("a number")),
        ("frequency_penalty", p.frequency_penalty, True, say("a number")),
        ("max_tokens", p.max_tokens or 1, p.max_tokens is None or p.max_tokens >= 1, say("1 or more")),
        ("seed", p.seed or 0, p.seed is None or p.seed >= 0, say("0 or more")),
    )
    for name, value, allowed, rule in finite:
        if not (allowed and (isinstance(value, int) or math.isfinite(value))):
            shown = getattr(p, name)
            raise GreenroomError(
                say("The setting {name} = {shown} cannot be used", name=name, shown=shown),
                say("it must be {rule}", rule=rule),
                say("Change it."),
            )
    for token, bias in p.logit_bias.items():
        if not 0 <= token < vocab:
            raise GreenroomError(
                say("The logit bias for token {token} cannot be used", token=token),
                say("this model's tokens are 0 to {vocab}", vocab=vocab - 1),
                say("Remove it."),
            )
        if math.isnan(bias) or bias == math.inf:
            raise GreenroomError(
                say("The logit bias {bias} for token {token} cannot be used", bias=bias, token=token),
                say("it must be a number, or minus infinity to forbid the token"),
                say("Change it."),
            )
