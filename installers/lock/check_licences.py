#!/usr/bin/env python3
"""List the licences of everything Greenroom ships or needs, and fail when one is unknown or does not fit Apache-2.0.

    .venv/bin/python installers/lock/check_licences.py

What is only needed on other systems has no metadata here: it is named, with its licence if that was looked up.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from app.settings.licences import Component, components

LOCK = Path(__file__).resolve().parent
#: SPDX identifiers, and the names that older metadata have for them. All allow distribution beside Apache-2.0 code; the
#: LGPL does since Qt is linked dynamically, in files that a user can replace, the MPL since no file of it is changed.
ACCEPTED = {
    *("0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0"),
    *("ISC", "LGPL-3.0-only", "MIT", "MIT-0", "MPL-2.0", "OFL-1.1", "PSF-2.0", "Unlicense", "Zlib", "Bitstream-Vera"),
    *("Apache Software", "BSD", "Mozilla Public License 2.0 (MPL 2.0)"),
}
#: From the metadata of their wheels.
ELSEWHERE = {
    "colorama": "BSD-3-Clause",
    "httpx2-jsfetch": "BSD-3-Clause",
    "pywin32-ctypes": "BSD-3-Clause",
    "triton": "MIT",
}
#: torch's CUDA libraries have NVIDIA's own terms. Greenroom does not ship them: set-up installs NVIDIA's packages.
NOT_SHIPPED = re.compile(r"(nvidia|cuda)-(?!ml-py)")


def fits(licence: str) -> bool:
    """Whether a licence expression leaves an accepted choice. A comma, as classifiers give it, means all of them."""
    licence = licence.strip()
    if licence in ACCEPTED:
        return True
    while inner := re.search(r"\(([^()]*)\)", licence):
        licence = licence.replace(inner[0], "MIT" if fits(inner[1]) else "none")
    return any(
        all(part.strip() in ACCEPTED for part in re.split(r" AND |,", way)) for way in re.split(r" OR ", licence)
    )


def problems(found: list[Component]) -> list[str]:
    return [
        f"{component.name}: {component.licence or 'no licence is named'}"
        for component in found
        if not fits(component.licence) and not NOT_SHIPPED.match(canonical(component.name))
    ]


def not_here(found: list[Component]) -> list[str]:
    """Names that are locked to run Greenroom and not installed on this system."""
    text = "".join((LOCK / name).read_text(encoding="utf-8") for name in ("run.txt", "torch.txt"))
    locked = set(re.findall(r"^([A-Za-z0-9._-]+)==", text, re.MULTILINE))
    return sorted(locked - {canonical(component.name) for component in found})


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    found = components()
    for component in found:
        texts = sorted(component.texts, key=lambda path: not path.name.upper().startswith("LICEN"))
        text = texts[0] if texts else "no text came with it"
        print(f"{component.name:28} {component.version:16} {component.licence}\n    {text}")
    for name in not_here(found):
        print(f"{name:28} not on this system  {ELSEWHERE.get(name, '')}")
    wrong = problems(found)
    for line in wrong:
        print(f"Unknown or not compatible: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
