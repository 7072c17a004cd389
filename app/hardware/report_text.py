"""The hardware report as text to paste into a question: no serial numbers, no names of users or folders of theirs."""

from __future__ import annotations

import getpass
import re
from pathlib import Path

from app.hardware.checks import checks
from app.language import tr
from engine import __version__
from engine.hardware.report import HardwareReport
from engine.units import size_text

_STATES = {"good": "ok", "note": "note", "warn": "warning", "bad": "problem"}


def report_text(report: HardwareReport) -> str:
    system = report.os
    lines = [
        f"Greenroom {__version__} on {system.get('name') or system.get('system', 'an unknown system')}, "
        f"Python {system.get('python', '?')}, torch {system.get('torch', 'not installed')}"
    ]
    for check in checks(report):
        # The folder of the models says nothing about the machine, and may say much about its owner.
        said = check.sentence
        if check.title == "Disk":
            free = size_text(report.disk.free_bytes)
            said = tr("{amount} free.", amount=free) if report.disk.known else tr("Free space unknown.")
        note = f" ({check.note})" if check.note else ""
        lines.append(f"[{_STATES[check.state]}] {tr(check.title)}: {said}{note}")
    speeds = report.memory.bandwidth_gbs or {}
    if speeds:
        measured = ", ".join(
            tr("{speed} with {threads}", speed=f"{speeds[key]:.1f}", threads=key) for key in sorted(speeds, key=int)
        )
        lines.append(tr("RAM read speed in GB/s by number of threads: {measured}", measured=measured))
    usable = " ".join(report.cpu.isa.usable) or tr("unknown")
    lines.append(tr("Instruction sets: {names}", names=usable))
    return _without_names("\n".join(lines)) + "\n"


def _without_names(text: str) -> str:
    try:
        home = Path.home()
        text = text.replace(str(home), "~")
        names = {home.name, getpass.getuser()}
    except (OSError, KeyError, RuntimeError):  # no home or no name known
        return text
    for name in names:
        if name:
            text = re.sub(rf"(?<=[/\\]){re.escape(name)}(?=[/\\]|\b)", "user", text)
    return text
