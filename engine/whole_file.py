"""Files that are there whole, or as they were before."""

from __future__ import annotations

import secrets
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Bytes into a file of an existing folder: killed in the midst of it, or beside another writer, none is half.

    Raises OSError, and leaves nothing behind then.
    """
    # A new file under a name that nobody can know: no other writer has it, and nothing that lies there is written to.
    unfinished = path.with_name(f".greenroom-{secrets.token_hex(8)}.part")
    try:
        with unfinished.open("xb") as file:
            file.write(data)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
