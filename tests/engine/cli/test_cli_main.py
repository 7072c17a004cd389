"""What all verbs have in common, and a test or two of those without a file of their own."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import answer, document, process

import engine
from engine.cli.main import DONE, INTERRUPTED, REFUSED, VERBS, main


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (MemoryError(), "Greenroom cannot go on: there is not enough memory. Close other programs"),
        (ImportError("libtorch.so:\nno memory"), "A part of Greenroom cannot be loaded: libtorch.so: no memory. Free"),
    ],
)
def test_what_the_pc_cannot_give_is_one_sentence(
    error: Exception, shown: str, tiny_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: Any) -> None:
        if isinstance(error, ImportError):
            # numpy wraps the reason in a page of advice.
            raise ImportError("a page of advice") from error
        raise error

    monkeypatch.setattr(engine, "load", load)
    assert main(answer(tiny_model)) == REFUSED
    assert capsys.readouterr().err.startswith(f"greenroom: {shown}")


def test_a_kernel_cap_that_is_none_is_refused(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREENROOM_ISA", "sse9")
    for verb in (answer(tiny_model), ["plan", str(tiny_model)], ["bench", str(tiny_model)]):
        assert main(verb) == REFUSED
        assert 'GREENROOM_ISA "sse9" cannot be used' in capsys.readouterr().err


def test_probe_json_has_the_documented_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--json"]) == DONE
    told = document(capsys)
    assert {"cpu", "memory", "gpus", "numa", "disk", "warnings"} <= told.keys()
    assert {"name", "physical_cores", "logical_cores", "isa", "kernels"} <= told["cpu"].keys()
    assert {"cpu", "usable"} <= told["cpu"]["isa"].keys()
    assert {"int4", "int8", "bf16"} <= told["cpu"]["kernels"].keys()
    assert {"total_bytes", "available_bytes", "bandwidth_gbs"} <= told["memory"].keys()
    assert main(["probe"]) == DONE
    assert told["cpu"]["name"] in capsys.readouterr().out


def test_bench_json_has_the_documented_fields(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.runtime import bench

    monkeypatch.setattr(bench, "_BUFFER_BYTES", 1 << 20)
    monkeypatch.setattr(bench, "_SMALLEST_BUFFER_BYTES", 1 << 16)
    options = ["-p", "8,16", "-n", "3", "-t", "1,2", "-r", "1"]
    assert main(["bench", str(tiny_model), *options, "--json"]) == DONE
    told = document(capsys)
    assert {"machine", "model", "plan", "results"} <= told.keys()
    assert told["machine"]["cpu"]["name"]
    assert [(r["threads"], r["n_prompt"], r["n_gen"]) for r in told["results"]] == [
        (1, 8, 3),
        (1, 16, 3),
        (2, 8, 3),
        (2, 16, 3),
    ]
    figures = {"prefill_tps", "decode_tps", "decode_gbs", "read_bandwidth_gbs", "bandwidth_share", "prefill_gops"}
    assert all(result[name] > 0 for result in told["results"] for name in figures)
    assert main(["bench", str(tiny_model), *options]) == DONE
    shown = capsys.readouterr().out
    assert told["machine"]["cpu"]["name"] in shown
    assert len(shown.splitlines()) == 2 + 4 + 2
    assert "In use: cpu, everything on the CPU; f32" in shown
    assert re.search(r"Predicted with 2 threads: answers at about .+, prompts of 16 tokens at about .+", shown)
    assert main(["bench", str(tiny_model), "-p", "8", "-n", "2", "-t", "1", "-r", "1"]) == DONE
    assert "Predicted with 1 thread: " in capsys.readouterr().out


def test_perplexity_json_has_the_documented_fields(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Ein Männlein steht im Walde " * 5, encoding="utf-8")
    options = ["--file", str(text), "--window", "64"]
    assert main(["perplexity", str(tiny_model), *options, "--json"]) == DONE
    told = document(capsys)
    assert told["tokens"] == len(text.read_bytes()) - 1
    assert told["perplexity"] > 1
    assert main(["perplexity", str(tiny_model), *options]) == DONE
    assert f"{told['perplexity']:.4f}" in capsys.readouterr().out


def test_models_lists_what_is_there_and_its_names_work(
    tiny_model: Path, data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "--json"]) == DONE
    assert document(capsys)["models"] == []
    folder = data_folder / "models" / "someone"
    folder.mkdir(parents=True)
    (folder / "tiny").symlink_to(tiny_model, target_is_directory=True)
    assert main(["models", "--json"]) == DONE
    (model,) = document(capsys)["models"]
    assert (model["name"], model["architecture"], model["error"]) == ("someone/tiny", "qwen3_moe", None)
    assert main(answer("tiny", "--json")) == DONE
    assert document(capsys)["token_ids"]


def test_demo_is_prepared_when_it_is_missing(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.hub import demo

    prepared = []
    monkeypatch.setattr(demo, "prepare_demo", lambda progress: prepared.append(progress) or tiny_model)
    assert main(["plan", "demo", "--json"]) == DONE
    assert document(capsys)["model"]["architecture"] == "qwen3_moe"
    assert len(prepared) == 1


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Addresses that somebody tried to reach."""
    tried: list[Any] = []

    def refuse(*address: Any, **_: Any) -> None:
        tried.append(address)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return tried


