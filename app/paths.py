"""Whether a path still leads anywhere. Knows no Qt."""

from __future__ import annotations

from pathlib import Path


def is_gone(path: str | Path) -> bool:
    """There is certainly nothing. A folder above that may not be searched hides what there is: opening it says why."""
    try:
        return not Path(path).exists()
    except OSError:
        return False
    except ValueError:  # a name that no file can have
        return True
