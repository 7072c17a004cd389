"""What Greenroom ships or runs on, and under which licences: from the metadata of what is installed."""

from __future__ import annotations

import platform
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

PROGRAM = "greenroom"
#: Files of a distribution that hold terms.
_TERMS = re.compile(r"(^|/)(licen[cs]e|copying|notice|authors)[^/]*$", re.IGNORECASE)
#: Longer texts are of no use to a reader.
_MOST = 400_000
#: What has no metadata of its own: code in the compiled module, the model the demo is made from, fonts in packages.
PARTS = (
    ("pybind11", "", "BSD-3-Clause"),
    ("SmolLM2-135M-Instruct", "", "Apache-2.0"),
    ("STIX Two Math", "", "OFL-1.1"),
    ("DejaVu Sans", "", "Bitstream-Vera"),
)


@dataclass(frozen=True)
class Component:
    """texts: files with the terms, to be read when they are asked for."""

    name: str
    version: str
    licence: str
    texts: tuple[Path, ...] = ()

    def terms(self) -> str:
        """The whole text of its licence files; empty when it came without."""
        parts = []
        for path in self.texts:
            try:
                parts.append(path.read_text(encoding="utf-8", errors="replace")[:_MOST].strip())
            except OSError:
                continue
        return "\n\n".join(filter(None, parts))


def components(root: str = PROGRAM) -> list[Component]:
    """Python, PARTS, and every distribution that `root` needs, directly or not, by name. About 0.1 s."""
    found = [_python(), *(Component(*part) for part in PARTS)]
    found += [_component(distribution) for distribution in _needed(root)]
    return sorted(found, key=lambda component: component.name.lower())


def _python() -> Component:
    text = Path(sysconfig.get_paths()["stdlib"]) / "LICENSE.txt"
    return Component("Python", platform.python_version(), "PSF-2.0", (text,) if text.exists() else ())


def _needed(root: str) -> Iterator[metadata.Distribution]:
    seen, waiting = {_canonical(root)}, list(_requirements(root))
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            yield metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # of another system
        waiting += _requirements(name)


def _requirements(name: str) -> Iterator[str]:
    """Names only; what is needed for an extra alone is not followed."""
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        wanted, _, marker = line.partition(";")
        if "extra ==" not in marker:
            yield _canonical(re.split(r"[\s<>=!~\[(]", wanted.strip(), maxsplit=1)[0])


def _component(distribution: metadata.Distribution) -> Component:
    about = distribution.metadata
    texts = tuple(
        Path(str(distribution.locate_file(file))) for file in distribution.files or () if _TERMS.search(file.as_posix())
    )
    return Component(about["Name"], distribution.version, _licence(about), texts)


def _licence(about: metadata.PackageMetadata) -> str:
    """The licence's short name, from the newest of the three places that metadata keep it in."""
    expression = about.get("License-Expression")
    if expression:
        return str(expression)
    named = [
        line.rsplit(" :: ", 1)[-1].removesuffix(" License")
        for line in about.get_all("Classifier") or []
        if line.startswith("License ::") and line != "License :: OSI Approved"
    ]
    if named:
        return ", ".join(named)
    lines = str(about.get("License") or "").strip().splitlines()
    return lines[0][:60] if lines else ""


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