def test_nothing_reaches_for_the_network(tiny_model: Path, tmp_path: Path, offline: list[Any]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Ein Männlein steht im Walde", encoding="utf-8")
    for verb in (
        ["probe"],
        ["models"],
        ["plan", str(tiny_model)],
        answer(tiny_model),
        ["perplexity", str(tiny_model), "--file", str(text), "--window", "16"],
        ["plan", "someone/model"],
    ):
        main(verb)
    assert offline == []


# --- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["plan"],
        ["generate", "demo"],
        ["generate", "demo", "--prompt", "x", "--max-tokens", "0"],
        ["generate", "demo", "--prompt", "x", "--threads", "two"],
        ["plan", "demo", "--context", "-5"],
        ["plan", "demo", "--ram", "much"],
        ["plan", "demo", "--vram", "1e300"],
        ["compare", "demo", "--ram", "64,nan"],
        ["compare", "demo", "--price", "1e308"],
        ["plan", "demo", "--ram-bandwidth", "0"],
        ["plan", "demo", "--dtype", "float8"],
        ["bench", "demo", "-t", "1,,2"],
        ["models", "--unknown"],
    ],
)
def test_wrong_arguments_end_with_2_and_one_sentence(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == REFUSED
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert re.fullmatch(r'greenroom: The command was not understood: .+\. "greenroom.* --help" lists .+', line)
    assert main([*arguments, "--json"]) == REFUSED
    assert document(capsys)["error"]["what"] == "The command was not understood"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["plan", "no/such/file.gguf"], "no/such/file.gguf"),
        (["generate", "{text}", "--prompt", "x"], "text.txt"),
        (["generate", "{model}", "--prompt", "x", "--temperature", "-1"], "temperature"),
        (["generate", "{model}", "--prompt", "x" * 600, "--raw", "--context", "512"], "holds 512"),
        (["generate", "{model}", "--prompt", "", "--raw"], "empty"),
        (["plan", "{model}", "--context", "100000"], "100000"),
        (["plan", "{model}", "--isa", "mmx"], "mmx"),
        (["bench", "{model}", "-p", "8000", "-n", "200"], "8200"),
        (["bench", "{model}", "-t", "1,9999"], "9999 threads"),
        (["perplexity", "{model}", "--file", "nothing.txt"], "nothing.txt"),
        (["perplexity", "{model}", "--file", "{binary}"], "not UTF-8"),
        (["perplexity", "{model}", "--file", "{folder}"], "cannot be read"),
        (["perplexity", "{model}", "--file", "{text}", "--window", "8", "--stride", "9"], "stride"),
    ],
)
def test_bad_input_ends_with_2_and_one_sentence(
    arguments: list[str], complaint: str, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("Some text.")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    places = {"model": tiny_model, "text": tmp_path / "text.txt", "binary": tmp_path / "binary", "folder": tmp_path}
    arguments = [argument.format(**places) for argument in arguments]
    assert main(arguments) == REFUSED
    shown = capsys.readouterr()
    assert shown.out == ""
    assert complaint in shown.err
    assert len(shown.err.splitlines()) == 1
    assert shown.err.startswith("greenroom: ")
    assert main([*arguments, "--json"]) == REFUSED
    assert {"what", "why", "remedy"} == document(capsys)["error"].keys()


def test_a_plan_that_does_not_fit_is_explained_and_can_be_forced(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = engine.plan

    def tight(*arguments: Any, **wishes: Any) -> Any:
        sums = ["experts 3 GB + KV cache 1 GB = 4 GB"]
        return replace(real(*arguments, **wishes), mode="tight", label="Tight: needs 3 GB more", explanation=sums)

    monkeypatch.setattr(engine, "plan", tight)
    assert main(answer(tiny_model)) == REFUSED
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "experts 3 GB + KV cache 1 GB = 4 GB" in shown.err
    assert "Tight: needs 3 GB more" in shown.err
    assert "--force" in shown.err
    assert main(answer(tiny_model, "--force")) == DONE


# --- the terminal --------------------------------------------------------------------------------------------------


def test_help_names_the_verbs_that_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == DONE
    shown = capsys.readouterr().out
    verbs = "probe plan compare recommend generate bench perplexity models download"
    assert verbs == " ".join(VERBS)
    assert all(re.search(rf"^ +{verb}\b", shown, re.MULTILINE) for verb in VERBS)
    assert not re.search(r"^ +serve\b", shown, re.MULTILINE)
    assert main(["--version"]) == DONE
    assert engine.__version__ in capsys.readouterr().out


def test_importing_the_command_line_is_light() -> None:
    heavy = "('torch', 'PySide6', 'numpy', 'tokenizers', 'gguf', 'transformers')"
    code = f"import sys, engine.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("encoding", ["ascii", "cp437"])
def test_a_terminal_without_utf8_still_gets_an_answer(tiny_model: Path, encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    running = process("generate", str(tiny_model), "--prompt", "Привет", "--max-tokens", "40", env=environment)
    out, err = running.communicate(timeout=60)
    assert running.returncode == DONE, err
    assert out.decode(encoding)
    assert b"tok/s" in err


def test_what_a_library_prints_does_not_reach_stdout(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = engine.open_checkpoint

    def talkative(path: Any) -> Any:
        print("Loading!")  # noqa: T201
        return real(path)

    monkeypatch.setattr(engine, "open_checkpoint", talkative)
    assert main(["plan", str(tiny_model), "--json"]) == DONE
    shown = capsys.readouterr()
    assert json.loads(shown.out)["mode"]
    assert "Loading!" in shown.err


def test_progress_is_drawn_for_a_terminal_only_and_leaves_nothing_behind(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen, file = Tty(), io.StringIO()
    for stream in (screen, file):
        monkeypatch.setattr(sys, "stderr", stream)
        assert main(answer(tiny_model)) == DONE
    assert "\r" not in file.getvalue()
    assert "100%" in screen.getvalue()
    *drawn, last = screen.getvalue().split("\r")
    assert drawn[-1].strip() == ""
    assert "tok/s" in last


def test_a_process_without_stdout_and_stderr_does_not_fail(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under pythonw on Windows."""
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["plan", "nothing.gguf"]) == REFUSED
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["plan", str(tiny_model)]) == INTERRUPTED


def test_an_unwritable_log_folder_is_no_reason_to_fail(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("GREENROOM_DATA", str(tmp_path / "file"))
    assert main(["probe", "--json"]) == DONE
    assert document(capsys)["cpu"]
