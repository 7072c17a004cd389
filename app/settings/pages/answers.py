"""Answers: what holds for every chat that has no settings of its own."""

from __future__ import annotations

from app.language import mark
from app.settings.options import Group, Page, choice, fraction, long_text
from app.settings.store import PENALTY_RANGE, TEMPERATURE_RANGE, TOP_P_RANGE

BY_PROGRAM = mark("Chosen by Greenroom")


def lengths(counts: tuple[int, ...]) -> tuple[tuple[str, object], ...]:
    """Entries for numbers of tokens, with narrow spaces between thousands."""
    return tuple((f"{count:,}".replace(",", "\u202f"), count) for count in counts)


PAGE = Page(
    "answers",
    mark("Answers"),
    "chat",
    (
        Group(
            (
                long_text(
                    "system_prompt",
                    mark("System prompt"),
                    mark("Sent to the model at the start of every chat. Leave empty for none."),
                    mark("For example: Answer briefly, in Korean."),
                ),
                fraction(
                    "temperature",
                    mark("Temperature"),
                    mark("0 always picks the most likely word. Higher = more varied."),
                    TEMPERATURE_RANGE,
                    0.7,
                    BY_PROGRAM,
                    words="sampling random",
                ),
                fraction(
                    "top_p",
                    mark("Top-p"),
                    mark("Sample from the most likely words that add up to this probability."),
                    TOP_P_RANGE,
                    0.95,
                    BY_PROGRAM,
                    words="sampling nucleus",
                ),
                fraction(
                    "repetition_penalty",
                    mark("Repetition penalty"),
                    mark("1 is off. A slightly higher value keeps small models from repeating themselves."),
                    PENALTY_RANGE,
                    1.1,
                    BY_PROGRAM,
                    words="sampling loop",
                ),
                choice(
                    "max_tokens",
                    mark("Maximum answer length"),
                    mark("In tokens. Longer answers are cut off."),
                    ((mark("Until the model stops"), None), *lengths((256, 512, 1024, 2048, 4096, 8192))),
                    words="limit max tokens",
                ),
            )
        ),
    ),
    mark("Settings made in a chat override these."),
)
