"""The risky questions, each in a process of its own: native code may crash, a driver may hang.

`python -m engine.hardware.child PART` prints one JSON object. A frozen program has no interpreter to call,
so it calls itself: `greenroom --probe-child PART`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.child_process import PROBE, command, environment
from engine.errors import GreenroomError
from engine.words import say

#: A reply is a few kilobytes; whatever is longer is not a reply.
REPLY_LIMIT = 1 << 20
WAIT_STEP = 0.1


@dataclass(frozen=True)
class Reply:
    """What a child said. failure is "" or why there is no value, in plain words."""

    value: dict[str, Any]
    failure: str = ""


def native_part() -> dict[str, Any]:
    """CPU features and kernel tiers from the compiled module."""
    try:
        from engine import _native
    except ImportError as error:
        return {"missing": str(error)}
    features = _native.cpu_features()
    return {
        "vendor": features.vendor,
        "brand": features.brand.strip(),
        "family": features.family,
        "model": features.model,
        "cpu": list(features.cpu),
        "usable": list(features.usable),
        "kernels": {code: _native.kernel_tier(code) for code in ("int4", "int8", "bf16")},
    }


def nvml_part() -> dict[str, Any]:
    """NVIDIA GPUs with driver and memory, in bytes. No driver at all is an empty list, not an error."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        absent = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        return {"gpus": [], "driver": "", "error": "" if error.value in absent else str(error)}
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        gpus, errors = [], []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                name = _text(pynvml.nvmlDeviceGetName(handle))
            except pynvml.NVMLError as error:
                errors.append(f"GPU {index}: {error}")
                continue
            facts = {"name": name, **_nvml_facts(pynvml, handle)}
            try:
                memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
                gpus.append({**facts, "total": int(memory.total), "free": int(memory.free), "integrated": False})
            except pynvml.NVMLError as error:
                # Jetson and GB10 have no memory of their own and answer "not supported".
                integrated = error.value == pynvml.NVML_ERROR_NOT_SUPPORTED
                gpus.append({**facts, "total": 0, "free": 0, "integrated": integrated})
                if not integrated:
                    errors.append(f"{name}: {error}")
        return {"gpus": gpus, "driver": driver, "error": "; ".join(errors)}
    finally:
        pynvml.nvmlShutdown()


