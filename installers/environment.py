"""Makes .venv, installs everything, builds the kernels, prepares the demo model, then runs the window or the tests.

Everything lands in .venv beside pyproject.toml. Every step can be interrupted and is taken up again by the next call;
a finished set-up is recognised by a fingerprint of its inputs, so the second start goes straight to the window.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import launcher
import system_packages
import torch_build
from steps import SetupError, alone, run_logged, say, step

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
GREENROOM = BIN / ("greenroom.exe" if os.name == "nt" else "greenroom")
STAMP = VENV / "greenroom-setup.json"
LOG = VENV / "greenroom-setup.log"
#: Exact versions with the SHA-256 of their files; made by update_lock.py in the same folder.
LOCK = ROOT / "installers" / "lock"
#: A finished .venv with the CPU build of torch and the test tools takes 1.6 GB; pip needs its wheels beside it.
DISK_BYTES_CPU = 3 * 10**9
DISK_BYTES_CUDA = 12 * 10**9


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bootstrap.py", description="Set Greenroom up and start it.")
    parser.add_argument("action", choices=("run", "test", "setup"))
    parsed, rest = parser.parse_known_args(arguments)
    action = parsed.action
    if rest and action != "test":
        parser.error("unknown argument: " + rest[0])
    try:
        if action == "test":
            set_up(test_tools=True)
            return run_tests(rest)
        if action == "setup":
            set_up(test_tools=False)
            say("Greenroom is set up. Start it with " + str(GREENROOM))
            return 0
        set_up(test_tools=False)
        return open_window()
    except SetupError as failure:
        say(str(failure), error=True)
        return 2
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        say(f"Greenroom cannot be set up: {error.strerror}{where}. Check the disk and the folder's rights.", error=True)
        return 2
    except KeyboardInterrupt:
        say("Stopped. The next call goes on where this one ended.", error=True)
        return 130


def set_up(test_tools: bool) -> None:
    """Make .venv complete. Returns at once when its fingerprint matches."""
    wanted = {"inputs": fingerprint(), "test_tools": test_tools}
    if is_set_up(wanted):
        return
    with alone(LOCK / "run.txt"):
        # Another start may have done it while this one waited.
        if not is_set_up(wanted):
            make_complete(wanted)


def is_set_up(wanted: dict) -> bool:
    done = read_stamp()
    return done.get("inputs") == wanted["inputs"] and done.get("test_tools", False) >= wanted["test_tools"]


def make_complete(wanted: dict) -> None:
    test_tools = wanted["test_tools"]
    started = time.monotonic()
    say(f"Setting Greenroom up in {VENV} (details: {LOG}).")
    driver = torch_build.nvidia_driver()
    check_disk(DISK_BYTES_CUDA if driver else DISK_BYTES_CPU)
    system_packages.ensure_build_tools()
    with step("Making the Python environment"):
        make_venv()
    with step("Getting the build tools"):
        install_locked("build")
    with step("Getting the libraries"):
        install_locked("run")
        if test_tools:
            install_locked("test")
    with step("Getting torch " + ("for the NVIDIA GPU" if driver else "for the CPU")) as report:
        report(torch_build.install(PYTHON, LOG, LOCK, driver))
    with step("Building the kernels"):
        pip("install", "--no-index", "--no-deps", "--no-build-isolation", "-e", str(ROOT))
    system_packages.ensure_qt_libraries(VENV)
    if test_tools:
        system_packages.ensure_display_tools()
    STAMP.write_text(json.dumps(wanted), encoding="utf-8")
    say(f"Set up in {time.monotonic() - started:.0f} s.")


def read_stamp() -> dict:
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if GREENROOM.exists() and isinstance(stamp, dict) else {}


def fingerprint() -> str:
    """What the set-up depends on: the interpreter, the dependency lists, the native sources."""
    digest = hashlib.sha256(os.fsencode(f"{sys.version}|{sys.prefix}|{ROOT}"))
    files = [ROOT / "pyproject.toml", ROOT / "CMakeLists.txt", *sorted(LOCK.glob("*.txt"))]
    files += sorted(p for p in (ROOT / "native").rglob("*") if p.is_file())
    for file in files:
        digest.update(str(file.relative_to(ROOT)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def check_disk(needed: int) -> None:
    if VENV.exists():
        return  # an interrupted set-up already holds part of it
    free = shutil.disk_usage(ROOT).free
    if free < needed:
        raise SetupError(
            f"Greenroom cannot be set up: it needs {needed / 1e9:.0f} GB of disk and {free / 1e9:.1f} GB is free. "
            f"Free some space or move {ROOT} to another disk."
        )


def make_venv() -> None:
    if (
        PYTHON.exists()
        and subprocess.run([str(PYTHON), "-P", "-m", "pip", "--version"], capture_output=True).returncode == 0
    ):
        return
    system_packages.ensure_venv_module()
    VENV.mkdir(exist_ok=True)
    run_logged([sys.executable, "-P", "-m", "venv", str(VENV)], LOG, "The Python environment could not be made")


def install_locked(part: str) -> None:
    """Install a lock file: wheels alone, so that no package's build runs, and none whose SHA-256 it does not name."""
    pip("install", "--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(LOCK / f"{part}.txt"))


def pip(*arguments: str) -> None:
    run_logged(
        [str(PYTHON), "-P", "-m", "pip", "--disable-pip-version-check", *arguments],
        LOG,
        "The installation did not finish",
    )


def prepare_demo() -> bool:
    """Build the demo model unless it is there. The window works without it, so a failure is told and not fatal."""
    with step("Preparing the demo model") as report:
        done = subprocess.run([str(PYTHON), "-P", "-m", "engine.hub.demo"], capture_output=True, text=True, cwd=ROOT)
        if done.returncode:
            report("not now: " + ((done.stderr or done.stdout).strip().splitlines() or ["unknown reason"])[-1])
        return done.returncode == 0


def open_window() -> int:
    demo, entry = STAMP.with_suffix(".demo"), STAMP.with_suffix(".launcher")
    if not (demo.exists() and entry.exists()):
        with alone(LOCK / "run.txt"):
            if not demo.exists() and prepare_demo():
                demo.touch()
            if not entry.exists() and (made := launcher.create(ROOT, GREENROOM)):
                say(f"From now on you can also start it from {made}.")
                entry.touch()
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise SetupError(
            "The window cannot be opened: this session has no display. "
            f'Use the terminal instead: {GREENROOM} generate demo --prompt "What is the capital of France?"'
        )
    say("Opening the window.")
    sys.stdout.flush()
    if os.name == "nt":
        return subprocess.call([str(GREENROOM)])
    os.execv(str(GREENROOM), [str(GREENROOM)])


def run_tests(arguments: list[str]) -> int:
    if not prepare_demo():
        raise SetupError("The tests cannot run: the demo model could not be prepared (see the line above).")
    return subprocess.call([str(PYTHON), "-m", "pytest", *arguments], cwd=ROOT)
