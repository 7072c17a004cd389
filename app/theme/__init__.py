"""Colours, type and icons. Widgets ask `theme()`; they never name a colour themselves."""

from app.theme.theme import Theme, theme
from app.theme.tokens import DARK, LIGHT, Tokens

__all__ = ["DARK", "LIGHT", "Theme", "Tokens", "theme"]
