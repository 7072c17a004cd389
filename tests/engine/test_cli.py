from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import answer, document, process

import engine
from engine.cli import DONE, INTERRUPTED, REFUSED, VERBS, main
from engine.folders import log_folder
from engine.hardware import calibrate
from engine.hardware.report import Calibration, HardwareReport
from engine.placement.plan import Prediction, Range
from engine.runtime.engine import Engine
from engine.runtime.events import Message, SamplingParams

pytestmark = pytest.mark.usefixtures("data_folder", "_close_log", "_interruptible")


@pytest.fixture(autouse=True)
def measured_machines(monkeypatch: pytest.MonkeyPatch) -> list[HardwareReport]:
    """Plans measure the RAM, which takes a while: not here. The list of machines that would have been."""
    asked: list[HardwareReport] = []

    def measure(report: HardwareReport, known: Calibration | None = None) -> Calibration:
        asked.append(report)
        return Calibration({"1": 20.0})

    monkeypatch.setattr(calibrate, "measure_quickly", measure)
    return asked


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """`main` takes Ctrl-C for the end of the process."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.fixture
def _close_log() -> Iterator[None]:
    yield
    for handler in list(logging.getLogger().handlers):
        if handler.name == "greenroom log file":
            logging.getLogger().removeHandler(handler)
            handler.close()


# --- answers -------------------------------------------------------------------------------------------------------


def test_generate_prints_the_answer_and_the_figures_apart(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(answer(tiny_model, "--json")) == DONE
    told = document(capsys)
    assert main(answer(tiny_model)) == DONE
    shown = capsys.readouterr()
    assert shown.out == told["text"] + "\n"
    guesses, reading = r"(\d+ of \d+ guesses right · )?", r"first token \d+\.\d s · prompt \d+ tok/s"
    line = rf"\d+\.\d tok/s · 8 tokens · {guesses}{reading} · .+ · stopped: token limit\n"
    # Only where they do, which nobody can promise of the machine that tests.
    busy = r"(Other programs used \d+% of the CPU meanwhile: .+\n)?"
    assert re.fullmatch(rf"{busy}{line}Predicted: about .+ tok/s \(.+\), prompt about .+\.\n", shown.err)


def test_generate_says_what_did_not_go_as_planned(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_device = answer(tiny_model, "--device", "sim:fail=capture")
    assert main(on_device) == DONE
    assert "Note: Steps are launched one by one, graphs cannot be captured" in capsys.readouterr().err
    assert main([*on_device, "--json"]) == DONE
    status = document(capsys)["status"]
    assert status["path"] == "all_gpu"
    assert len(status["notes"]) == 1
    assert main(answer(tiny_model)) == DONE
    assert "Note:" not in capsys.readouterr().err


def test_generate_json_has_the_documented_fields(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(answer(tiny_model, "--json", "--system", "Be brief.")) == DONE
    told = document(capsys)
    assert {"text", "thought", "token_ids", "stop_reason", "stats"} <= told.keys()
    assert told["stop_reason"] == "length"
    assert told["prediction"]["decode_tps"]["likely"] > 0
    assert len(told["token_ids"]) == told["stats"]["completion_tokens"] == 8
    assert told["stats"]["decode_tps"] > 0
    assert {"reused_tokens", "first_token_s", "prefill_tps"} <= told["stats"].keys()
    with contextlib.closing(engine.open_checkpoint(tiny_model)) as checkpoint:
        text = checkpoint.chat_template().render([Message("system", "Be brief."), Message("user", "Hello")])
        assert told["stats"]["prompt_tokens"] == len(checkpoint.tokenizer().encode(text, special=False))


def test_generate_guesses_ahead_unless_told_not_to(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same answer either way."""
    told = []
    for extra in ((), ("--no-lookup",)):
        assert main([*answer(tiny_model, "--json", "--max-tokens", "200"), *extra]) == DONE
        told.append(document(capsys))
    guessing, plain = told
    assert guessing["token_ids"] == plain["token_ids"]
    assert guessing["stats"]["drafted_tokens"] >= guessing["stats"]["accepted_tokens"] >= 0
    assert plain["stats"]["drafted_tokens"] == plain["stats"]["accepted_tokens"] == 0


