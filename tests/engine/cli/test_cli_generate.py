"""`greenroom generate`."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import answer, document

import engine
from engine.cli.main import DONE, REFUSED, main
from engine.folders import log_folder
from engine.runtime.engine import Engine
from engine.runtime.events import Message, SamplingParams


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


@pytest.mark.parametrize("more", [[], ["--raw"]])
def test_an_empty_prompt_is_refused(more: list[str], tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(tiny_model), "--prompt", " \n", *more]) == REFUSED
    assert "the prompt is empty" in capsys.readouterr().err


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
