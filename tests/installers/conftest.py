"""The installers are plain scripts beside each other, not a package."""

from __future__ import annotations

import sys
from pathlib import Path

INSTALLERS = Path(__file__).resolve().parents[2] / "installers"
sys.path[:0] = [str(INSTALLERS), str(INSTALLERS / "lock")]
