"""The chat's figures and states as the user reads them."""

from __future__ import annotations

from app.host import HostState
from app.words import rate
from engine.runtime.events import STOP_REASONS, GenerationStats


def stats_line(stats: GenerationStats | None, stop_reason: str | None) -> str:
    """ "12.4 tok/s · 245 tokens · first token 0.8 s · stopped: end of text"; figures that are unknown are left out."""
    parts = []
    if stats is not None and stats.completion_tokens:
        if stats.decode_tps > 0:
            parts.append(f"{rate(stats.decode_tps)} tok/s")
        parts.append(f"{stats.completion_tokens} token" + "s" * (stats.completion_tokens != 1))
        parts.append(f"first token {seconds(stats.first_token_s)}")
    # Without a reason the program ended before the answer did.
    reason = STOP_REASONS.get(stop_reason or "", "Greenroom was closed")
    parts.append(reason if reason.startswith("stopped") else f"stopped: {reason}")
    return " · ".join(parts)


def stats_detail(stats: GenerationStats | None) -> str:
    """How the question was read: "Read 34 tokens at 410 tok/s, 12 more were still in memory"; "" when unknown."""
    if stats is None or not stats.prompt_tokens:
        return ""
    computed = stats.prompt_tokens - stats.reused_tokens
    text = f"Read {computed} token" + "s" * (computed != 1)
    if stats.prefill_tps > 0:
        text += f" at {rate(stats.prefill_tps)} tok/s"
    return text + (f"; {stats.reused_tokens} more were still in memory" if stats.reused_tokens else "")


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
        return f"Loading {state.model_name}…{share}"
    if state.kind == "failed":
        return state.error.what if state.error else "The model could not be loaded"
    if state.kind == "empty":
        return "Load a model to start chatting"
    return ""
