"""The chat's figures and states as the user reads them."""

from __future__ import annotations

from app.chat.storage.records import EDITED
from app.host import HostState
from app.language import mark, told, tr
from app.words import brief, rate, rate_range
from engine.placement.plan import Range
from engine.runtime.events import GenerationStats

#: Why an answer ended, by the keys of `engine.runtime.events.STOP_REASONS`.
ENDINGS = {
    "end": mark("stopped: end of text"),
    "stop_string": mark("stopped: stop string"),
    "length": mark("stopped: token limit"),
    "context": mark("stopped: context full"),
    "cancelled": mark("stopped by you"),
    "error": mark("stopped: error"),
    EDITED: mark("edited by you"),
}


def stats_line(stats: GenerationStats | None, stop_reason: str | None, predicted: Range | None = None) -> str:
    """ "12.4 tok/s (predicted 11 to 14) · 245 tokens · first token 0.8 s · stopped: end of text", if known."""
    return stats_lines(stats, stop_reason, predicted)[0]


def stats_lines(
    stats: GenerationStats | None, stop_reason: str | None, predicted: Range | None = None
) -> tuple[str, ...]:
    """The line, and shorter ones for less room: without the first token, the count, the prediction, the speed.

    Why the answer ended is in all of them, but for the shortest where it ended by itself: that has the speed alone.
    """
    # Without a reason the program ended before the answer did.
    ending = tr(ENDINGS.get(stop_reason or "", mark("stopped: Greenroom was closed")))
    if stats is None or not stats.completion_tokens:
        return (ending,)
    speed, foreseen = [], []
    if stats.decode_tps > 0:
        figure = rate(stats.decode_tps)
        speed = [tr("{speed} tok/s", speed=figure)]
        if predicted is not None:
            foreseen = [tr("{speed} tok/s (predicted {range})", speed=figure, range=rate_range(predicted))]
    count = [tr("%n tokens", n=stats.completion_tokens)]
    first = [tr("first token {time}", time=seconds(stats.first_token_s))]
    widest = foreseen or speed
    lines = [widest + count + first, widest + count, foreseen, speed or count]
    shortest = speed[0] if speed and stop_reason == "end" else ending
    return (*(" · ".join([*parts, ending]) for parts in lines if parts), shortest)


def answered_by(model: str, stop_reason: str | None) -> str:
    """Whose words an answer is, under the name of the model."""
    if stop_reason == EDITED:
        return tr("Answered by {model}, edited by you", model=model)
    return tr("Answered by {model}", model=model)


def stats_detail(stats: GenerationStats | None) -> str:
    """How the question was read: "Read 34 tokens at 410 tok/s; 12 more were still in memory"; "" when unknown."""
    if stats is None or not stats.prompt_tokens:
        return ""
    computed = stats.prompt_tokens - stats.reused_tokens
    text = tr("Read %n tokens", n=computed)
    if stats.prefill_tps > 0:
        text = tr("Read %n tokens at {speed} tok/s", n=computed, speed=rate(stats.prefill_tps))
    if stats.reused_tokens:
        text += tr("; %n more were cached", n=stats.reused_tokens)
    return text


def seconds(value: float) -> str:
    """ "0.04 s", "2.4 s", "75 s"."""
    if value < 0.095:
        return f"{value:.2f} s"
    return f"{value:.1f} s" if value < 60 else f"{value:.0f} s"


def tokens(count: int) -> str:
    """ "312", "3.1k", "8k": context sizes are multiples of 1024 and read as such."""
    if count >= 1024 and count % 1024 == 0:
        return f"{count // 1024}k"
    return f"{count}" if count < 1000 else f"{count / 1000:.1f}k"


def why_not_ready(state: HostState) -> str:
    """Why no message can be sent now; "" when one can."""
    if state.busy:
        share = f" {state.progress.fraction * 100:.0f} %" if state.progress and state.progress.total > 0 else ""
        return tr("Loading {name}…{share}", name=brief(state.model_name), share=share)
    if state.kind == "failed":
        return told(state.error.what) if state.error else tr("The model could not be loaded")
    if state.kind == "empty":
        return tr("Load a model to start chatting")
    return ""
