"""Writes assets/catalogue.json from entries.py: `python assets/catalogue/build.py [DATE]`.

transformers makes each model without memory for its weights ("meta" device), which gives every tensor's name and shape;
they must add up to the published number of weights.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import torch
import transformers

sys.path.insert(0, str(Path(__file__).parent))
from entries import ENTRIES

TARGET = Path(__file__).parent.parent / "catalogue.json"
#: Where transformers' modules are called otherwise than published files: (pattern, replacement).
RENAMED = {
    "phimoe": ((r"\.mlp\.router\.", ".block_sparse_moe.gate."), (r"\.mlp\.", ".block_sparse_moe.")),
    "ernie4_5_moe": ((r"\.gate\.moe_statics\.", ".moe_statics."),),
    "granitemoe": (
        (r"\.router\.", ".router.layer."),
        (r"\.experts\.gate_up_proj$", ".input_linear.weight"),
        (r"\.experts\.down_proj$", ".output_linear.weight"),
    ),
}
#: Files with a tensor per expert: their names of gate, up and down.
PER_EXPERT = {"phimoe": ("w1", "w3", "w2"), "lfm2_moe": ("w1", "w3", "w2")}
#: How far the sum of the shapes may be from the published figure, which is rounded.
TOLERANCE = 0.03


def shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    given = {key: value for key, value in config.items() if key != "model_type"}
    made = transformers.AutoConfig.for_model(config["model_type"], **given)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(made)
    found = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if config.get("tie_word_embeddings"):
        found.pop("lm_head.weight", None)
    for pattern, replacement in RENAMED.get(config["model_type"], ()):
        found = {re.sub(pattern, replacement, name): shape for name, shape in found.items()}
    if config["model_type"] == "gpt_oss":
        # Multiplied from the other side in memory; MXFP4 files hold rows of inputs.
        found = {
            name: (shape[0], shape[2], shape[1]) if name.endswith("_proj") else shape for name, shape in found.items()
        }
    return dict(per_expert(found, PER_EXPERT.get(config["model_type"])))


def per_expert(
    tensors: dict[str, tuple[int, ...]], names: tuple[str, str, str] | None
) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name, shape in tensors.items():
        if names is None or not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            yield name, shape
            continue
        stem = name.rpartition(".")[0]
        gate, up, down = names
        for part in (gate, up) if name.endswith("gate_up_proj") else (down,):
            rows = shape[1] // 2 if part != down else shape[1]
            yield f"{stem}.{{e}}.{part}.weight*{shape[0]}", (rows, shape[2])


def compact(tensors: dict[str, tuple[int, ...]]) -> list[list[Any]]:
    """[name, shape], [name with {i}, shape, layers] or [name with {i} and {e}, shape, layers, experts]."""
    layers: dict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
    for name, shape in tensors.items():
        match = re.search(r"\.(\d+)\.", name)
        if match:
            name = f"{name[: match.start()]}.{{i}}.{name[match.end() :]}"
            layers[name, shape].append(int(match[1]))
        else:
            layers[name, shape] = []
    rows: list[list[Any]] = []
    for (name, shape), numbers in layers.items():
        name, _, experts = name.partition("*")
        row = [name, list(shape), ranges(sorted(numbers))] if numbers else [name, list(shape)]
        rows.append([*row, int(experts)] if experts else row)
    return rows


def ranges(numbers: list[int]) -> str:
    """[0, 1, 2, 5] -> "0-2,5"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def entry(given: dict[str, Any]) -> dict[str, Any]:
    tensors = shapes(given["config"])
    total = sum(torch.Size(shape).numel() * int(name.partition("*")[2] or 1) for name, shape in tensors.items())
    published, active = given["params"]
    if abs(total / published - 1) > TOLERANCE:
        raise SystemExit(
            f"{given['id']}: the shapes add up to {total / 1e9:.2f}B, published are {published / 1e9:.2f}B"
        )
    sizes = given.get("bytes", {})
    downloads = [
        {"repo": repo, "label": label, **({"bytes": sizes[label]} if label in sizes else {})}
        for repo, labels in given["downloads"]
        for label in labels
    ]
    return {
        **{key: given[key] for key in ("id", "name", "author", "licence", "context", "good_at", "tier")},
        "family": given["config"]["model_type"],
        "params_total": total,
        "params_active": round(active),
        "sources": [f"config.json of the model's own repository; files by {given['downloads'][0][0]}"],
        "downloads": downloads,
        "config": given["config"],
        "tensors": compact(tensors),
    }


def main() -> None:
    when = sys.argv[1] if len(sys.argv) > 1 else date.today().isoformat()
    rows = ",\n".join(json.dumps(entry(given), ensure_ascii=False) for given in ENTRIES)
    TARGET.write_text(f'{{"version": 1, "date": "{when}", "models": [\n{rows}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
