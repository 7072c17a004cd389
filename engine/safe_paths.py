"""Text from outside as paths below a folder of ours, and nowhere else."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from pathlib import Path

from engine.errors import GreenroomError
from engine.words import say

#: What common file systems take, per name and in all, with room for an ending like ".part".
_MAX_NAME_BYTES, _MAX_PATH_BYTES, _MAX_DEPTH = 240, 900, 12
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f<>:"\\|?*]')
#: Devices of Windows, with any ending; it also takes superscript digits.
_DEVICE = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|clock\$|com[0-9¹²³]|lpt[0-9¹²³]) *(\..*)?", re.IGNORECASE | re.DOTALL
)
#: MODEL~1.GGU, by which Windows also finds a file with a longer name.
_SHORTENED = re.compile(r"(?=[^.]{1,8}(\.|$))[^.~]+~[0-9]+(\.[^.]{0,3})?")
_MOUNT_POINT = 0xA0000003


def is_safe(path: str) -> bool:
    """Whether a repository's file name may become a file: relative, plain, valid on Linux, macOS and Windows alike."""
    parts = path.split("/")
    return (
        0 < len(path.encode("utf-8", "surrogatepass")) <= _MAX_PATH_BYTES
        and len(parts) <= _MAX_DEPTH
        and all(is_safe_name(part) for part in parts)
    )


def is_safe_name(name: str) -> bool:
    """The same of one name: it cannot leave its folder."""
    return (
        name not in ("", ".", "..")
        and len(name.encode("utf-8", "surrogatepass")) <= _MAX_NAME_BYTES
        and name.isprintable()
        and not _FORBIDDEN.search(name)
        and not is_device(name)
        and not _SHORTENED.fullmatch(name)
        and not name.endswith((".", " "))
        and not name.startswith((" ", "~"))
        and "/" not in name
    )


def is_device(name: str) -> bool:
    """Whether Windows takes this name for a device, in any folder."""
    return bool(_DEVICE.fullmatch(name))


def below(root: Path, relative: str) -> Path:
    """root / relative, without a look at the disk. Raises GreenroomError where that is not a safe name."""
    if not is_safe(relative):
        raise GreenroomError(
            say("{value} is not downloaded", value=ascii(relative)[:80]),
            say("its name is not a plain file name"),
            say("Choose another file."),
        )
    return root.joinpath(*relative.split("/"))


def inside(root: Path, relative: str) -> Path:
    """root / relative, to be written or removed. Raises GreenroomError also where a link leads out of root."""
    target = below(root, relative)
    # The part that exists decides: a link in it would lead elsewhere.
    if not target.parent.resolve().is_relative_to(root.resolve()) or is_link(target):
        raise GreenroomError(
            say("{relative} is not downloaded", relative=relative),
            say("a link at that place leads out of {root}", root=root),
            say("Remove the link."),
        )
    return target


def is_link(path: Path) -> bool:
    """A symbolic link, or a junction of Windows."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) == _MOUNT_POINT


class Places:
    """Files that are to lie in one folder, on any file system: none may take the place of another.

    Windows and macOS ignore case, macOS also how letters with accents are composed. While a file comes, its name with
    ".part" is taken too.
    """

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def take(self, path: str) -> bool:
        """False when the file would meet one that was taken before."""
        files = {_folded(path), _folded(path + ".part")}
        parts = _folded(path).split("/")
        folders = {"/".join(parts[:count]) for count in range(1, len(parts))}
        if files & (self._files | self._folders) or folders & self._files:
            return False
        self._files |= files
        self._folders |= folders
        return True


def _folded(path: str) -> str:
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).upper().casefold())


def offered_name(title: str, otherwise: str) -> str:
    """Any text as the name of a file that a user is offered, without an ending. otherwise: where nothing is left."""
    # Signs that turn the direction of writing would have a name look as if it ended otherwise.
    clean = re.sub(r'[\x00-\x1f\x7f<>:"/\\|?*…\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]+', " ", title)
    short = " ".join(clean.split()).strip(". ")[:80].encode()[:200].decode("utf-8", "ignore")
    name = short.strip(". ") or otherwise
    return f"_{name}" if is_device(name) else name
