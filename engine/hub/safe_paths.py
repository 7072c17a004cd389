"""Names from a repository as paths below a folder of ours, and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

from engine.errors import GreenroomError
from engine.words import say

#: What common file systems take, per name and in all.
_MAX_NAME_BYTES, _MAX_PATH_BYTES, _MAX_DEPTH = 240, 900, 12
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f<>:"\\|?*]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?$", re.IGNORECASE)


def is_safe(path: str) -> bool:
    """Whether a repository's file name may become a file: relative, plain, valid on Linux, macOS and Windows alike."""
    parts = path.split("/")
    return (
        0 < len(path.encode("utf-8", "surrogatepass")) <= _MAX_PATH_BYTES
        and len(parts) <= _MAX_DEPTH
        and path.isprintable()
        and all(_is_safe_name(part) for part in parts)
    )


def _is_safe_name(name: str) -> bool:
    return (
        name not in ("", ".", "..")
        and len(name.encode("utf-8", "surrogatepass")) <= _MAX_NAME_BYTES
        and not _FORBIDDEN.search(name)
        and not _RESERVED.match(name)
        and not name.endswith((".", " "))
        and not name.startswith((" ", "~"))
    )


def inside(root: Path, relative: str) -> Path:
    """root / relative. Raises GreenroomError where that is not a safe name or a link leads out of root."""
    if not is_safe(relative):
        raise GreenroomError(
            say("{value} is not downloaded", value=ascii(relative)[:80]),
            say("its name is not a plain file name"),
            say("Choose another file."),
        )
    target = root.joinpath(*relative.split("/"))
    real_root = root.resolve()
    # The part that exists decides: a link in it would lead elsewhere.
    if not target.parent.resolve().is_relative_to(real_root) or target.is_symlink():
        raise GreenroomError(
            say("{relative} is not downloaded", relative=relative),
            say("a link at that place leads out of {root}", root=root),
            say("Remove the link."),
        )
    return target
