"""Files that are there whole, or as they were before."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_whole(path: Path, data: bytes, *, private: bool = True, on_disk: bool = False) -> None:
    """Bytes into a file of an existing folder: killed in the midst of it, or beside another writer, none is half.

    private: only this user may read it; otherwise the umask decides, as for a file that the user exports
    on_disk: it is on the disk, not only on its way there, when this returns

    Raises OSError, and leaves nothing behind then.
    """
    # A new file under a name that nobody can know: no other writer has it, and nothing that lies there is written to.
    unfinished = path.with_name(f".greenroom-{secrets.token_hex(8)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(unfinished, flags, 0o600 if private else 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if on_disk:
                file.flush()
                os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
