"""Setting up: what is recognised, what is said when it cannot go on."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import threading
from collections import namedtuple
from pathlib import Path

import environment
import launcher
import pytest
import steps
import system_packages
import torch_build
from steps import SetupError
from together import together

INSTALLERS = Path(environment.__file__).parent


def test_the_entry_point_uses_no_syntax_an_old_python_lacks() -> None:
    source = (INSTALLERS / "bootstrap.py").read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 4))
    assert "__future__" not in source


def test_an_old_python_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import bootstrap

    monkeypatch.setattr(bootstrap.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(bootstrap.shutil, "which", lambda name: None)
    assert bootstrap.main() == 2
    said = capsys.readouterr().err
    assert "3.9.2" in said
    assert "3.11 or newer" in said


def test_an_old_python_hands_over_to_a_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import bootstrap

    class HandedOverError(Exception):
        pass

    def execv(program: str, arguments: list[str]) -> None:
        raise HandedOverError(program, arguments[1:])

    monkeypatch.setattr(bootstrap.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(bootstrap.sys, "argv", ["bootstrap.py", "run"])
    monkeypatch.setattr(bootstrap.shutil, "which", lambda name: "/opt/" + name)
    monkeypatch.setattr(bootstrap, "works", lambda program: program == "/opt/python3.12")
    monkeypatch.setattr(bootstrap.os, "execv", execv)
    with pytest.raises(HandedOverError) as raised:
        bootstrap.main()
    assert raised.value.args == ("/opt/python3.12", [str(INSTALLERS / "bootstrap.py"), "run"])


def test_only_a_python_that_starts_counts(tmp_path: Path) -> None:
    import bootstrap

    assert bootstrap.works(sys.executable)
    if os.name != "nt":
        stand_in = tmp_path / "python3.12"
        stand_in.write_text("#!/bin/sh\necho not switched on >&2\nexit 127\n")
        stand_in.chmod(0o755)
        assert not bootstrap.works(str(stand_in))


def test_set_up_imports_only_the_standard_library() -> None:
    allowed = set(sys.stdlib_module_names) | {path.stem for path in INSTALLERS.glob("*.py")}
    for path in INSTALLERS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            assert {name.split(".")[0] for name in names} <= allowed, path


def hostile_folder(folder: Path) -> Path:
    """A folder with modules that tell when they are imported. Returns where they tell it."""
    told = folder / "told"
    for name in ("pip", "json", "engine", "environment"):
        (folder / name).mkdir()
        for file in ("__init__.py", "__main__.py"):
            (folder / name / file).write_text(f"open({str(told)!r}, 'w')")
    return told


def test_set_up_runs_nothing_that_lies_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import bootstrap

    told = hostile_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(environment, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(environment, "LOG", tmp_path / "log")
    environment.pip("--version")
    assert "from " + str(tmp_path) not in (tmp_path / "log").read_text(encoding="utf-8")
    done = subprocess.run([sys.executable, str(INSTALLERS / "bootstrap.py"), "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not told.exists()

    seen: list[str] = []
    monkeypatch.setattr(environment, "main", lambda: seen.append(os.getcwd()) or 0)
    assert bootstrap.main() == 0
    assert seen == [str(INSTALLERS.parent)]


class TestStamp:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(environment, "STAMP", tmp_path / "stamp.json")
        monkeypatch.setattr(environment, "GREENROOM", tmp_path / "greenroom")
        (tmp_path / "greenroom").touch()

    def test_a_finished_set_up_is_not_repeated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        environment.STAMP.write_text(json.dumps({"inputs": environment.fingerprint(), "test_tools": True}))
        monkeypatch.setattr(environment, "pip", lambda *a: pytest.fail("installed again"))
        environment.set_up(test_tools=False)
        environment.set_up(test_tools=True)

    def test_broken_or_missing_stamps_mean_not_set_up(self) -> None:
        assert environment.read_stamp() == {}
        environment.STAMP.write_text("{")
        assert environment.read_stamp() == {}
        environment.STAMP.write_text("[]")
        assert environment.read_stamp() == {}

    def test_a_stamp_without_its_program_does_not_count(self) -> None:
        environment.STAMP.write_text(json.dumps({"inputs": "x"}))
        environment.GREENROOM.unlink()
        assert environment.read_stamp() == {}


SET_UP = """
import sys, time
sys.path.insert(0, "installers")
import environment
from pathlib import Path

