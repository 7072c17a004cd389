"""What holds for the headers of every family, in both forms: all tensors found, wrong headers told in a sentence."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from header_only import HeaderOnly
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.checkpoints.opening import open_checkpoint
from engine.errors import GreenroomError
from engine.models import model_spec
from engine.models.families import FAMILIES
from engine.models.spec import ModelSpec, TemperatureSpec

LLAMA_CPP = Path(__file__).parents[1] / "llama_cpp"
CASES = [(family.name, form) for family in FAMILIES for form in ("safetensors", "gguf")]

#: Tensors that answering needs no part of: pictures, and layers that predict a further token.
LEFT_OUT = {
    ("llama4", "safetensors"): r"vision_model|multi_modal_projector",
    ("glm4_moe", "safetensors"): r"model\.layers\.3\.",
    ("glm4_moe", "gguf"): r"blk\.3\.",
}

Headers = Callable[[str, str], HeaderOnly]


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Headers:
    """headers(family, form): a tiny model's header, in a copy of its own."""
    made: dict[tuple[str, str], Any] = {}

    def copy(family: str, form: str) -> HeaderOnly:
        if (family, form) not in made:
            path = LLAMA_CPP / f"{family}.gguf"
            if form == "safetensors":
                import tiny_families

                path = tiny_families.save(tiny_families.build(family), tmp_path_factory.mktemp("header") / family)
            made[family, form] = open_checkpoint(path)
        real = made[family, form]
        shapes = {name: tensor.shape for name, tensor in real.tensors.items()}
        factors = [name for name in shapes if name.startswith("rope_f")]
        values = {name: real.read_float32(name) for name in factors}
        return HeaderOnly(form, real.architecture, real.config, shapes, values)

    return copy


def changed(header: HeaderOnly, name: str, shape: tuple[int, ...] | None) -> HeaderOnly:
    """The header with a tensor of another shape, or without it."""
    shapes = {key: tensor.shape for key, tensor in header.tensors.items() if key != name or shape is not None}
    if shape is not None:
        shapes[name] = shape
    return HeaderOnly(header.form, header.architecture, header.config, shapes, header._values)


def one_of_each_kind(names: list[str]) -> list[str]:
    """The last tensor of each name that differs in more than its numbers."""
    return list({re.sub(r"\d+", "#", name): name for name in names}.values())


@pytest.mark.parametrize(("family", "form"), CASES)
def test_every_tensor_is_used(headers: Headers, family: str, form: str) -> None:
    header = headers(family, form)
    spec = model_spec(header)
    assert spec.family == family
    unused = set(header.tensors) - {ref.name for ref in spec.weights.values()} - set(header._values)
    pattern = LEFT_OUT.get((family, form))
    assert [name for name in sorted(unused) if pattern is None or not re.match(pattern, name)] == []
    assert bool(unused) == (pattern is not None)


@pytest.mark.parametrize(("family", "form"), CASES)
def test_missing_and_misshapen_tensors(headers: Headers, family: str, form: str) -> None:
    header = headers(family, form)
    used = sorted({ref.name for ref in model_spec(header).weights.values()})
    for name in one_of_each_kind(used):
        shape = header.tensors[name].shape
        with pytest.raises(GreenroomError, match=r"has shape|rows"):
            model_spec(changed(header, name, (*shape[:-1], shape[-1] + 1)))
        # Without a tensor the file may also say something else, not wrong: a tied head, no biases, a dense layer.
        with contextlib.suppress(GreenroomError):
            assert name not in {ref.name for ref in model_spec(changed(header, name, None)).weights.values()}


@pytest.mark.parametrize(("form", "key", "value"), [("safetensors", "scoring_func", "softmax"), ("gguf", "", 1)])
def test_a_router_of_another_kind_is_refused(headers: Headers, form: str, key: str, value: Any) -> None:
    header = headers("glm4_moe", form)
    header.config[key or "glm4moe.expert_gating_func"] = value
    with pytest.raises(GreenroomError, match=f"{key or 'expert_gating_func'}. is {value!r}"):
        model_spec(header)


def test_mixtral_files_with_a_tensor_for_every_expert(headers: Headers) -> None:
    header = headers("mixtral", "gguf")
    new = {name: tensor.shape for name, tensor in header.tensors.items()}
    old: dict[str, tuple[int, ...]] = {}
    for name, shape in new.items():
        single = [name.replace("_exps.", f".{e}.") for e in range(shape[0])] if "_exps." in name else []
        old |= dict.fromkeys(single, shape[1:]) if single else {name: shape}
    weights = model_spec(HeaderOnly("gguf", "llama", header.config, old)).weights
    assert {ref.name for ref in weights.values()} == set(old)
    assert weights["layers.1.moe.experts.5.up"].name == "blk.1.ffn_up.5.weight"


