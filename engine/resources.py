"""Files that travel with the program (icons, the demo model's small parts), wherever it is installed."""

from __future__ import annotations

from pathlib import Path

from engine.errors import GreenroomError
from engine.words import say


def asset(name: str) -> Path:
    """The path of `assets/<name>` ("icons/plus.svg", "demo").

    A wheel and a frozen program carry assets inside the engine package; a working copy has them beside it.
    Raises GreenroomError when the installation lacks it.
    """
    # An editable installation spreads the package over several folders; this file lies in the one that counts.
    package = Path(__file__).resolve().parent
    for root in (package / "assets", package.parent / "assets"):
        if (root / name).exists():
            return root / name
    raise GreenroomError(
        say("Greenroom's file {name} is missing", name=name),
        say("the installation is not complete"),
        say("Install it again."),
    )