def work(place):
    folder = Path(place)
    environment.STAMP, environment.GREENROOM = folder / "stamp.json", folder / "greenroom"

    def make_complete(wanted):
        with open(folder / "made", "a") as file:
            file.write("x")
        time.sleep(0.05)
        environment.GREENROOM.touch()
        environment.STAMP.write_text(environment.json.dumps(wanted))

    environment.make_complete = make_complete
    import steps
    steps.say = lambda *_, **__: None
    environment.set_up(test_tools=False)
    return "set up"
"""


def test_starts_at_the_same_moment_set_up_once(tmp_path: Path) -> None:
    with together(3, SET_UP) as processes:
        for number in range(10):
            folder = tmp_path / str(number)
            folder.mkdir()
            assert processes.run(folder) == ["set up"] * 3
            assert (folder / "made").read_text() == "x"


def test_a_start_that_waits_says_so_and_goes_on_when_the_other_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "constraints.txt"
    file.write_text("torch")
    hold = (
        f"import sys, pathlib; sys.path.insert(0, {str(INSTALLERS)!r}); import steps\n"
        f"with steps.alone(pathlib.Path({str(file)!r})): print('in', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "in\n"
    ended = threading.Timer(0.5, other.kill)
    ended.start()
    with steps.alone(file):
        other.communicate()
        assert other.returncode != 0
    assert capsys.readouterr().out.count("waiting for it") == 1


def test_too_little_disk_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(environment, "VENV", tmp_path / "none")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**10, 9 * 10**9, 10**9))
    with pytest.raises(SetupError, match=r"needs 3 GB of disk and 1\.0 GB is free"):
        environment.check_disk(environment.DISK_BYTES_CPU)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("Failed to establish a new connection: [Errno 101] Network is unreachable", "no network"),
        ("CMake Error: No CMAKE_CXX_COMPILER could be found.", "no C++ compiler"),
        ("ERROR: ResolutionImpossible: for help visit https://pip.pypa.io", "Check the network"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "its SHA-256 differs"),
        ("some error: it is odd", "some error: it is odd"),
        ("", "no reason was given"),
    ],
)
def test_a_failing_command_is_explained_in_one_sentence(tmp_path: Path, output: str, said: str) -> None:
    command = [sys.executable, "-c", f"import sys; print({output!r}); sys.exit(1)"]
    with pytest.raises(SetupError, match=said.replace("+", r"\+")) as raised:
        steps.run_logged(command, tmp_path / "log", "It did not work")
    assert "\n" not in str(raised.value)


def test_a_failure_is_explained_from_its_own_output_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("No space left on device\n")
    with pytest.raises(SetupError, match="no reason was given"):
        steps.run_logged([sys.executable, "-c", "raise SystemExit(1)"], log, "It did not work")


def test_a_command_that_asks_gets_no_answer(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="EOF"):
        steps.run_logged([sys.executable, "-c", "input()"], tmp_path / "log", "It did not work")


class TestTorchBuild:
    def test_a_plain_cpu_build_is_taken_without_asking_another_index(self) -> None:
        assert torch_build.sources_for("cpu", "cpu")[0].index is None

    def test_a_cpu_machine_avoids_the_large_build(self) -> None:
        sources = torch_build.sources_for("cpu", "cuda")
        assert sources[0].index == torch_build.INDEX + "cpu"
        assert sources[-1].index is None

    @pytest.mark.parametrize("plain", ["cpu", "+cpu", "cuda", None])
    @pytest.mark.parametrize("build", ["cpu", "cu126", "cu130"])
    def test_there_is_always_a_way_without_pytorchs_index(self, build: str, plain: str | None) -> None:
        assert None in [source.index for source in torch_build.sources_for(build, plain)]

    def test_an_old_driver_gets_the_build_it_can_run(self) -> None:
        assert torch_build.sources_for("cu126", "cuda")[0].index == torch_build.INDEX + "cu126"

    def test_no_answer_means_no_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch_build.shutil, "which", lambda name: "/usr/bin/nvidia-smi")

        def hang(*args: object, **kwargs: object) -> None:
            raise subprocess.TimeoutExpired("nvidia-smi", 20)

        monkeypatch.setattr(torch_build.subprocess, "run", hang)
        assert torch_build.nvidia_driver() is None

    @pytest.mark.parametrize(
        ("printed", "code", "driver"), [("580.65.06\n", 0, 580), ("no devices\n", 0, None), ("", 9, None)]
    )
    def test_the_driver_is_read(
        self, monkeypatch: pytest.MonkeyPatch, printed: str, code: int, driver: int | None
    ) -> None:
        monkeypatch.setattr(torch_build.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
        answer = subprocess.CompletedProcess([], code, stdout=printed)
        monkeypatch.setattr(torch_build.subprocess, "run", lambda *a, **k: answer)
        assert torch_build.nvidia_driver() == driver

    def test_an_unreachable_index_is_left_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tried: list[list[str]] = []
        monkeypatch.setattr(torch_build, "reachable", lambda index: False)
        monkeypatch.setattr(torch_build, "plain_pip_offers", lambda python, version: "cuda")
        monkeypatch.setattr(torch_build, "installed_version", lambda python: None)
        monkeypatch.setattr(torch_build, "run_logged", lambda command, *a: tried.append(command))
        remark = torch_build.install(Path("python"), tmp_path / "log", environment.LOCK, None)
        assert len(tried) == 1
        assert "--index-url" not in tried[0]
        assert {"--require-hashes", str(environment.LOCK / "torch.txt")} <= set(tried[0])
        assert "larger" in remark

    @pytest.mark.parametrize(("plain", "index"), [("+cpu", None), ("cuda", torch_build.INDEX + "cpu")])
    def test_pytorchs_cpu_build_is_checked_wherever_it_comes_from(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: str, index: str | None
    ) -> None:
        tried: list[list[str]] = []
        monkeypatch.setattr(torch_build, "reachable", lambda index: True)
        monkeypatch.setattr(torch_build, "plain_pip_offers", lambda python, version: plain)
        monkeypatch.setattr(torch_build, "installed_version", lambda python: None)
        monkeypatch.setattr(torch_build, "run_logged", lambda command, *a: tried.append(command))
        assert torch_build.install(Path("python"), tmp_path / "log", environment.LOCK, None) == "CPU build"
        assert {"--require-hashes", str(environment.LOCK / "torch-cpu.txt")} <= set(tried[0])
        assert [command[command.index("--index-url") + 1] for command in tried if "--index-url" in command] == (
            [index, index] if index else []
        )

    def test_a_build_without_a_lock_is_taken_by_version_from_its_own_index(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "torch.txt").write_text("torch==2.13.0 \\\n    --hash=sha256:0\n")
        tried: list[list[str]] = []
        monkeypatch.setattr(torch_build, "reachable", lambda index: True)
        monkeypatch.setattr(torch_build, "plain_pip_offers", lambda python, version: "cuda")
        monkeypatch.setattr(torch_build, "installed_version", lambda python: None)
        monkeypatch.setattr(torch_build, "run_logged", lambda command, *a: tried.append(command))
        assert torch_build.install(Path("python"), tmp_path / "log", tmp_path, 550) == "cu126"
        (command,) = tried
        assert command[-3:] == ["--index-url", torch_build.INDEX + "cu126", "torch==2.13.0"]

    def test_a_changed_file_is_not_replaced_by_one_without_a_hash(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "torch.txt").write_text("torch==2.13.0 \\\n    --hash=sha256:0\n")
        tried: list[list[str]] = []
        words = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE"

        def changed(command: list[str], log: Path, what: str) -> None:
            tried.append(command)
            steps.run_logged([sys.executable, "-c", f"print({words!r}); raise SystemExit(1)"], log, what)

        monkeypatch.setattr(torch_build, "reachable", lambda index: True)
        monkeypatch.setattr(torch_build, "plain_pip_offers", lambda python, version: "cuda")
        monkeypatch.setattr(torch_build, "installed_version", lambda python: None)
        monkeypatch.setattr(torch_build, "run_logged", changed)
        with pytest.raises(steps.SetupError, match="SHA-256 differs"):
            torch_build.install(Path("python"), tmp_path / "log", tmp_path, 580)
        assert len(tried) == 1

    def test_nothing_to_do_when_it_is_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        version = torch_build.pinned_version(environment.LOCK)
        monkeypatch.setattr(torch_build, "installed_version", lambda python: version + "+cpu")
        monkeypatch.setattr(torch_build, "plain_pip_offers", lambda python, version: "cpu")
        monkeypatch.setattr(torch_build, "run_logged", lambda *a: pytest.fail("installed again"))
        torch_build.install(Path("python"), tmp_path / "log", environment.LOCK, None)

    def test_a_closed_port_is_not_reachable(self) -> None:
        assert not torch_build.reachable("http://127.0.0.1:9/")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="system packages are a Linux matter")
class TestSystemPackages:
    def test_the_exact_line_is_said_to_a_user(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(system_packages.os, "geteuid", lambda: 1000)
        monkeypatch.setattr(system_packages.shutil, "which", lambda name: None if name == "dnf" else "/usr/bin/" + name)
        system_packages._require([system_packages.LIBRARIES["libEGL.so.1"]], "Qt is incomplete", fatal=False)
        assert "sudo apt-get install -y libegl1" in capsys.readouterr().err

    def test_dnf_has_its_own_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(system_packages.os, "geteuid", lambda: 1000)
        monkeypatch.setattr(system_packages.shutil, "which", lambda name: "/usr/bin/" + name)
        assert system_packages.install_line([system_packages.COMPILER]) == "sudo dnf install -y gcc-c++"

    def test_a_system_without_any_font_gets_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "lib/python3.12/site-packages/PySide6/Qt").mkdir(parents=True)
        monkeypatch.setattr(system_packages, "FONT_FOLDERS", (tmp_path / "none", tmp_path / "fonts"))
        assert system_packages.missing_qt_packages(tmp_path) == [system_packages.FONT]
        (tmp_path / "fonts").mkdir()
        (tmp_path / "fonts" / "Text.ttf").touch()
        assert system_packages.missing_qt_packages(tmp_path) == []

    def test_missing_libraries_are_read_from_ldd(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(system_packages, "FONT_FOLDERS", (tmp_path / "fonts",))
        (tmp_path / "fonts").mkdir()
        (tmp_path / "fonts" / "Text.otf").touch()
        plugin = tmp_path / "lib/python3.12/site-packages/PySide6/Qt/plugins/platforms/libqxcb.so"
        plugin.parent.mkdir(parents=True)
        plugin.touch()
        listing = "\tlibxcb-cursor.so.0 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n\tlibodd.so.1 => not found\n"
        answer = subprocess.CompletedProcess([], 0, stdout=listing)
        monkeypatch.setattr(system_packages.subprocess, "run", lambda *a, **k: answer)
        packages = system_packages.missing_qt_packages(tmp_path)
        assert [package.apt for package in packages] == ["libxcb-cursor0"]

    def test_no_compiler_is_one_sentence_with_the_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(system_packages.os, "geteuid", lambda: 1000)
        monkeypatch.setattr(system_packages.shutil, "which", lambda name: None)
        with pytest.raises(SetupError, match=r"no C\+\+ compiler\. Run this, then start again: sudo apt-get install"):
            system_packages.ensure_build_tools()


def test_without_a_display_the_terminal_way_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("other systems always have a display")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(environment, "STAMP", tmp_path / "stamp.json")
    monkeypatch.setattr(environment, "prepare_demo", lambda: True)
    monkeypatch.setattr(launcher, "create", lambda root, program: None)
    with pytest.raises(SetupError, match="generate demo --prompt"):
        environment.open_window()
