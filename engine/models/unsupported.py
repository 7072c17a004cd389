"""What to say of a model that Greenroom does not compute: its name, and the part that is missing."""

from __future__ import annotations

_LATENT = "its attention keeps compressed keys and values"
_SPARSE = "its attention chooses the tokens it looks at"
_STATE = "layers with a running state take the place of attention"
_SEES = "it is made for images or sound as well as text"

#: Lower-case architecture names, of either file form, with "-" for "_" -> what people call the model,
#: what is missing (may be empty).
_KNOWN: dict[str, tuple[str, str]] = {
    "deepseek-v2": ("DeepSeek-V2", _LATENT),
    "deepseek2": ("DeepSeek-V2, V3 or R1, or Kimi-K2", _LATENT),
    "deepseek-v3": ("DeepSeek-V3 or R1", _LATENT),
    "deepseek-v32": ("DeepSeek-V3.2", _SPARSE),
    "deepseek32": ("DeepSeek-V3.2", _SPARSE),
    "deepseek-v4": ("DeepSeek-V4", "its attention, residual streams and routing are of a kind of their own"),
    "deepseek4": ("DeepSeek-V4", "its attention, residual streams and routing are of a kind of their own"),
    "kimi-k2": ("Kimi-K2", _LATENT),
    "kimi-k25": ("Kimi-K2.5", _LATENT),
    "kimi-k3": ("Kimi-K3", "its experts work in a compressed space and its attention is linear"),
    "kimi-linear": ("Kimi-Linear", _STATE),
    "glm4-moe-lite": ("GLM-4.7-Flash", _LATENT),
    "glm-moe-dsa": ("GLM-5", _SPARSE),
    "glm-dsa": ("GLM-5", _SPARSE),
    "glm5-next": ("GLM-5.3-Flash", _SPARSE),
    "glm4v-moe": ("GLM-4.5V", _SEES),
    "qwen3-next": ("Qwen3-Next", _STATE),
    "qwen3next": ("Qwen3-Next", _STATE),
    "qwen3-5": ("Qwen3.5", _STATE),
    "qwen3-5-moe": ("Qwen3.5 or 3.6 MoE", _STATE),
    "qwen35": ("Qwen3.5", _STATE),
    "qwen35moe": ("Qwen3.5 or 3.6 MoE", _STATE),
    "qwen4-exp": ("Qwen3.8", _STATE),
    "qwen3-vl-moe": ("Qwen3-VL", _SEES),
    "qwen3vlmoe": ("Qwen3-VL", _SEES),
    "minimax": ("MiniMax-01", _STATE),
    "minimax-01": ("MiniMax-01", _STATE),
    "minimax-m3-vl": ("MiniMax-M3", _SPARSE),
    "minimax-m3": ("MiniMax-M3", _SPARSE),
    "mistral4": ("Mistral 4", _LATENT),
    "bailing-moe": ("Ling (first generation)", ""),
    "bailingmoe": ("Ling (first generation)", ""),
    "bailing-hybrid": ("Ling 2.5", _STATE),
    "bailingmoe3": ("Ling 2.5", _STATE),
    "granitemoehybrid": ("Granite 4", _STATE),
    "granitehybrid": ("Granite 4", _STATE),
    "jamba": ("Jamba", _STATE),
    "nemotron-h": ("Nemotron-H or Nemotron 3", _STATE),
    "nemotron-h-moe": ("Nemotron 3", _STATE),
    "falcon-h1": ("Falcon-H1", _STATE),
    "mamba": ("Mamba", _STATE),
    "mamba2": ("Mamba 2", _STATE),
    "hy-v3": ("Hunyuan V3", ""),
    "mimo-v2-flash": ("MiMo-V2-Flash", "its keys and values are of different widths"),
    "mimo2": ("MiMo-V2-Flash", "its keys and values are of different widths"),
    "longcat-flash": ("LongCat-Flash", _LATENT),
    "gemma3": ("Gemma 3", ""),
}
_NO_LANGUAGE_MODELS = {"clip": "a picture encoder", "bert": "a text encoder", "t5": "a translation model"}


def described(architecture: str) -> str:
    """Why a checkpoint of this architecture cannot be used, as the middle of a sentence."""
    plain = architecture.lower().replace("_", "-")
    if plain in _NO_LANGUAGE_MODELS:
        return f"it is {_NO_LANGUAGE_MODELS[plain]}, not a language model that answers"
    if plain not in _KNOWN:
        return f'Greenroom does not know its architecture "{architecture}"'
    name, missing = _KNOWN[plain]
    return f"it is {name}, which Greenroom does not compute yet" + (f": {missing}" if missing else "")
