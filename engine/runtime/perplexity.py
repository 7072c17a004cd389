"""How well a model predicts a text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import GreenroomError
from engine.progress import Progress, ProgressCallback, ignore_progress
from engine.runtime.engine import Engine
from engine.words import say

WINDOW = 512


@dataclass(frozen=True)
class Perplexity:
    """perplexity = exp(mean negative log-likelihood over `tokens` scored tokens).

    standard_error: of the perplexity, from the spread of the tokens' log-likelihoods taken as independent
    window, stride: of the protocol (see `perplexity`)
    """

    perplexity: float
    tokens: int
    standard_error: float
    window: int
    stride: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def perplexity(
    engine: Engine,
    token_ids: Sequence[int],
    window: int = WINDOW,
    stride: int | None = None,
    progress: ProgressCallback = ignore_progress,
) -> Perplexity:
    """Perplexity over sliding windows, the usual protocol for models with a limited context.

    A window of `window` tokens starts at every `stride` tokens (half a window by default), each with an empty KV cache.
    Every token of the text is scored exactly once, by the first window that reaches it: so after the first window,
    each has at least window - stride tokens before it. If the tokenizer puts a begin-of-text token before texts, every
    window starts with one, inside its length and not scored; otherwise the text's first token cannot be scored.
    token_ids come without it.

    Log-probabilities are taken in float64; the result depends on nothing but the arguments and the model's arithmetic.
    Raises GreenroomError for a text of fewer than two tokens, a window that does not fit, or logits that are
    no numbers.
    """
    bos = engine.tokenizer.bos_id if engine.tokenizer.add_bos else None
    start = () if bos is None else (bos,)
    body = window - len(start)
    stride = stride or max(1, window // 2)
    _check(engine, token_ids, window, stride)
    losses: list[float] = []
    scored = 0 if start else 1
    begin = 0
    while scored < len(token_ids):
        progress(Progress(scored, len(token_ids), "Reading the text"))
        end = min(begin + body, len(token_ids))
        tokens = [*start, *token_ids[begin:end]]
        losses.extend(_losses(engine, tokens, first=len(start) + scored - begin))
        scored = end
        begin += stride
    progress(Progress(len(token_ids), len(token_ids), "Read"))
    mean = math.fsum(losses) / len(losses)
    # exp would overflow. It takes logits of hundreds, or a token the model gives no probability at all.
    if mean > 700:
        raise GreenroomError(
            say("The perplexity cannot be measured"),
            say("the model takes this text for impossible"),
            say("Check that the file holds text of the kind the model was trained on."),
        )
    result = math.exp(mean)
    variance = math.fsum((loss - mean) ** 2 for loss in losses) / max(1, len(losses) - 1)
    return Perplexity(result, len(losses), result * math.sqrt(variance / len(losses)), window, stride)


def _losses(engine: Engine, tokens: Sequence[int], first: int) -> Iterator[float]:
    """Negative log-likelihoods of tokens[first:], each given the tokens before it."""
    row = 0
    # The last token's own prediction is not needed.
    for block in engine.iter_logits(tokens[:-1]):
        skip = min(max(first - 1 - row, 0), len(block))
        targets = np.array(tokens[row + skip + 1 : row + len(block) + 1], dtype=np.int64)
        yield from _negative_log_likelihood(block[skip:], targets).tolist()
        row += len(block)


def _negative_log_likelihood(
    logits: npt.NDArray[np.float32], targets: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """float64 [T] for logits [T, vocab] and targets [T]."""
    if not len(targets):
        return np.empty(0)
    x = logits.astype(np.float64)
    largest = x.max(axis=1)
    if not np.isfinite(largest).all():
        raise GreenroomError(
            say("The perplexity cannot be measured"),
            say("the model's output contains values that are not numbers"),
            say("Check the file (download it again if in doubt) or load it with float32 arithmetic."),
        )
    total = largest + np.log(np.exp(x - largest[:, None]).sum(axis=1))
    loss: npt.NDArray[np.float64] = total - x[np.arange(len(targets)), targets]
    return loss


def _check(engine: Engine, token_ids: Sequence[int], window: int, stride: int) -> None:
    if len(token_ids) < 2:
        raise GreenroomError(
            say("The perplexity cannot be measured"), say("the text is empty"), say("Give a longer text.")
        )
    if not 2 <= window <= engine.context:
        raise GreenroomError(
            say("A window of %n tokens cannot be used", n=window, one="A window of %n token cannot be used"),
            say("it must be from 2 to the context of {context}", context=engine.context),
            say("Choose another window, or load the model with a longer context."),
        )
    # The first token a window scores must have one before it.
    if not 1 <= stride < window:
        raise GreenroomError(
            say("A stride of %n tokens cannot be used", n=stride, one="A stride of %n token cannot be used"),
            say("with this window it must be from 1 to {window}", window=window - 1),
            say("Choose another stride."),
        )
