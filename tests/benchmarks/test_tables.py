"""The arithmetic behind docs/engineering/performance.md, and that the page has a place for every table."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import compare
import publish
from compare import OURS, Peer, Run, Wish


def document() -> dict[str, Any]:
    runs = [
        Run("Q4", 2, "native", "tg64", OURS, "int4 avx2", 60.0, 40.0, 90.0),
        Run("Q4", 2, "native", "tg64", OURS, "int4 avx2", 80.0, 50.0, 110.0),
        Run("Q4", 2, "native", "tg64", "other", "a", 10.0),
        Run("Q4", 2, "native", "tg64", "other", "a", 90.0),
        Run("Q4", 2, "native", "tg64", "other", "b", 35.0),
        Run("Q4", 2, "native", "tg64", "other", "b", 35.0),
        Run("Q4", 2, "native", "pp512", OURS, "int4 avx2", 400.0, 45.0, 100.0),
    ]
    return {"models": {"Q4": {"active_bytes": 450_000_000}}, "runs": [asdict(run) for run in runs], "note": "noisy"}


def test_medians_best_settings_and_ratios() -> None:
    answer, prompt = compare.cells(document())
    assert answer["tps"] == {OURS: 70.0, "other": 50.0}
    assert answer["ratio"] == {"other": 1.4}
    # 70 tokens of 0.45 GB are 31.5 GB/s of the median 45.
    assert answer["share"][OURS] == pytest.approx(0.7)
    assert (answer["read_gbs"], answer["handover_ns"]) == (45.0, 100.0)
    assert (prompt["share"], prompt["ratio"]) == ({}, {})


def test_the_page_has_one_place_per_table() -> None:
    text = publish.PAGE.read_text(encoding="utf-8")
    for part in publish.PARTS:
        once = publish.fill(text, part, "| new |")
        assert "| new |" in once
        assert publish.fill(once, part, "| newer |").count("| new |") == 0
    with pytest.raises(ValueError, match="0 places"):
        publish.fill(text, "nothing", "")


def test_tables_are_rectangular() -> None:
    point = {"shape": "small", "code": "int4", "tier": "avx2", "threads": 2, "tokens": 4, "us": 80.0, "gops": 5.0}
    row = {"shape": "small", "code": "int4", "tier": "avx2", "threads": 1, "decode_gbs": 30.0, "bandwidth_share": 0.8,
           "read_bandwidth_gbs": 40.0, "prefill_gops": 100.0, "peak_share": None}  # fmt: skip
    load = {"model": "a", "gigabytes": 2.0, "first_token_s": 2.0, "first_token_cpu_s": 3.0, "allowed_s": 2.2,
            "load_gbs_per_core": 2.0, "peak_over_weights": 1.01, "cancel_s": []}  # fmt: skip
    large = {"model": "a", "gigabytes": 17.0, "threads": 2, "load_s": 20.0, "peak_gb": 18.0, "planned_gb": 17.5,
             "decode_tps": 20.0, "decode_gbs": 36.0, "read_gbs": 40.0}  # fmt: skip
    for part, told in (("peers", document()), ("curve", {"curve": [point]}), ("kernels", {"kernels": [row]}),
                       ("cold", {"rows": [load]}), ("full", {"rows": [large]})):  # fmt: skip
        lines = [line for line in publish.WRITERS[part](told).splitlines() if line.startswith("|")]
        assert len(lines) >= 3
        assert len({line.count("|") for line in lines}) == 1, part


def test_both_programs_are_asked_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    ours = {"machine": {}, "model": {}, "results": [
        {"n_prompt": n, "n_gen": 64, "kernel": "k", "decode_tps": 1.0, "prefill_tps": 2.0, "read_bandwidth_gbs": 3.0,
         "handover_ns": None} for n in (1, 512)]}  # fmt: skip
    theirs = [{"n_prompt": 512, "n_gen": 0, "avg_ts": 5.0}, {"n_prompt": 0, "n_gen": 64, "avg_ts": 6.0}]

    def run(command: list[str], **options: Any) -> SimpleNamespace:
        asked.append(command)
        text = json.dumps(ours) if "bench" in command else "warming up\n" + json.dumps(theirs)
        return SimpleNamespace(returncode=0, stdout=text, stderr="")

    monkeypatch.setattr(compare.subprocess, "run", run)
    wish = Wish({"m": "m.gguf"}, [2], ["avx2"], ["tg64", "pp512"], [])
    peer = Peer("other", "avx2", "llama-bench", {"fa": ["-fa", "1"]})
    told = compare.compare(wish, [peer, Peer("fast", "native", "x", {"": []})], 1)
    assert [(r["program"], r["test"], r["tps"]) for r in told["runs"]] == [
        (OURS, "tg64", 1.0),
        (OURS, "pp512", 2.0),
        ("other", "pp512", 5.0),
        ("other", "tg64", 6.0),
    ]
    mine, other = (" ".join(command) for command in asked)
    assert "-p 1,512 -n 64 -t 2 -r 1 --isa avx2" in mine
    assert "-t 2 -r 1 -o json -fa 1 -p 512 -n 64" in other


@pytest.mark.parametrize(("flag", "asked"), [("-d", "-p 0 -n 64 -d 4096"), ("-gp", "-p 0 -n 0 -gp 4096,64")])
def test_answers_behind_a_long_context(monkeypatch: pytest.MonkeyPatch, flag: str, asked: str) -> None:
    commands: list[str] = []
    ours = {"machine": {}, "model": {"active_bytes": 1}, "results": [
        {"n_prompt": 4096, "n_gen": 64, "kernel": "k", "decode_tps": 7.0, "prefill_tps": 9.0, "read_bandwidth_gbs": 3.0,
         "handover_ns": None}]}  # fmt: skip
    before = {"n_prompt": 0, "n_depth": 4096} if flag == "-d" else {"n_prompt": 4096}

    def run(command: list[str], **options: Any) -> SimpleNamespace:
        commands.append(" ".join(command))
        text = json.dumps(ours if "bench" in command else [{**before, "n_gen": 64, "avg_ts": 6.0}])
        return SimpleNamespace(returncode=0, stdout=text, stderr="")

    monkeypatch.setattr(compare.subprocess, "run", run)
    wish = Wish({"m": "m.gguf"}, [2], ["native"], ["tg64@4096"], [])
    told = compare.compare(wish, [Peer("other", "native", "llama-bench", {"": []}, depth=flag)], 1)
    assert [(r["program"], r["test"], r["tps"]) for r in told["runs"]] == [
        (OURS, "tg64@4096", 7.0),
        ("other", "tg64@4096", 6.0),
    ]
    assert "-p 4096 -n 64" in commands[0]
    assert asked in commands[1]
    (row,) = compare.cells(told)
    assert (row["ratio"], row["share"]) == ({"other": 7 / 6}, {})


def test_every_comparison_names_its_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    peers = tmp_path / "programs.json"
    peers.write_text(json.dumps({"models": {"a": "", "b": ""}, "more": {"c": ""}, "peers": []}), encoding="utf-8")
    asked: dict[str, str] = {}

    def run(command: list[str]) -> str:
        out = Path(command[command.index("--out") + 1])
        out.write_text("{}", encoding="utf-8")
        asked[out.stem] = " ".join(command)
        return ""

    monkeypatch.setattr(publish, "_run", run)
    args = SimpleNamespace(peers=peers, keep=tmp_path, rounds=1, threads="1,2", compare="", note="")
    for part in publish.COMPARISONS:
        publish._compare(args, part)
    models = {part: command.partition("--models ")[2].split()[0] for part, command in asked.items()}
    assert models == {"peers": "a,b", "prompts": "a", "depth": "a", "small": "c"}
    assert "--tests tg64@4096,tg64@16384" in asked["depth"]
