"""Files that are there whole, or as they were before."""

from __future__ import annotations

import threading
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Bytes into a file of an existing folder: killed in the midst of it, or beside another writer, none is half.

    Raises OSError, and leaves nothing behind then.
    """
    # Other threads and programs that write the same file each have a name of their own.
    unfinished = path.with_name(f"{path.name}.{threading.get_native_id():x}.part")
    try:
        unfinished.write_bytes(data)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
