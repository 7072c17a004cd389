"""The design tokens: every colour the program uses, once for each theme."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tokens:
    """Colours as "#RRGGBB".

    bg, panel, side, code, hover: surfaces      line: hairlines and borders
    text, muted, faint:           ink, each at least 4.5:1 on every surface it is used on
    accent, accent_ink, soft:     the one accent colour, ink on it, and its pale surface
    vram, ram:                    the two places an expert can live
    *_soft:                       pale surface under the ink of the same name
    """

    name: str
    bg: str
    panel: str
    side: str
    line: str
    hover: str
    code: str
    text: str
    muted: str
    faint: str
    accent: str
    accent_hover: str
    accent_ink: str
    soft: str
    vram: str
    vram_soft: str
    ram: str
    warn: str
    warn_soft: str
    bad: str
    bad_soft: str


LIGHT = Tokens(
    name="light",
    bg="#F7F6F2",
    panel="#FFFFFF",
    side="#F1EFE9",
    line="#E2DFD7",
    hover="#EBE8E0",
    code="#F3F2ED",
    text="#1D231F",
    muted="#59615C",
    faint="#646B66",
    accent="#1E7356",
    accent_hover="#185F47",
    accent_ink="#FFFFFF",
    soft="#E2F0E9",
    vram="#4B57C9",
    vram_soft="#E6E7F7",
    ram="#1E8A67",
    warn="#8A560E",
    warn_soft="#F8EBD3",
    bad="#A8372B",
    bad_soft="#F7E2DE",
)

DARK = Tokens(
    name="dark",
    bg="#131715",
    panel="#1A1F1C",
    side="#161B18",
    line="#2A312D",
    hover="#222825",
    code="#151A17",
    text="#E6EAE7",
    muted="#9AA39D",
    faint="#878F8A",
    accent="#4CC197",
    accent_hover="#63D0A9",
    accent_ink="#0E1511",
    soft="#1D3229",
    vram="#8D97FF",
    vram_soft="#2A303C",
    ram="#45C79B",
    warn="#E3B15F",
    warn_soft="#33291A",
    bad="#F08A7D",
    bad_soft="#36201D",
)

#: (ink, surfaces it is written on); the theme's test holds each pair to 4.5:1.
TEXT_PAIRS: dict[str, tuple[str, ...]] = {
    "text": ("bg", "panel", "side", "code", "hover", "soft", "warn_soft", "bad_soft"),
    "muted": ("bg", "panel", "side", "code", "hover", "soft"),
    "faint": ("bg", "panel", "side", "code"),
    "accent": ("bg", "panel", "side", "soft"),
    "accent_ink": ("accent", "accent_hover"),
    "vram": ("bg", "panel", "vram_soft"),
    "warn": ("bg", "panel", "warn_soft"),
    "bad": ("bg", "panel", "bad_soft"),
}


def contrast(first: str, second: str) -> float:
    """WCAG 2 contrast ratio of two colours, 1 to 21."""

    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)