def _nvml_facts(pynvml: Any, handle: Any) -> dict[str, Any]:
    """What not every card and driver answers; the questions that fail are left out."""
    questions: dict[str, Callable[[], Any]] = {
        # The best that card and slot can do together: an idle link runs slower.
        "pcie_generation": lambda: int(pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
        "pcie_width": lambda: int(pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
        "compute_capability": lambda: "{}.{}".format(*pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
        "drives_display": lambda: bool(pynvml.nvmlDeviceGetDisplayActive(handle)),
    }
    facts = {}
    for name, question in questions.items():
        with contextlib.suppress(pynvml.NVMLError, AttributeError):
            facts[name] = question()
    return facts


def torch_part() -> dict[str, Any]:
    """GPUs as torch sees them, for drivers that NVML and the system's folders know nothing of (takes seconds)."""
    import torch  # only ever in this child, never in the program that asks

    gpus: list[dict[str, Any]] = []
    if torch.cuda.is_available():
        vendor = "amd" if torch.version.hip else "nvidia"
        for index in range(torch.cuda.device_count()):
            facts: Any = torch.cuda.get_device_properties(index)
            free, total = torch.cuda.mem_get_info(index)
            integrated = bool(getattr(facts, "is_integrated", False))
            gpus.append({"name": facts.name, "vendor": vendor, "total": total, "free": free, "integrated": integrated})
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        for index in range(torch.xpu.device_count()):
            facts = torch.xpu.get_device_properties(index)
            # Graphics inside a processor have no local memory that is not the RAM.
            integrated = bool(getattr(facts, "is_integrated_gpu", not facts.name.lower().count("arc")))
            total = int(facts.total_memory)
            gpus.append(
                {"name": facts.name, "vendor": "intel", "total": total, "free": total, "integrated": integrated}
            )
    return {"gpus": gpus}


def system_part() -> dict[str, Any]:
    """What Windows and macOS say only through calls of their own."""
    if sys.platform == "win32":
        from engine.hardware import windows

        return windows.facts()
    if sys.platform == "darwin":
        from engine.hardware import macos

        return macos.facts()
    return {}


def cpuinfo_part() -> dict[str, Any]:
    """Name and vendor from py-cpuinfo, for systems where nothing quicker knows them (it takes about a second)."""
    import cpuinfo

    info = cpuinfo.get_cpu_info()
    return {"brand": str(info.get("brand_raw", "")), "vendor": str(info.get("vendor_id_raw", ""))}


def device_part(name: str) -> dict[str, Any]:
    """Speeds of "cuda:0" or another device by that name (takes some seconds, most of them torch's)."""
    from engine.executors.device_speed import device_speed

    return {key: round(value, 2) for key, value in device_speed(name).items()}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "native": native_part,
    "nvml": nvml_part,
    "cpuinfo": cpuinfo_part,
    "torch": torch_part,
    "system": system_part,
}


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def child_main(arguments: Sequence[str]) -> int:
    """Answer one part as JSON on stdout: one of PARTS, or "device=NAME". Returns the exit code: 0, 1 when the part
    failed, 2 for an unknown part.
    """
    part, _, device = arguments[0].partition("=") if len(arguments) == 1 else ("", "", "")
    if not (part == "device" if device else part in PARTS):
        return 2
    try:
        value = device_part(device) if device else PARTS[part]()
    except Exception as error:  # whatever a driver binding raises must reach the parent as a sentence
        said = f"{error.what}: {error.why}" if isinstance(error, GreenroomError) else f"{type(error).__name__}: {error}"
        sys.stdout.write(json.dumps({"failure": said}))
        return 1
    sys.stdout.write(json.dumps({"value": value}))
    return 0


def ask(
    part: str,
    timeout: float,
    arguments: Sequence[str] | None = None,
    waiting: Callable[[], None] | None = None,
) -> Reply:
    """Run one part in a child and wait at most `timeout` seconds. Never raises for what the child does.

    arguments: the command line to run instead of the part's.
    waiting:   called about ten times a second; what it raises ends the child and is raised
    """
    # A file, not a pipe: a hung grandchild that holds a pipe open would make us wait for ever.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                list(arguments or command(PROBE, [part])),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                env=environment(),
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        except OSError as error:
            return Reply({}, say("its helper process could not be started ({why})", why=error.strerror))
        try:
            code = _wait(process, timeout, waiting)
        except BaseException as error:
            process.kill()
            # Stuck in a driver it cannot die yet; the system reaps it when the driver lets go.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
            if isinstance(error, subprocess.TimeoutExpired):
                return Reply({}, say("it did not answer within {timeout:g} s", timeout=timeout))
            raise
        output.seek(0)
        text = output.read(REPLY_LIMIT)
    return _parse(text, code)


def _wait(process: subprocess.Popen[bytes], timeout: float, waiting: Callable[[], None] | None) -> int:
    if waiting is None:
        return process.wait(timeout)
    deadline = time.monotonic() + timeout
    while True:
        waiting()
        left = deadline - time.monotonic()
        try:
            return process.wait(max(0.0, min(WAIT_STEP, left)))
        except subprocess.TimeoutExpired:
            if left <= WAIT_STEP:
                raise


def _parse(text: bytes, code: int) -> Reply:
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        if isinstance(answer.get("value"), dict) and code == 0:
            return Reply(answer["value"])
        if isinstance(answer.get("failure"), str):
            return Reply({}, answer["failure"])
    # Negative on POSIX: the signal that ended it. Windows reports exceptions as large codes.
    if code < 0:
        return Reply({}, say("it crashed (signal {code})", code=-code))
    return Reply({}, say("it crashed (exit code {code})", code=code))


if __name__ == "__main__":
    sys.exit(child_main(sys.argv[1:]))
