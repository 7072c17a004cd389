"""From logits to the next token."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from engine.errors import GreenroomError
from engine.runtime.events import SamplingParams


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
        self._counts = np.zeros(vocab, dtype=np.int64)
        self._plain_greedy = params.temperature == 0.0 and not (
            params.logit_bias or params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0
        )
        self._bias_ids = np.fromiter(params.logit_bias.keys(), dtype=np.int64, count=len(params.logit_bias))
        self._bias = np.fromiter(params.logit_bias.values(), dtype=np.float64, count=len(params.logit_bias))

    def sample(self, logits: npt.NDArray[np.float32]) -> int:
        """The next token id for logits [vocab]; it counts as part of the answer from now on.

        Raises GreenroomError when the logits hold no distribution (NaN, or infinitely large).
        """
        if logits.shape != (self._vocab,):
            raise ValueError(f"logits have shape {logits.shape}, expected ({self._vocab},)")
        if self._plain_greedy:
            token = int(logits.argmax())
            _check_finite(logits[token])
        else:
            token = self._choose(self._adjusted(logits))
        self._seen[token] = True
        self._counts[token] += 1
        return token

    def _adjusted(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        _check_finite(logits.max())
        p = self._params
        x = logits.astype(np.float64)
        x[self._bias_ids] += self._bias
        if x.max() == -math.inf:
            raise GreenroomError(
                "No token is left to choose",
                "the logit bias forbids every token of this model",
                "Remove some of it.",
            )
        if p.repetition_penalty != 1.0:
            seen = x[self._seen]
            x[self._seen] = np.where(seen > 0, seen / p.repetition_penalty, seen * p.repetition_penalty)
        if p.presence_penalty or p.frequency_penalty:
            x -= p.presence_penalty * (self._counts > 0) + p.frequency_penalty * self._counts
        return x

    def _choose(self, x: npt.NDArray[np.float64]) -> int:
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
            "The model gave no usable answer",
            "its output contains values that are not numbers, so its weights or the arithmetic went wrong",
            "Check the file (download it again if in doubt) or load it with float32 arithmetic.",
        )


def distribution(
    x: npt.NDArray[np.float64], params: SamplingParams
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Steps 4 to 7: (token ids, their probabilities) left of adjusted logits x [vocab]; params.temperature > 0."""
    ids = np.arange(x.size)
    if 0 < params.top_k < x.size:
        ids = np.flatnonzero(x >= np.partition(x, x.size - params.top_k)[x.size - params.top_k])
        ids = ids[np.argsort(-x[ids], kind="stable")[: params.top_k]]
    # The maximum is taken off before the division, so that a tiny temperature underflows to 0 instead of giving NaN.
    with np.errstate(over="ignore"):
        weights = np.exp((x[ids] - x.max()) / params.temperature)
    if params.top_p < 1.0:
        ids, weights = _nucleus(ids, weights, params.top_p)
    if params.min_p > 0.0:
        # The most probable token has weight exp(0) = 1.
        kept = weights >= params.min_p
        ids, weights = ids[kept], weights[kept]
    return ids, weights / weights.sum()


def _nucleus(
    ids: npt.NDArray[np.int64], weights: npt.NDArray[np.float64], top_p: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    total = float(weights.sum())
    # Sorting 150,000 weights costs milliseconds per token. All tokens below this floor hold less than 1 - top_p
    # together, so the nucleus lies above it; usually a few hundred are left to sort.
    likely = weights >= (1.0 - top_p) * total / weights.size
    ids, weights = ids[likely], weights[likely]
    order = np.lexsort((ids, -weights))
    ids, weights = ids[order], weights[order]
    size = int(np.searchsorted(np.cumsum(weights), top_p * total)) + 1
    return ids[:size], weights[:size]


def _check(p: SamplingParams, vocab: int) -> None:
    finite = (
        ("temperature", p.temperature, p.temperature >= 0, "0 or more"),
        ("top_k", p.top_k, p.top_k >= 0, "0 (off) or more"),
        ("top_p", p.top_p, 0 <= p.top_p <= 1, "from 0 to 1"),
        ("min_p", p.min_p, 0 <= p.min_p <= 1, "from 0 to 1"),
        ("repetition_penalty", p.repetition_penalty, p.repetition_penalty > 0, "more than 0"),
        ("presence_penalty", p.presence_penalty, True, "a number"),
        ("frequency_penalty", p.frequency_penalty, True, "a number"),
        ("max_tokens", p.max_tokens or 1, p.max_tokens is None or p.max_tokens >= 1, "1 or more"),
        ("seed", p.seed or 0, p.seed is None or p.seed >= 0, "0 or more"),
    )
    for name, value, allowed, rule in finite:
        if not (allowed and (isinstance(value, int) or math.isfinite(value))):
            shown = getattr(p, name)
            raise GreenroomError(f"The setting {name} = {shown} cannot be used", f"it must be {rule}", "Change it.")
    for token, bias in p.logit_bias.items():
        if not 0 <= token < vocab:
            raise GreenroomError(
                f"The logit bias for token {token} cannot be used",
                f"this model's tokens are 0 to {vocab - 1}",
                "Remove it.",
            )
        if math.isnan(bias) or bias == math.inf:
            raise GreenroomError(
                f"The logit bias {bias} for token {token} cannot be used",
                "it must be a number, or minus infinity to forbid the token",
                "Change it.",
            )
