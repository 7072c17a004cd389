"""Sizes of text: 1.0 is the usual one."""

from __future__ import annotations

ZOOMS = (0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0)


def next_zoom(now: float, step: int) -> float:
    """The next larger size (1), the next smaller (-1), or the usual one (0); at either end it stays."""
    if step == 0:
        return 1.0
    further = [zoom for zoom in ZOOMS if (zoom - now) * step > 0.001]
    return (min if step > 0 else max)(further, default=now)
