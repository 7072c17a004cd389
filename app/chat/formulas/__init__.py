"""LaTeX as outlines that Qt paints."""
