"""The user's own presets: one small JSON file, which is also what is exported and imported."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.chat.storage.presets import BUILT_IN, Preset, preset_name
from app.folders import keep_aside, make_writable
from app.language import tr
from engine.errors import GreenroomError
from engine.folders import config_folder
from engine.regular_files import read_bounded
from engine.whole_file import write_whole

log = logging.getLogger(__name__)

FORMAT, VERSION = "greenroom-presets", 1
MOST_PRESETS = 200
MOST_BYTES = 20_000_000


class PresetStore:
    """Presets by name: the built-in ones first, then the user's in the order they were made."""

    def __init__(self, folder: Path | None = None) -> None:
        self._path = (folder or config_folder()) / "presets.json"
        self._own: dict[str, Preset] = {}
        if os.path.exists(self._path):
            try:
                self._own = {preset.name: preset for preset in read(self._path)}
            except GreenroomError as error:
                log.warning("the presets are kept aside: %s", error)
                keep_aside(self._path)

    @property
    def presets(self) -> Mapping[str, Preset]:
        return {preset.name: preset for preset in BUILT_IN} | self._own

    @property
    def own(self) -> Sequence[Preset]:
        return tuple(self._own.values())

    def save(self, preset: Preset) -> None:
        """Keep a preset under its name, in place of one that has it. Raises GreenroomError when it cannot be kept."""
        name = preset_name(preset.name)
        if not name:
            raise GreenroomError(tr("The preset was not saved"), tr("it has no name"), tr("Give it a name."))
        if name in {built_in.name for built_in in BUILT_IN}:
            raise GreenroomError(
                tr("The preset “{name}” was not saved", name=name),
                tr("it is the name of a built-in preset"),
                tr("Choose another name."),
            )
        if name not in self._own:
            self._make_sure_of_room()
        self._write(self._own | {name: Preset(name, preset.sampling, preset.system, preset.thinking)})

    def delete(self, name: str) -> None:
        self._write({key: preset for key, preset in self._own.items() if key != name})

    def restore(self, preset: Preset, place: int) -> None:
        """Undo `delete`. place: where it was in `own`. Raises GreenroomError when it cannot be had back."""
        if preset.name in self._own:
            raise GreenroomError(
                tr("The preset “{name}” was not restored", name=preset.name),
                tr("another preset now has this name"),
                tr("Use that one, or save a new preset."),
            )
        self._make_sure_of_room()
        own = list(self._own.items())
        own.insert(place, (preset.name, preset))
        self._write(dict(own))

    def take(self, path: Path) -> list[Preset]:
        """Import a file; presets of the same name are replaced. Returns what it had. Raises GreenroomError."""
        reserved = {preset.name for preset in BUILT_IN}
        found = [preset for preset in read(path) if preset.name not in reserved]
        merged = self._own | {preset.name: preset for preset in found}
        if len(merged) > MOST_PRESETS:
            raise GreenroomError(
                tr("{name} was not imported", name=path.name),
                tr("you can have at most {most} presets", most=MOST_PRESETS),
                tr("Delete some first."),
            )
        self._write(merged)
        return found

    def _make_sure_of_room(self) -> None:
        if len(self._own) == MOST_PRESETS:
            raise GreenroomError(
                tr("The preset was not saved"),
                tr("you already have the maximum of {most}", most=MOST_PRESETS),
                tr("Delete some first."),
            )

    def _write(self, own: dict[str, Preset]) -> None:
        make_writable(self._path.parent)
        write(list(own.values()), self._path, private=True)
        self._own = own


def write(presets: Sequence[Preset], path: Path, private: bool = False) -> None:
    """private: as in `write_whole`. Raises GreenroomError when the file cannot be written."""
    whole = {"format": FORMAT, "version": VERSION, "presets": [preset.to_plain() for preset in presets]}
    try:
        # Half a character, as another program's file may have it, has no UTF-8.
        text = json.dumps(whole, ensure_ascii=False, indent=2) + "\n"
        write_whole(path, text.encode("utf-8", "replace"), private=private)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise GreenroomError(
            tr("{name} was not saved", name=path.name), why, tr("Choose another folder or free some disk space.")
        ) from error


def read(path: Path) -> list[Preset]:
    """Raises GreenroomError for what is no file of presets; values that make no sense are left open."""
    try:
        if path.exists() and not path.is_file():
            raise _refused(path, tr("it is not a regular file"))
        data = read_bounded(path, MOST_BYTES)
        if len(data) > MOST_BYTES:
            raise _refused(path, tr("it is larger than {size} MB", size=MOST_BYTES // 1_000_000))
        raw = json.loads(data.decode("utf-8-sig"))
    except OSError as error:
        raise _refused(path, (error.strerror or str(error)).lower()) from error
    except (ValueError, RecursionError) as error:
        raise _refused(path, tr("it is not valid JSON, or it is truncated")) from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT or not isinstance(raw.get("presets"), list):
        raise _refused(path, tr("it is not a Greenroom preset file"))
    if raw.get("version") != VERSION:
        raise _refused(path, tr("it was saved by a newer version of Greenroom"))
    if len(raw["presets"]) > MOST_PRESETS:
        raise _refused(path, tr("it has more than {most} presets", most=MOST_PRESETS))
    found = [Preset.from_plain(entry) for entry in raw["presets"] if isinstance(entry, dict)]
    return [preset for preset in found if preset.name]


def _refused(path: Path, why: str) -> GreenroomError:
    return GreenroomError(tr("{name} was not imported", name=path.name), why, tr("Choose another file."))
