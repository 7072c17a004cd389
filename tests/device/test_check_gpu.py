"""The script for machines with a GPU runs to its end on the simulated accelerator."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_the_script_checks_every_plan(tmp_path: Path) -> None:
    script, out = Path(__file__).with_name("check_gpu.py"), tmp_path / "result.json"
    command = [sys.executable, script, "--device", "sim", "--tokens", "4", "--out", out]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(out.read_text())
    assert document["copies"] == "right, page-locked"
    assert [row["mode"] for row in document["plans"]] == ["cpu", "hybrid", "hybrid", "all_gpu"]
    for row in document["plans"]:
        assert row["error"] < 0.05
        assert row["decode_tps"] > 0
        assert row["notes"] == []
    assert "all on the GPU" in done.stdout
