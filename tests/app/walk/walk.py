"""The walk of a new user through the real program, by mouse and keyboard, with pictures of what was seen.

    python tests/app/walk/walk.py FOLDER [--turns 30] [--data DATA] [SCENE ...]

FOLDER takes the pictures, the program's stderr and `walk.txt`. Needs Xvfb, openbox, xdotool and ImageMagick, and the
demo model on this PC (`greenroom demo` fetches it). Ends with an error when something was not where a user expects it,
when a text could not be read as a whole, when Qt or Python warned, or when memory grew.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import beginnings
import chatting
import files
import views
from screen import NotSeen, Screen
from user import User

#: What other programs write to stderr: there is no session around the screen.
FOREIGN = re.compile(r"Openbox-Message|^\s*$|dbus|libEGL|MESA|Gtk-|propagateSizeHints")
#: What may be shortened: names of files and models, which have no end.
MAY_BE_CUT = re.compile(r"shortened: '(Greenroom demo \(|SmolLM2|/|~)")

Step = Callable[[User], None]


@dataclass(frozen=True)
class Scene:
    """On a screen of its own. settings: of another user, who has no chats, to begin with."""

    steps: tuple[Step, ...]
    width: int = 1280
    height: int = 820
    scale: float = 1.0
    settings: dict[str, Any] | None = None


def _fresh(step: Step, **settings: Any) -> Scene:
    return Scene((step,), settings={"welcomed": True, **settings})


SCENES = {
    "first": Scene((beginnings.first_minute,)),
    "chat": Scene(
        (
            chatting.stop_with_escape,
            chatting.presets,
            chatting.thirty_turns,
            chatting.branches,
            chatting.search_find,
            chatting.sort_chats,
            files.files,
            files.drag_and_paste,
            files.every_text,
        )
    ),
    "panels": Scene((views.stage, views.replay, views.card, views.tab_order, beginnings.second_start)),
    "dialogs": Scene((views.dialogs,)),
    "pages": Scene((views.pages, views.korean)),
    "killed": Scene((beginnings.killed,)),
    "no-model": _fresh(beginnings.no_model, start="nothing"),
    "gone": _fresh(beginnings.model_gone, start="last", last_model="/nowhere/Qwen3-30B-A3B-Q4_K_M.gguf"),
    "offline": _fresh(beginnings.offline, start="demo", offline=True),
    "full": _fresh(chatting.full_context, start="demo", context=256),
    "switch": _fresh(chatting.switch_model, start="demo", max_tokens=400),
    "readme": Scene((views.pictures_for_the_readme,), 1440, 900),
    "small": Scene((views.tour,), 1024, 700),
    "zoomed": Scene((views.zoomed,), 1024, 700),
    "large": Scene((views.tour,), 2560, 1440),
    "sharp": Scene((views.tour,), 2560, 1640, 2.0),
    "sharp-small": Scene((views.tour,), 1400, 760, 2.0),
}
STEPS = {step.__name__: step for scene in SCENES.values() for step in scene.steps}


class Walk:
    """home: the user's; data: the program's data folder."""

    def __init__(self, home: Path, data: Path, pictures: Path, turns: int) -> None:
        self.home, self.data, self.pictures, self.turns = home, data, pictures, turns
        self.figures: list[str] = []
        self.unreadable: list[str] = []

    def note(self, text: str) -> None:
        self.figures.append(text)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def go(self, name: str, scene: Scene) -> None:
        begun, data = time.monotonic(), self.data
        if scene.settings is not None:
            data = prepared(data.parent / f"{data.name}-{name}", (data / "models" / "demo").resolve())
            (data / "settings.json").write_text(json.dumps(scene.settings))
        screen = Screen(self.home, data, self.pictures, scene.width, scene.height, scene.scale)
        user = User(screen, data, self.pictures / "papers", self.note, self.turns)
        try:
            screen.start()
            screen.resize(scene.width, scene.height)
            for step in scene.steps:
                since = time.monotonic()
                step(user)
                self.note(f"  {step.__name__}: {time.monotonic() - since:.0f} s")
            if screen.quit() != 0:
                raise NotSeen("the program did not end in peace")
        finally:
            screen.close()
            self.unreadable += [fault for fault in screen.unreadable if not MAY_BE_CUT.search(fault)]
            if data != self.data:
                shutil.rmtree(data)
        self.note(f"{name} {scene.width}x{scene.height} at {scene.scale:g}: {time.monotonic() - begun:.0f} s")


def prepared(data: Path, demo: Path) -> Path:
    """A data folder in which the demo model is."""
    (data / "models").mkdir(parents=True, exist_ok=True)
    if not (data / "models" / "demo").exists():
        (data / "models" / "demo").symlink_to(demo)
    return data


def complaints(log: Path) -> list[str]:
    text = log.read_text(errors="replace") if log.exists() else ""
    return [f"stderr: {line}" for line in text.splitlines() if not FOREIGN.search(line)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("scenes", nargs="*", help="of " + ", ".join(SCENES) + ", or one step")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--data", type=Path, help="go on in this data folder")
    parser.add_argument("--demo", type=Path, default=Path.home() / ".local/share/greenroom/models/demo")
    options = parser.parse_intermixed_args()
    unknown = [name for name in options.scenes if name not in SCENES and name not in STEPS]
    if unknown:
        parser.error(f"no scene or step is called {', '.join(unknown)}")
    # A home as users have one: the window names folders in it.
    home = Path(tempfile.mkdtemp(prefix="home-"))
    data = prepared(options.data or home / ".local/share/greenroom", options.demo)
    options.folder.mkdir(parents=True, exist_ok=True)
    walk = Walk(home, data, options.folder.resolve(), options.turns)
    failed = []
    for name in options.scenes or [name for name in SCENES if name != "readme"]:
        scene = SCENES[name] if name in SCENES else Scene((STEPS[name],))
        try:
            walk.go(name, scene)
        except Exception as error:  # the others are walked all the same
            failed.append(f"FAILED {name}: {type(error).__name__}: {error}")
            walk.note(failed[-1])
    said = [*complaints(walk.pictures / "stderr.txt"), *dict.fromkeys(f"unreadable: {f}" for f in walk.unreadable)]
    for line in said:
        walk.note(line)
    walk.note(f"{len(list(walk.pictures.glob('*.png')))} pictures")
    (options.folder / "walk.txt").write_text("\n".join(walk.figures) + "\n", encoding="utf-8")
    shutil.rmtree(home)
    return 1 if failed or said else 0


if __name__ == "__main__":
    sys.exit(main())