def test_generate_raw_continues_the_text_itself(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(answer(tiny_model, "--json", "--raw")) == DONE
    assert document(capsys)["stats"]["prompt_tokens"] == len("Hello")
    assert main(answer(tiny_model, "--raw", "--system", "x")) == REFUSED
    assert main(answer(tiny_model, "--raw", "--thinking", "off")) == REFUSED


def test_a_wish_about_thinking_that_the_model_cannot_follow_is_refused(
    tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(answer(tiny_model, "--thinking", "off")) == REFUSED
    assert 'cannot be told to think "off"' in capsys.readouterr().err


def test_sampling_options_reach_the_sampler(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = Engine.generate

    def generate(self: Engine, prompt: Any, params: SamplingParams, **more: Any) -> Any:
        seen.append(params)
        return real(self, prompt, params, **more)

    monkeypatch.setattr(Engine, "generate", generate)
    options = (
        "--top-k 5 --top-p 0.5 --min-p 0.1 --repetition-penalty 1.1 --presence-penalty 0.2 --frequency-penalty 0.3"
    )
    assert main(answer(tiny_model, *options.split(), "--seed", "4", "--stop", "a", "--stop", "b", "--json")) == DONE
    assert seen == [
        SamplingParams(
            max_tokens=8,
            temperature=0.0,
            top_k=5,
            top_p=0.5,
            min_p=0.1,
            repetition_penalty=1.1,
            presence_penalty=0.2,
            frequency_penalty=0.3,
            seed=4,
            stop=("a", "b"),
        )
    ]
    assert main(["generate", str(tiny_model), "--prompt", "x", "--max-tokens", "1", "--json"]) == DONE
    assert seen[1] == SamplingParams(max_tokens=1)
    assert main(["generate", str(tiny_model), "--prompt", "x", "--json"]) == DONE
    assert seen[2] == SamplingParams(max_tokens=1024)


def test_wishes_reach_the_plan(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--threads 1 --device cpu --dtype float32 --kv-type f32 --context 64 --isa portable"
    assert main(["plan", str(tiny_model), *options.split(), "--json"]) == DONE
    told = document(capsys)
    wished = {"threads": 1, "device": "cpu", "dense_dtype": "float32", "kv_type": "f32", "context": 64}
    assert {name: told[name] for name in wished} == wished
    assert told["isa"] == "portable"


def test_plan_json_has_the_documented_fields(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(tiny_model), "--json"]) == DONE
    told = document(capsys)
    assert {"mode", "label", "bytes", "prediction", "explanation", "alternatives"} <= told.keys()
    assert {"ram", "vram", "ram_total", "vram_total"} <= told["bytes"].keys()
    assert {"decode_tps", "prefill_tps", "bottleneck"} <= told["prediction"].keys()
    assert {"low", "likely", "high"} == told["prediction"]["decode_tps"].keys()


def test_plan_in_words_shows_label_and_arithmetic(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Free RAM changes from one look to the next.
    report = engine.probe()
    monkeypatch.setattr(engine, "probe", lambda **_: report)
    assert main(["plan", str(tiny_model), "--json"]) == DONE
    told = document(capsys)
    assert main(["plan", str(tiny_model)]) == DONE
    shown = capsys.readouterr().out
    assert told["label"] in shown.splitlines()[1]
    assert all(line in shown for line in told["explanation"])


@pytest.mark.parametrize(
    ("likely", "full", "shown"),
    [
        (92.4, 25.2, "Answers at about 92 tok/s (60 to 120), 25 with all 8192 tokens: limited by RAM."),
        (92.4, 90.0, "Answers at about 92 tok/s (60 to 120): limited by RAM."),
        (2.44, None, "Answers at about 2.4 tok/s (60 to 120): limited by RAM."),
    ],
)
def test_predicted_speeds_are_written_without_more_digits_than_are_known(
    likely: float,
    full: float | None,
    shown: str,
    tiny_model: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: Any,
) -> None:
    said = Prediction(Range(60.3, likely, 121), Range(1204, 2649, 4218), "limited by RAM", full)
    real = engine.plan
    monkeypatch.setattr(
        engine, "plan", lambda *a, **k: replace(real(*a, **k), prediction=said, context=8192, mode="cpu")
    )
    assert main(["plan", str(tiny_model)]) == DONE
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert shown in lines
    assert "Reads prompts at about 2600 tok/s (1200 to 4200)." in lines


def test_a_plan_measures_the_ram_once_and_not_for_another_pc(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], measured_machines: list[HardwareReport]
) -> None:
    for options in (["--ram-bandwidth", "60"], ["--cpu", "Ryzen 9 7950X"]):
        assert main(["plan", str(tiny_model), *options]) == DONE
    assert main(["probe"]) == DONE
    assert measured_machines == []
    for _ in range(2):
        assert main(["plan", str(tiny_model)]) == DONE
    assert len(measured_machines) == 1
    capsys.readouterr()
    assert main(["probe", "--json"]) == DONE
    assert document(capsys)["memory"]["bandwidth_gbs"] == {"1": 20.0}


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


@pytest.mark.parametrize("more", [[], ["--raw"]])
def test_an_empty_prompt_is_refused(more: list[str], tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(tiny_model), "--prompt", " \n", *more]) == REFUSED
    assert "the prompt is empty" in capsys.readouterr().err


def test_plan_for_another_pc(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--ram", "64", "--cpu", "Ryzen 9 7950X", "--ram-bandwidth", "60", "--vram", "0"]
    assert main(["plan", str(tiny_model), *options, "--json"]) == DONE
    assert document(capsys)["mode"] == "cpu"
    assert main(["plan", str(tiny_model), "--cpu", "Abacus 3000"]) == REFUSED
    assert "Abacus 3000" in capsys.readouterr().err


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


def test_what_is_said_stays_out_of_the_log(tiny_model: Path) -> None:
    secret = "my password is xyzzy"
    asked = [
        "generate",
        str(tiny_model),
        "--system",
        secret,
        "--stop",
        secret,
        "--prompt",
        secret,
        "--temperature",
        "0",
    ]
    assert main([*asked, "--max-tokens", "4"]) == DONE
    assert main([*asked, "--context", "8"]) == REFUSED
    assert main([*asked, "--top-p", "7"]) == REFUSED
    log = (log_folder() / "greenroom.log").read_text(encoding="utf-8")
    assert "refused" in log
    assert "xyzzy" not in log


def test_the_demo_model_knows_the_capital_of_france(demo_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    question = ["--prompt", "What is the capital of France?", "--temperature", "0", "--max-tokens", "40"]
    assert main(["generate", str(demo_model), *question, "--json"]) == DONE
    told = document(capsys)
    assert "Paris" in told["text"]
    assert told["stop_reason"] == "end"
    assert told["stats"]["decode_tps"] > 0


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
