"""The list of downloads when several programs make it at once."""

from __future__ import annotations

from pathlib import Path

from together import together

OPEN = """
from pathlib import Path
from engine.hub.download_store import DownloadStore
from engine.hub.repository import RemoteFile, RemoteModel

def work(place):
    store = DownloadStore(Path(place) / "downloads.db")
    model = RemoteModel("a/b", "0" * 40, "Q4_0", "b", "gguf", (RemoteFile("b.gguf", 1, None, None),))
    store.add("https://huggingface.co", model, Path(place) / "a" / "b")
    found = len(store.all())
    store.close()
    return found
"""


def test_first_starts_at_the_same_moment_make_one_list(tmp_path: Path) -> None:
    with together(3, OPEN) as processes:
        for number in range(40):
            assert processes.run(tmp_path / str(number)) == ["1"] * 3
