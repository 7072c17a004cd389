"""Makes the files in llama_cpp/: tiny models as llama.cpp converts, quantises and computes them.

Files that we write ourselves prove nothing about conventions (rows permuted for RoPE, norms stored as 1 + w), which
would be wrong on both sides. Run by hand, once, with a checkout of llama.cpp and the folder of its built libraries;
its converter needs the package `sentencepiece`, the tests do not:

    python tests/engine/llama_cpp_files.py SOURCE LIBRARIES [name...]

Each name becomes a quantised GGUF file, and an .npz with
  tokens     int32 [T]       what llama.cpp makes of PROMPT
  positions  int32 [P]
  logits     float32 [P, V]  after those tokens, computed by llama.cpp from the same file with its weights turned into
             F32 first, so that its products are not rounded to the 8 bits that its quantised ones use
"""

from __future__ import annotations

import json
import logging
import math
import runpy
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tiny_families
import tokenizers

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent / "llama_cpp"
PROMPT = "In the then-other hand, an anther on thin ether: 3.14 日本 🎉!\n  The end"
#: Around the borders of windows and chunks, which are 8 long, and at the end.
POSITIONS = (0, 1, 7, 8, 9, 16, 17, -1)


@dataclass(frozen=True)
class Recipe:
    """variant: of tiny_families; base: the type of matrices that no pattern of `types` matches.

    trusted: who computes the logits; transformers starts from the weights before quantisation, rounded to f16
    """

    variant: str
    base: str = "q8_0"
    types: dict[str, str] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)
    trusted: str = "llama.cpp"


FOUR_BITS = {"ffn_(gate|up)_exps": "q4_0", "ffn_down_exps": "q4_1"}
FIVE_BITS = {"ffn_(gate|up)_exps": "q5_0", "ffn_down_exps": "q5_1"}
CURVED = {"ffn_.*_exps": "iq4_nl"}
MICRO = {"ffn_.*_exps": "mxfp4"}
#: Super-blocks of 256 need rows of that length.
SUPER_BLOCKS = {
    "token_embd": "q6_K",
    "attn_q": "q4_K",
    "attn_k": "q6_K",
    "attn_v": "q8_0",
    "attn_output": "q5_K",
    "ffn_gate": "q2_K",
    "ffn_up": "q3_K",
    "ffn_down": "iq4_xs",
}
#: Those that are read in wider codes: a codebook's entries, or three values.
CODEBOOKS = {
    "token_embd": "iq3_s",
    "^output.weight": "tq2_0",
    "attn_q": "iq2_xxs",
    "attn_k": "iq1_m",
    "attn_v": "iq2_s",
    "attn_output": "iq3_xxs",
    "ffn_gate_exps": "iq1_s",
    "ffn_up_exps": "iq2_xs",
    "ffn_down_exps": "tq1_0",
}

#: The converter insists on the published length of heads and context.
HUNYUAN = {
    "hidden_size": 256,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 128,
    "num_hidden_layers": 1,
    "num_experts": 4,
    "moe_intermediate_size": [32],
    "num_shared_expert": [1],
    "moe_topk": [2],
    "max_position_embeddings": 32768,
}

