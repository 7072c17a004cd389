"""The walk as a test: it takes minutes, so it is run by name."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = ("Xvfb", "openbox", "xdotool", "import")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"needs {', '.join(TOOLS)}"),
]


def test_a_new_user_finds_the_way(demo_model: Path, tmp_path: Path) -> None:
    walk = Path(__file__).with_name("walk.py")
    command = [sys.executable, str(walk), str(tmp_path / "seen"), "--demo", str(demo_model.parent)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
