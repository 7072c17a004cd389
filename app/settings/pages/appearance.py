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
                    mark("Light, dark, or the same as the system."),
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
                    mark("Applies to all text. Press Ctrl and + or - to change it anywhere."),
                    tuple((f"{round(size * 100)}%", size) for size in ZOOMS),
                    words="zoom font scale",
                    unknown="{value}×",
                ),
                choice(
                    "density",
                    mark("Density"),
                    mark("Space around buttons and fields."),
                    ((mark("Comfortable"), "comfortable"), (mark("Compact"), "compact")),
                ),
                toggle(
                    "reduced_motion",
                    mark("Motion"),
                    mark("The stage shows the whole run instead of glowing with each token."),
                    mark("Reduce motion"),
                    words="animation reduced blink",
                ),
            )
        ),
    ),
)