#: What holds where a header leaves a key out, as the makers' own code has it: family, form, ends of the keys that are
#: left out, layer, where in the spec of that layer, value.
UNSAID: list[tuple[str, str, tuple[str, ...], int, str, Any]] = [
    ("gpt_oss", "safetensors", ("layer_types",), 0, "mixer.window", 8),
    ("gpt_oss", "safetensors", ("layer_types",), 1, "mixer.window", None),
    ("gpt_oss", "safetensors", ("rope_parameters",), 0, "mixer.rope.theta", 150000.0),
    ("gpt_oss", "gguf", ("freq_base",), 0, "mixer.rope.theta", 150000.0),
    ("gpt_oss", "gguf", (), 0, "ffn.limit", 7.0),
    ("glm4_moe", "safetensors", ("partial_rotary_factor",), 0, "mixer.rope.dim", 16),
    ("glm4_moe", "safetensors", ("norm_topk_prob",), 1, "ffn.renormalise", True),
    ("bailing_moe2", "safetensors", ("partial_rotary_factor",), 0, "mixer.rope.dim", 8),
    ("gemma4-biased", "safetensors", ("layer_types",), 4, "mixer.window", 8),
    ("gemma4-biased", "safetensors", ("layer_types",), 5, "mixer.window", None),
    ("gemma4", "safetensors", ("rope_parameters",), 0, "mixer.rope.theta", 1e4),
    ("gemma4", "safetensors", ("rope_parameters",), 2, "mixer.rope.theta", 1e6),
    ("gemma4", "gguf", ("freq_base", "freq_base_swa"), 0, "mixer.rope.theta", 1e4),
    ("gemma4", "gguf", ("freq_base", "freq_base_swa"), 1, "mixer.rope.theta", 1e6),
    ("minimax_m2", "safetensors", ("rope_parameters",), 0, "mixer.rope.theta", 5e6),
    ("mixtral", "safetensors", ("rope_parameters",), 0, "mixer.rope.theta", 1e6),
    ("ernie4_5_moe", "safetensors", ("rope_parameters",), 0, "mixer.rope.theta", 5e5),
    ("ernie4_5_moe", "gguf", (), 1, "ffn.renormalise_min", 1e-12),
    ("lfm2_moe", "safetensors", ("rope_parameters",), 1, "mixer.rope.theta", 1e6),
    ("lfm2_moe", "safetensors", (), 1, "ffn.renormalise_eps", 1e-6),
    ("phimoe", "gguf", (), 0, "ffn.jitter", 0.01),
    ("llama4", "safetensors", ("rope_parameters",), 0, "mixer.rope.theta", 5e5),
    ("llama4", "gguf", (), 0, "mixer.chunk", 8192),
    ("llama4", "gguf", (), 0, "mixer.temperature", None),
    ("llama4", "gguf", (), 2, "mixer.chunk", 8192),
    ("llama4", "gguf", (), 3, "mixer.chunk", None),
    ("llama4", "gguf", (), 3, "mixer.rope", None),
    ("llama4", "gguf", (), 3, "mixer.temperature", TemperatureSpec(8192, 0.1)),
    ("llama4", "gguf", (), 0, "mixer.qk_norm", "l2"),
]


@pytest.mark.parametrize(("family", "form", "left_out", "layer", "where", "value"), UNSAID)
def test_what_holds_where_a_header_does_not_say(
    headers: Headers, family: str, form: str, left_out: tuple[str, ...], layer: int, where: str, value: Any
) -> None:
    header = headers(family, form)
    ends = [end if form == "safetensors" else f".{end}" for end in left_out]
    for part in ("", "text_config", "rope_parameters"):
        values = header.config.get(part, {}) if part else header.config
        kept = {key: one for key, one in values.items() if not any(key.endswith(end) for end in ends)}
        header.config = {**header.config, part: kept} if part in header.config else header.config if part else kept
    assert attrgetter(where)(model_spec(header).layers[layer]) == value


def test_the_larger_llama_4_norms_no_queries(headers: Headers) -> None:
    header = headers("llama4", "gguf")
    header.config["llama4.expert_count"] = 128
    shapes = {
        name: (128, *one.shape[1:]) if "_exps" in name or name.endswith("ffn_gate_inp.weight") else one.shape
        for name, one in header.tensors.items()
    }
    spec = model_spec(HeaderOnly("gguf", "llama4", header.config, shapes, header._values))
    assert {(layer.mixer.qk_norm, layer.mixer.norm_after_rope) for layer in spec.layers} == {(None, False)}


def numbers(header: HeaderOnly) -> list[tuple[str, ...]]:
    """Paths of everything the header says of itself, in its nested parts too."""
    found = [(key,) for key, value in header.config.items() if not isinstance(value, dict)]
    for part in ("text_config", "rope_parameters"):
        nested = header.config.get(part)
        found += [(part, key) for key in nested] if isinstance(nested, dict) else []
    return [path for path in found if not path[-1].startswith("tokenizer")]


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 9),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.sampled_from(["rope_type", "full_attention", "0"]), st.integers(), max_size=2),
)


@pytest.mark.parametrize(("family", "form"), CASES)
@settings(max_examples=12)
@given(data=st.data())
def test_no_header_causes_anything_but_a_spec_or_a_clear_error(
    headers: Headers, family: str, form: str, data: st.DataObject
) -> None:
    header = headers(family, form)
    for *part, key in data.draw(st.lists(st.sampled_from(numbers(header)), min_size=1, max_size=3)):
        value = data.draw(JUNK)
        if part:
            nested = header.config[part[0]]
            if isinstance(nested, dict):
                header.config[part[0]] = {**nested, key: value}
        else:
            header.config[key] = value
    with contextlib.suppress(GreenroomError):
        assert isinstance(model_spec(header), ModelSpec)
