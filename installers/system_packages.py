"""What the system itself must have: a compiler, the venv module, Qt's shared libraries, a font."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from steps import SetupError, say


@dataclass(frozen=True)
class Package:
    """One thing by the names the package managers know it under."""

    apt: str
    dnf: str


COMPILER = Package("g++", "gcc-c++")
HEADERS = Package("python3-dev", "python3-devel")
VENV_MODULE = Package("python3-venv", "python3")
FONT = Package("fonts-dejavu-core", "dejavu-sans-fonts")
FONT_FILES = (".ttf", ".otf", ".ttc", ".pfb", ".t1")
FONT_FOLDERS = (
    Path("/usr/share/fonts"),
    Path("/usr/local/share/fonts"),
    Path.home() / ".fonts",
    Path.home() / ".local" / "share" / "fonts",
)

#: What the test of the real window uses: a virtual screen, a hand, a camera and a reader.
DISPLAY_TOOLS = {
    "Xvfb": Package("xvfb", "xorg-x11-server-Xvfb"),
    "xdotool": Package("xdotool", "xdotool"),
    "import": Package("imagemagick", "ImageMagick"),
    "tesseract": Package("tesseract-ocr", "tesseract"),
}

#: Shared libraries PySide6's wheels expect from the system.
LIBRARIES = {
    "libEGL.so.1": Package("libegl1", "mesa-libEGL"),
    "libGL.so.1": Package("libgl1", "mesa-libGL"),
    "libOpenGL.so.0": Package("libopengl0", "libglvnd-opengl"),
    "libX11-xcb.so.1": Package("libx11-xcb1", "libX11-xcb"),
    "libX11.so.6": Package("libx11-6", "libX11"),
    "libdbus-1.so.3": Package("libdbus-1-3", "dbus-libs"),
    "libfontconfig.so.1": Package("libfontconfig1", "fontconfig"),
    "libfreetype.so.6": Package("libfreetype6", "freetype"),
    "libglib-2.0.so.0": Package("libglib2.0-0", "glib2"),
    "libgthread-2.0.so.0": Package("libglib2.0-0", "glib2"),
    "libxcb-cursor.so.0": Package("libxcb-cursor0", "xcb-util-cursor"),
    "libxcb-icccm.so.4": Package("libxcb-icccm4", "xcb-util-wm"),
    "libxcb-image.so.0": Package("libxcb-image0", "xcb-util-image"),
    "libxcb-keysyms.so.1": Package("libxcb-keysyms1", "xcb-util-keysyms"),
    "libxcb-randr.so.0": Package("libxcb-randr0", "libxcb"),
    "libxcb-render-util.so.0": Package("libxcb-render-util0", "xcb-util-renderutil"),
    "libxcb-render.so.0": Package("libxcb-render0", "libxcb"),
    "libxcb-shape.so.0": Package("libxcb-shape0", "libxcb"),
    "libxcb-shm.so.0": Package("libxcb-shm0", "libxcb"),
    "libxcb-sync.so.1": Package("libxcb-sync1", "libxcb"),
    "libxcb-util.so.1": Package("libxcb-util1", "xcb-util"),
    "libxcb-xfixes.so.0": Package("libxcb-xfixes0", "libxcb"),
    "libxcb-xinerama.so.0": Package("libxcb-xinerama0", "libxcb"),
    "libxcb-xkb.so.1": Package("libxcb-xkb1", "libxcb"),
    "libxcb.so.1": Package("libxcb1", "libxcb"),
    "libxkbcommon-x11.so.0": Package("libxkbcommon-x11-0", "libxkbcommon-x11"),
    "libxkbcommon.so.0": Package("libxkbcommon0", "libxkbcommon"),
    "libwayland-client.so.0": Package("libwayland-client0", "libwayland-client"),
    "libwayland-cursor.so.0": Package("libwayland-cursor0", "libwayland-cursor"),
    "libwayland-egl.so.1": Package("libwayland-egl1", "libwayland-egl"),
}


def ensure_build_tools() -> None:
    """A C++ compiler (and on Linux Python's headers) to build the kernels with."""
    if os.name == "nt":
        if not _visual_studio():
            raise SetupError(
                "Greenroom cannot be built: there is no C++ compiler. Install 'Build Tools for Visual Studio' "
                "with 'Desktop development with C++' and start this again."
            )
        return
    if not any(shutil.which(name) for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++") if name):
        if sys.platform == "darwin":
            raise SetupError(
                "Greenroom cannot be built: there is no C++ compiler. Run 'xcode-select --install', then this again."
            )
        _require([COMPILER], "Greenroom cannot be built: there is no C++ compiler")
    if sys.platform.startswith("linux") and not _python_headers().exists():
        _require([HEADERS], "Greenroom cannot be built: Python's headers are missing")


def ensure_venv_module() -> None:
    done = subprocess.run([sys.executable, "-c", "import venv, ensurepip"], capture_output=True)
    if done.returncode:
        _require([VENV_MODULE], "The Python environment cannot be made: Python's venv module is missing")


def ensure_qt_libraries(venv: Path) -> None:
    """The system libraries the window needs (Linux only: the other wheels bring theirs)."""
    if not sys.platform.startswith("linux"):
        return
    missing = missing_qt_packages(venv)
    if missing:
        _require(missing, "The window cannot be opened: some of Qt's system libraries are missing", fatal=False)


def ensure_display_tools() -> None:
    """What one test needs to use the real window as a person would."""
    if sys.platform.startswith("linux"):
        missing = [package for program, package in DISPLAY_TOOLS.items() if not shutil.which(program)]
        if missing:
            _require(missing, "The test of the real window needs a virtual screen and its tools", fatal=False)


def missing_qt_packages(venv: Path) -> list[Package]:
    """Packages for every library that ldd cannot find for the Qt parts the window uses."""
    if not shutil.which("ldd"):
        return []
    lib = next(venv.glob("lib*/python*/site-packages/PySide6/Qt"), None)
    if lib is None:
        return []
    parts = [*lib.glob("lib/libQt6Gui.so.*"), *lib.glob("lib/libQt6Widgets.so.*"), *lib.glob("lib/libQt6XcbQpa.so.*")]
    parts += [*lib.glob("plugins/platforms/libqxcb.so"), *lib.glob("lib/libQt6Svg.so.*")]
    packages: dict[str, Package] = {}
    for part in parts:
        listing = subprocess.run(["ldd", str(part)], capture_output=True, text=True).stdout
        for name in re.findall(r"(\S+) => not found", listing):
            package = LIBRARIES.get(name)
            if package:
                packages[package.apt] = package
    if not any(file.suffix in FONT_FILES for folder in FONT_FOLDERS for file in folder.rglob("*")):
        packages[FONT.apt] = FONT
    return list(packages.values())


def install_line(packages: list[Package]) -> str:
    """The exact command for this system, e.g. "sudo apt-get install -y libegl1"."""
    sudo = "" if os.name == "nt" or os.geteuid() == 0 else "sudo "
    if shutil.which("dnf"):
        return f"{sudo}dnf install -y {' '.join(sorted({p.dnf for p in packages}))}"
    return f"{sudo}apt-get install -y {' '.join(sorted({p.apt for p in packages}))}"


def _require(packages: list[Package], what: str, fatal: bool = True) -> None:
    """Install when we may (root, nobody to ask), else say the exact line. fatal: raise instead of only saying."""
    line = install_line(packages)
    manager = "dnf" if shutil.which("dnf") else "apt-get"
    if os.geteuid() == 0 and not sys.stdin.isatty() and shutil.which(manager):
        say(f"  Installing system packages: {line}")
        quiet = {"capture_output": True, "text": True, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
        if manager == "apt-get":
            subprocess.run(["apt-get", "update", "-q"], **quiet)
        done = subprocess.run(line.split(), **quiet)
        if done.returncode == 0:
            return
        reason = (done.stderr.strip().splitlines() or ["unknown reason"])[-1]
        what += f" and could not be installed ({reason})"
    sentence = f"{what}. Run this, then start again: {line}"
    if fatal:
        raise SetupError(sentence)
    say(sentence, error=True)


def _python_headers() -> Path:
    import sysconfig

    return Path(sysconfig.get_paths()["include"]) / "Python.h"


def _visual_studio() -> bool:
    if shutil.which("cl") or shutil.which("clang-cl"):
        return True
    program_files = os.environ.get("PROGRAMFILES(X86)", r"C:\Program Files (x86)")
    where = Path(program_files) / "Microsoft Visual Studio" / "Installer" / "vswhere.exe"
    if not where.exists():
        return False
    wanted = "Microsoft.VisualStudio.Component.VC.Tools.x86.x64"
    command = [str(where), "-products", "*", "-requires", wanted, "-property", "installationPath"]
    done = subprocess.run(command, capture_output=True, text=True)
    return bool(done.stdout.strip())
