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
    "bailing_moe_v2": (
        (r"\.embed_tokens\.", ".word_embeddings."),
        (r"\.self_attn\.", ".attention."),
        (r"\.o_proj\.", ".dense."),
        (r"\.q_norm\.", ".query_layernorm."),
        (r"\.k_norm\.", ".key_layernorm."),
        (r"\.e_score_correction_bias", ".expert_bias"),
    ),
    "granitemoe": (
        (r"\.router\.", ".router.layer."),
        (r"\.experts\.gate_up_proj$", ".input_linear.weight"),
        (r"\.experts\.down_proj$", ".output_linear.weight"),
    ),
}
#: Families that transformers lacks: (the one that computes the same, what its config calls differently).
LENT = {
    "bailing_moe_v2": (
        "glm4_moe",
        {
            "num_experts": "n_routed_experts",
            "num_shared_experts": "n_shared_experts",
            "score_function": "scoring_func",
        },
    )
}
#: Files with a tensor per expert: their names of gate, up and down.
PER_EXPERT = {"phimoe": ("w1", "w3", "w2"), "lfm2_moe": ("w1", "w3", "w2")}
#: How far the sum of the shapes may be from the published figure, which is rounded.
TOLERANCE = 0.03


def shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    found = published_shapes(config)
    for pattern, replacement in RENAMED.get(config["model_type"], ()):
        found = {re.sub(pattern, replacement, name): shape for name, shape in found.items()}
    if config["model_type"] == "bailing_moe_v2":
        found = fused(found)
    if config["model_type"] == "gpt_oss":
        # Multiplied from the other side in memory; MXFP4 files hold rows of inputs.
        found = {
            name: (shape[0], shape[2], shape[1]) if name.endswith("_proj") else shape for name, shape in found.items()
        }
    return dict(per_expert(found, PER_EXPERT.get(config["model_type"])))


def published_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Of the language model alone where a model also sees."""
    kind = config["model_type"]
    if kind in LENT:
        kind, keys = LENT[kind]
        config = {keys.get(key, key): value for key, value in config.items()}
    given = {key: value for key, value in config.items() if key != "model_type"}
    made = transformers.AutoConfig.for_model(kind, **given)
    classes = transformers.AutoModelForImageTextToText if "text_config" in config else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = classes.from_config(made)
    found = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if config.get("tie_word_embeddings"):
        found = {name: shape for name, shape in found.items() if not name.endswith("lm_head.weight")}
    if "text_config" not in config:
        return found
    return {name: shape for name, shape in found.items() if "language_model." in name or name == "lm_head.weight"}


def fused(tensors: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """With q, k and v above each other in one tensor."""
    rows: dict[str, int] = defaultdict(int)
    for name, shape in tensors.items():
        stem, dot, part = name.partition(".attention.")
        if part in ("q_proj.weight", "k_proj.weight", "v_proj.weight"):
            rows[f"{stem}{dot}query_key_value.weight"] += shape[0]
    kept = {name: shape for name, shape in tensors.items() if not re.search(r"\.attention\.[qkv]_proj\.", name)}
    width = next(shape[-1] for name, shape in tensors.items() if name.endswith("q_proj.weight"))
    return kept | {name: (count, width) for name, count in rows.items()}


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
