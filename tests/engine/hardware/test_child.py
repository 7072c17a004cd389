"""Risky parts in processes of their own."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from engine.hardware import child
from engine.hardware.child import Reply, ask, child_main


def run(code: str, timeout: float = 30) -> Reply:
    return ask("native", timeout, [sys.executable, "-c", code])


def test_a_real_child_answers() -> None:
    reply = ask("native", 30)
    assert reply.failure == ""
    assert "kernels" in reply.value or "missing" in reply.value


def test_a_crash_is_told_with_its_signal() -> None:
    assert run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)") == Reply({}, "it crashed (signal 9)")


def test_an_exit_code_is_told() -> None:
    assert run("raise SystemExit(7)") == Reply({}, "it crashed (exit code 7)")


def test_a_hang_ends_at_the_time_out() -> None:
    assert run("import threading; threading.Event().wait()", 0.2) == Reply({}, "it did not answer within 0.2 s")


def test_a_hanging_grandchild_does_not_hold_us() -> None:
    code = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import threading; threading.Event().wait(20)'])\n"
        'print(\'{"value": {"fine": 1}}\')'
    )
    assert run(code) == Reply({"fine": 1})


@pytest.mark.parametrize("text", ["", "garbage", "[1]", '{"value": 3}', '{"other": 1}'])
def test_nonsense_is_no_answer(text: str) -> None:
    assert run(f"print({text!r})").failure == "it crashed (exit code 0)"


def test_a_value_before_a_crash_does_not_count() -> None:
    assert "crashed" in run("print('{\"value\": {}}'); raise SystemExit(3)").failure


def test_a_missing_program_is_told() -> None:
    assert "could not be started" in ask("native", 5, ["/nowhere/greenroom"]).failure


def test_errors_of_a_part_reach_the_parent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> dict[str, object]:
        raise OSError("no such bus")

    monkeypatch.setitem(child.PARTS, "nvml", broken)
    assert child_main(["nvml"]) == 1
    assert json.loads(capsys.readouterr().out) == {"failure": "OSError: no such bus"}


@pytest.mark.parametrize("arguments", [[], ["gpu"], ["nvml", "native"]])
def test_unknown_parts_are_refused(arguments: list[str]) -> None:
    assert child_main(arguments) == 2


class FakeError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


def fake_nvml(monkeypatch: pytest.MonkeyPatch, **replaced: object) -> list[str]:
    """NVML with two GPUs; the second one's memory cannot be read. Returns the list of shutdowns."""
    closed: list[str] = []

    def memory(handle: int) -> SimpleNamespace:
        if handle == 1:
            raise FakeError(3)
        return SimpleNamespace(total=24 << 30, free=20 << 30)

    parts: dict[str, object] = {
        "NVMLError": FakeError,
        "NVML_ERROR_LIBRARY_NOT_FOUND": 12,
        "NVML_ERROR_DRIVER_NOT_LOADED": 9,
        "NVML_ERROR_NOT_SUPPORTED": 3,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: closed.append("closed"),
        "nvmlSystemGetDriverVersion": lambda: b"580.1",
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: ["NVIDIA GeForce RTX 4090", b"NVIDIA GB10"][handle],
        "nvmlDeviceGetMemoryInfo": memory,
        **replaced,
    }
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(**parts))
    return closed


def test_nvml_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = fake_nvml(monkeypatch)
    reply = child.nvml_part()
    assert reply["driver"] == "580.1"
    assert reply["gpus"] == [
        {"name": "NVIDIA GeForce RTX 4090", "total": 24 << 30, "free": 20 << 30, "integrated": False},
        {"name": "NVIDIA GB10", "total": 0, "free": 0, "integrated": True},
    ]
    assert reply["error"] == ""
    assert closed == ["closed"]


def test_one_broken_gpu_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(index: int) -> int:
        if index == 1:
            raise FakeError(15)
        return index

    fake_nvml(monkeypatch, nvmlDeviceGetHandleByIndex=handle)
    reply = child.nvml_part()
    assert len(reply["gpus"]) == 1
    assert reply["error"] == "GPU 1: error 15"


@pytest.mark.parametrize(("code", "told"), [(12, ""), (9, ""), (18, "error 18")])
def test_no_driver_is_no_error(code: int, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise FakeError(code)

    fake_nvml(monkeypatch, nvmlInit=refuse)
    assert child.nvml_part() == {"gpus": [], "driver": "", "error": told}


def test_nvml_tells_link_and_age(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(handle: int) -> int:
        raise FakeError(3)

    fake_nvml(
        monkeypatch,
        nvmlDeviceGetMaxPcieLinkGeneration=lambda handle: 4,
        nvmlDeviceGetCurrPcieLinkWidth=no_link,
        nvmlDeviceGetCudaComputeCapability=lambda handle: (8, 9),
        nvmlDeviceGetDisplayActive=lambda handle: 1,
    )
    first = child.nvml_part()["gpus"][0]
    assert (first["pcie_generation"], first["compute_capability"], first["drives_display"]) == (4, "8.9", True)
    assert "pcie_width" not in first


def fake_torch(monkeypatch: pytest.MonkeyPatch, **parts: object) -> None:
    off = SimpleNamespace(is_available=lambda: False)
    fake = SimpleNamespace(**{"cuda": off, "xpu": off, "version": SimpleNamespace(hip=None), **parts})
    monkeypatch.setitem(sys.modules, "torch", fake)


def test_torch_tells_what_nothing_else_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(monkeypatch)
    assert child.torch_part() == {"gpus": []}
    cuda = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 1,
        get_device_properties=lambda index: SimpleNamespace(name="AMD Instinct MI210"),
        mem_get_info=lambda index: (60, 64),
    )
    fake_torch(monkeypatch, cuda=cuda, version=SimpleNamespace(hip="7.0"))
    card = {"name": "AMD Instinct MI210", "vendor": "amd", "total": 64, "free": 60, "integrated": False}
    assert child.torch_part() == {"gpus": [card]}
    xpu = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 2,
        get_device_properties=lambda index: SimpleNamespace(
            name=("Intel(R) Arc(TM) A770 Graphics", "Intel(R) UHD Graphics 770")[index], total_memory=16
        ),
    )
    fake_torch(monkeypatch, xpu=xpu)
    assert [gpu["integrated"] for gpu in child.torch_part()["gpus"]] == [False, True]
