"""Reading a model's hyperparameters from its header, each one checked before it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.checkpoints.checkpoint import Checkpoint
from engine.errors import GreenroomError
from engine.words import say

#: Hyperparameters that every family names alike, per file form. "{arch}" is GGUF's own prefix.
#: The first key present wins.
SHARED_KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "safetensors": {
        "hidden": ("hidden_size",),
        "vocab": ("vocab_size",),
        "layers": ("num_hidden_layers",),
        "heads": ("num_attention_heads",),
        "kv_heads": ("num_key_value_heads",),
        "head_dim": ("head_dim",),
        "intermediate": ("intermediate_size",),
        "context": ("max_position_embeddings",),
        "norm_eps": ("rms_norm_eps",),
        "activation": ("hidden_act",),
        "sliding_window": ("sliding_window",),
        "attention_bias": ("attention_bias",),
        "layer_types": ("layer_types",),
        "experts": ("num_experts", "num_local_experts", "n_routed_experts"),
        "top_k": ("num_experts_per_tok",),
        "expert_intermediate": ("moe_intermediate_size",),
        "renormalise": ("norm_topk_prob",),
        "scale": ("routed_scaling_factor",),
        "groups": ("n_group",),
        "top_groups": ("topk_group",),
        "score": ("scoring_func", "score_function"),
        "dense_first": ("first_k_dense_replace",),
        "shared_experts": ("n_shared_experts", "num_shared_experts"),
    },
    "gguf": {
        "hidden": ("{arch}.embedding_length",),
        "vocab": ("{arch}.vocab_size",),
        "layers": ("{arch}.block_count",),
        "heads": ("{arch}.attention.head_count",),
        "kv_heads": ("{arch}.attention.head_count_kv",),
        "head_dim": ("{arch}.attention.key_length",),
        "intermediate": ("{arch}.feed_forward_length",),
        "context": ("{arch}.context_length",),
        "norm_eps": ("{arch}.attention.layer_norm_rms_epsilon",),
        "sliding_window": ("{arch}.attention.sliding_window",),
        "experts": ("{arch}.expert_count",),
        "top_k": ("{arch}.expert_used_count",),
        "expert_intermediate": ("{arch}.expert_feed_forward_length",),
        "renormalise": ("{arch}.expert_weights_norm",),
        "scale": ("{arch}.expert_weights_scale",),
        "groups": ("{arch}.expert_group_count",),
        "top_groups": ("{arch}.expert_group_used_count",),
        "score": ("{arch}.expert_gating_func",),
        "dense_first": ("{arch}.leading_dense_block_count",),
        "shared_experts": ("{arch}.expert_shared_count",),
        "next_layers": ("{arch}.nextn_predict_layers",),
        "window_pattern": ("{arch}.attention.sliding_window_pattern",),
    },
}

#: Largest value believed of a header, per hyperparameter. Far above any published model,
#: low enough that a damaged header cannot ask for absurd memory.
LIMITS: Mapping[str, int] = {
    "hidden": 1 << 17,
    "vocab": 1 << 22,
    "layers": 1024,
    "heads": 4096,
    "kv_heads": 4096,
    "head_dim": 4096,
    "intermediate": 1 << 20,
    "context": 1 << 28,
    "sliding_window": 1 << 28,
    "experts": 1 << 14,
    "top_k": 1 << 10,
    "expert_intermediate": 1 << 20,
    "groups": 1 << 10,
    "top_groups": 1 << 10,
    "dense_first": 1024,
    "shared_experts": 1 << 10,
    "next_layers": 1024,
    "rotated": 1,
}

_REQUIRED: Any = object()


class Header:
    """Typed access to a checkpoint's hyperparameters by Greenroom's own names.

    extra_keys: names that only one family has, per file form, as in SHARED_KEYS.
    """

    def __init__(
        self, checkpoint: Checkpoint, extra_keys: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None
    ) -> None:
        self.checkpoint = checkpoint
        #: A multimodal file describes its text model in a part of its own.
        text = checkpoint.config.get("text_config")
        self.config: Mapping[str, Any] = {**checkpoint.config, **(text if isinstance(text, Mapping) else {})}
        form = checkpoint.form
        self._keys = {**SHARED_KEYS[form], **(extra_keys or {}).get(form, {})}

    def fail(self, why: str, remedy: str = "Download the model again, or choose another one.") -> GreenroomError:
        """The error for anything this header gets wrong."""
        return GreenroomError(say("{name} cannot be used", name=self.checkpoint.name), why, remedy)

    def key(self, name: str) -> str:
        """The file's own key for a hyperparameter: the one present, or the usual one."""
        keys = [key.format(arch=self.checkpoint.architecture) for key in self._keys[name]]
        return next((key for key in keys if self.config.get(key) is not None), keys[0])

    def get(self, name: str) -> Any:
        """The raw value, None when the file does not give it."""
        return self.config.get(self.key(name)) if name in self._keys else None

    def integer(self, name: str, default: int | None = _REQUIRED, limit: int | None = None, low: int = 1) -> int:
        """A whole number in low..limit (LIMITS when not given). Without a default it must be present."""
        value = self.get(name)
        if value is None:
            if default is _REQUIRED or default is None:
                raise self.fail(f'its header lacks "{self.key(name)}"')
            value = default
        return self._whole(name, value, low, LIMITS[name] if limit is None else limit)

    def integers(self, name: str, count: int, default: int | None = _REQUIRED, low: int = 0) -> tuple[int, ...]:
        """One whole number in low.. for each of `count` layers, where the file may give one for all."""
        value = self.get(name)
        if not isinstance(value, list):
            return (self.integer(name, default, low=low),) * count
        if len(value) < count:
            raise self.fail(f'its header lists only {len(value)} values of "{self.key(name)}" for {count} layers')
        return tuple(self._whole(name, one, low, LIMITS[name]) for one in value[:count])

    def _whole(self, name: str, value: Any, low: int, limit: int) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= limit:
            raise self.fail(
                f'its header says "{self.key(name)}" is {_shown(value)}, not a whole number from {low} to {limit}'
            )
        return value

    def layer_types(self, allowed: Sequence[str], count: int) -> tuple[str, ...] | None:
        """What config.json calls each layer ("sliding_attention", "full_attention"...); None when it does not say."""
        value = self.get("layer_types")
        if value is None:
            return None
        if not isinstance(value, list) or len(value) < count or not all(one in allowed for one in value[:count]):
            raise self.fail(
                f'its header\'s "{self.key("layer_types")}" does not say for {count} layers which of '
                f"{', '.join(allowed)} each is"
            )
        return tuple(value[:count])

    def number(self, name: str, low: float, high: float, default: float = _REQUIRED) -> float:
        """A finite number in low..high."""
        value = self.get(name)
        if value is None and default is not _REQUIRED:
            return default
        return self.bounded(self.key(name), value, low, high)

    def bounded(self, key: str, value: Any, low: float, high: float) -> float:
        """The same check for a value taken from a nested part of the header; key names it in the error."""
        if value is None:
            raise self.fail(f'its header lacks "{key}"')
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.fail(f'its header says "{key}" is {_shown(value)}, not a number from {low:g} to {high:g}')
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(f'its header says "{self.key(name)}" is {_shown(value)}, not true or false')
        return value


def _shown(value: Any) -> str:
    """A header value short enough for a sentence."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
