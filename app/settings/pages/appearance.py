"""Appearance: theme, size of text, density, motion."""

from __future__ import annotations

from app.language import mark
from app.settings.options import Group, Page, choice, toggle
from app.theme.zoom import ZOOMS

PAGE = Page(
    "appearance",
    mark("Appearance"),
    "sliders",
    (
        Group(
            (
                choice(
                    "theme",
                    mark("Theme"),
                    mark("Light, dark, or as the system has it."),
                    (
                        (mark("Follow the system"), "system"),
                        (mark("Light"), "light"),
                        (mark("Dark"), "dark"),
                    ),
                    words="colours colors night",
                ),
                choice(
                    "zoom",
                    mark("Text size"),
                    mark("Of all text. Ctrl and + or - change it anywhere."),
                    tuple((f"{round(size * 100)}%", size) for size in ZOOMS),
                    words="zoom font scale",
                    unknown="{value}×",
                ),
                choice(
                    "density",
                    mark("Density"),
                    mark("How much room there is around buttons and fields."),
                    ((mark("Comfortable"), "comfortable"), (mark("Compact"), "compact")),
                ),
                toggle(
                    "reduced_motion",
                    mark("Motion"),
                    mark("The stage then shows the whole run instead of glowing with every token."),
                    mark("As little as possible"),
                    words="animation reduced blink",
                ),
            )
        ),
    ),
)
