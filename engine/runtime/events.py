"""What goes into an answer and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Why an answer ended, with the words the user reads.
STOP_REASONS = {
    "end": "end of text",
    "stop_string": "stop string",
    "length": "token limit",
    "context": "context full",
    "cancelled": "stopped by you",
    "error": "error",
}


@dataclass(frozen=True)
class Message:
    """role: "system", "user" or "assistant"."""

    role: str
    content: str


@dataclass(frozen=True)
class Begun:
    """What there is already of an answer that is to be gone on with. thought: None where nothing was thought."""

    text: str = ""
    thought: str | None = None

    def __bool__(self) -> bool:
        return bool(self.text) or self.thought is not None


@dataclass(frozen=True)
class SamplingParams:
    """temperature 0 is greedy: exact argmax. top_k 0, top_p 1, min_p 0 and penalties at their neutral value are off.

    repetition_penalty divides positive and multiplies negative logits of tokens seen (CTRL, Keskar et al. 2019);
    presence and frequency penalties are subtracted (OpenAI's definition, generated tokens only).
    max_tokens None: until the context is full. seed None: a fresh random one.
    lookup: draft what the conversation has said before (see `engine.runtime.lookup`): the same answer, sooner.
    """

    max_tokens: int | None = None
    temperature: float = 0.7
    top_k: int = 0
    top_p: float = 0.95
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    lookup: bool = True


@dataclass(frozen=True)
class GenerationStats:
    """Seconds and tokens per second; 0.0 while unknown.

    decode_tps = tokens after the first / (last - first token time).
    prompt_tokens = reused_tokens (found in the KV cache) + what has to be computed, of which prefilled_tokens are done.
    prefill_tps counts the computed ones only.
    drafted_tokens were guessed ahead and computed together with the token before them; accepted_tokens of them were the
    sampler's choice too.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    prefilled_tokens: int = 0
    completion_tokens: int = 0
    first_token_s: float = 0.0
    prefill_s: float = 0.0
    prefill_tps: float = 0.0
    decode_tps: float = 0.0
    drafted_tokens: int = 0
    accepted_tokens: int = 0


@dataclass(frozen=True)
class GenerationEvent:
    """One step of an answer. The last event carries a stop_reason (a key of STOP_REASONS) and may have no text.

    text:    what became readable of the answer with this step; never half a character, never part of a stop string
    thought: the same of what the model says to itself before it; "" for one that does not
    """

    text: str
    token_ids: tuple[int, ...]
    stats: GenerationStats
    stop_reason: str | None = None
    thought: str = ""