#: llama.cpp rounds the ends of YaRN's ramp to whole dimensions, gpt-oss does not; with this base they are 0 and 2.
WHOLE_RAMP = {
    "rope_type": "yarn",
    "rope_theta": math.exp(16 * math.log(64 / math.tau) / 2 / (2 - 1e-6)),
    "factor": 8.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 64,
    "truncate": False,
}
THREE_LAYERS = {
    "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}

RECIPES = {
    "llama": Recipe("llama", types={"ffn": "q5_1"}),
    "llama-biased": Recipe("llama-biased"),
    "llama-llama3": Recipe("llama-llama3", types={"attn": "q5_0"}),
    "llama-yarn": Recipe("llama-yarn", "q4_1"),
    "llama-super_blocks": Recipe(
        "llama",
        types=SUPER_BLOCKS,
        changes={"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1, "num_key_value_heads": 1},
    ),
    "llama-f16": Recipe("llama", "f16", changes={"num_hidden_layers": 1}),
    "llama-bf16": Recipe("llama", "bf16", changes={"num_hidden_layers": 1}),
    "mistral": Recipe("mistral", types={"ffn": "q4_0"}),
    "mixtral": Recipe("mixtral", types=FOUR_BITS),
    "qwen2": Recipe("qwen2", types={"ffn": "q4_1"}),
    "qwen2_moe": Recipe("qwen2_moe", types=FIVE_BITS, changes={"mlp_only_layers": []}),
    "qwen3": Recipe("qwen3", types={"ffn_(gate|up)": "nvfp4"}),
    "qwen3_moe": Recipe("qwen3_moe", types=FOUR_BITS),
    "qwen3_moe-codebooks": Recipe(
        "qwen3_moe",
        types=CODEBOOKS,
        changes={
            "hidden_size": 256,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 64,
            "num_hidden_layers": 1,
            "num_experts": 3,
            "moe_intermediate_size": 256,
        },
    ),
    # llama.cpp computes OLMoE and dots only with as many heads of keys as of queries, as they were published.
    "olmoe": Recipe("olmoe", types=CURVED, changes={"num_key_value_heads": 4}),
    "olmoe-clipped": Recipe("olmoe-clipped", types=FIVE_BITS, changes={"num_key_value_heads": 4}),
    "glm4_moe": Recipe("glm4_moe", "q5_0", types=FOUR_BITS),
    "glm4_moe-qk_norm": Recipe("glm4_moe-qk_norm", "q4_1", types=CURVED),
    "minimax_m2": Recipe("minimax_m2", types=FIVE_BITS),
    "gpt_oss": Recipe("gpt_oss", types=MICRO, changes={"rope_parameters": WHOLE_RAMP}),
    "ernie4_5_moe": Recipe("ernie4_5_moe", types=FOUR_BITS),
    "hunyuan_v1_moe": Recipe("hunyuan_v1_moe", "q4_0", types=CURVED, changes=HUNYUAN),
    "granitemoe": Recipe("granitemoe", types=FIVE_BITS),
    "granitemoeshared": Recipe("granitemoeshared", types=FOUR_BITS),
    # llama.cpp weighs Phi's two experts by their softmax, the model by two of its own (sparsemixer).
    "phimoe": Recipe("phimoe", "f16", changes={"num_hidden_layers": 1, "num_local_experts": 4}, trusted="transformers"),
    "dots1": Recipe("dots1", types=MICRO, changes={"num_key_value_heads": 4}),
    "bailing_moe2": Recipe("bailing_moe2", types=FOUR_BITS),
    "llama4": Recipe("llama4", types=FOUR_BITS),
    "lfm2_moe": Recipe("lfm2_moe", types=FIVE_BITS),
    "gemma4": Recipe("gemma4", "q5_0", types=FOUR_BITS, changes=THREE_LAYERS),
    "gemma4-dense": Recipe(
        "gemma4-dense", types={"ffn": "q5_0"}, changes={**THREE_LAYERS, "num_experts": None, "top_k_experts": None}
    ),
}


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    source, libraries = map(Path, sys.argv[1:3])
    sys.path[:0] = [str(source), str(source / "gguf-py")]
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        oracle = build_oracle(source, libraries, Path(scratch))
        for name in sys.argv[3:] or RECIPES:
            make(name, source, oracle, Path(scratch) / name)


def build_oracle(source: Path, libraries: Path, scratch: Path) -> Path:
    includes = [f"-I{source / folder}" for folder in ("include", "ggml/include")]
    links = [f"-L{libraries}", f"-Wl,-rpath,{libraries.resolve()}", "-lllama", "-lggml", "-lggml-base"]
    code = Path(__file__).with_name("llama_cpp_oracle.cpp")
    run("g++", "-std=c++17", *includes, code, "-o", scratch / "oracle", *links)
    return scratch / "oracle"


def make(name: str, source: Path, oracle: Path, scratch: Path) -> None:
    recipe = RECIPES[name]
    scratch.mkdir()
    exact, again, final = scratch / "exact.gguf", scratch / "again.gguf", FOLDER / f"{name}.gguf"
    model = tiny_families.build(recipe.variant, **recipe.changes)
    if recipe.trusted == "transformers":
        model = model.half().float()
    save(model, recipe.variant, scratch / "model")
    convert(scratch / "model", exact, source)
    run(oracle, "quantize", exact, final, recipe.base, *(f"{at}={kind}" for at, kind in recipe.types.items()))
    run(oracle, "quantize", final, again, "f32")
    results = run(oracle, "logits", again, given=PROMPT.encode())
    count, vocab = np.frombuffer(results, np.int32, 2)
    tokens = np.frombuffer(results, np.int32, count, offset=8)
    logits = np.frombuffer(results, np.float32, offset=8 + 4 * count).reshape(count, vocab)
    if recipe.trusted == "transformers":
        logits = tiny_families.logits(model, tokens.astype(np.int64))
    positions = np.arange(count, dtype=np.int32)[list(POSITIONS)]
    np.savez_compressed(FOLDER / f"{name}.npz", tokens=tokens, positions=positions, logits=logits[positions])
    log.info("%s: %s", name, f"{final.stat().st_size:,} bytes, {count} tokens, logits of {logits.std():.2f}")


def save(model: Any, variant: str, folder: Path) -> None:
    """The model as its publisher would have written it."""
    tiny_families.save(model, folder)
    config = json.loads((folder / "config.json").read_text())
    if variant == "phimoe":
        config["architectures"] = ["PhiMoEForCausalLM"]
        (folder / "config.json").write_text(json.dumps(config))
    if variant in ("phimoe", "ernie4_5_moe"):
        save_sentencepiece(folder)
    if variant.startswith("gemma"):
        save_gemma_tokenizer(folder)


def save_sentencepiece(folder: Path) -> None:
    """A tokenizer.model in place of tokenizer.json, as these families publish."""
    import sentencepiece

    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the hand and then on the other hand, the ant in the thin ether"] * 4),
        model_prefix=str(folder / "tokenizer"),
        model_type="bpe",
        vocab_size=tiny_families.VOCAB,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )


def save_gemma_tokenizer(folder: Path) -> None:
    """Gemma's kind instead: letters as they are, spaces as "▁", other characters byte by byte."""
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    special = ["<pad>", settings["eos_token"], settings["bos_token"], "<unk>"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("a", "n"), ("i", "n"), ("\n", "\n")]
    letters = sorted({letter for merge in merges for part in merge for letter in part})
    pieces = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *letters, *("".join(pair) for pair in merges)]
    pieces += [f"<unused{number}>" for number in range(tiny_families.VOCAB - len(pieces))]
    model = tokenizers.models.BPE(
        {piece: number for number, piece in enumerate(pieces)},
        merges,
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = tokenizers.normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Split(" ", "merged_with_previous")
    steps = [tokenizers.decoders.Replace("▁", " "), tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()]
    backend.decoder = tokenizers.decoders.Sequence(steps)
    backend.add_special_tokens(special)
    backend.save(str(folder / "tokenizer.json"))
    settings |= {"pad_token": "<pad>", "unk_token": "<unk>", "add_bos_token": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def convert(folder: Path, target: Path, source: Path) -> None:
    """By llama.cpp's own converter.

    It would tell a tokenizer's rule by what a published vocabulary makes of one text, and for Hunyuan expect tiktoken.
    """
    from conversion import base, hunyuan

    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    hunyuan.HunYuanMoEModel.set_vocab = base.TextModel._set_vocab_gpt2
    kept, sys.argv = sys.argv, ["convert", str(folder), "--outfile", str(target), "--outtype", "f32"]
    try:
        runpy.run_path(str(source / "convert_hf_to_gguf.py"), run_name="__main__")
    finally:
        sys.argv = kept


def run(*command: Any, given: bytes = b"") -> bytes:
    return subprocess.run([str(part) for part in command], input=given, stdout=subprocess.PIPE, check=True).stdout


if __name__ == "__main__":
    main()
