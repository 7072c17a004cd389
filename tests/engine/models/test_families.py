"""Headers become specs; wrong headers become one clear sentence."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
from header_only import H, HeaderOnly, V, gguf_config, gguf_shapes, hf_config, hf_shapes
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import GreenroomError
from engine.models import model_spec
from engine.models.families import FAMILIES
from engine.models.spec import MlpSpec, MoeSpec, TensorRef

CASES = {
    "llama": ("llama", hf_shapes(moe=False), "llama", gguf_shapes(moe=False)),
    "qwen2_moe": ("qwen2_moe", hf_shapes(shared=True, bias=True), "qwen2moe", gguf_shapes(shared=True)),
    "qwen3_moe": ("qwen3_moe", hf_shapes(qk_norm=True), "qwen3moe", gguf_shapes(qk_norm=True)),
}


def from_config(family: str, *, shapes: dict[str, Any] | None = None, **changes: Any) -> HeaderOnly:
    """A safetensors checkpoint of the family; dense Llama carries no expert keys."""
    architecture, usual, _, _ = CASES[family]
    config = hf_config(**changes)
    if family == "llama" and "num_experts" not in changes:
        config.pop("num_experts")
    return HeaderOnly("safetensors", architecture, config, usual if shapes is None else shapes)


def from_gguf(family: str, *, shapes: dict[str, Any] | None = None, values: Any = None, **changes: Any) -> HeaderOnly:
    _, _, architecture, usual = CASES[family]
    return HeaderOnly(
        "gguf", architecture, gguf_config(architecture, **changes), usual if shapes is None else shapes, values
    )


def test_a_spec_is_worked_out_once_for_each_checkpoint() -> None:
    checkpoint = from_config("llama")
    assert model_spec(checkpoint) is model_spec(checkpoint)
    assert model_spec(from_config("llama")) is not model_spec(checkpoint)


@pytest.mark.parametrize("family", CASES)
@pytest.mark.parametrize("make", [from_config, from_gguf])
def test_every_family_reads_both_file_forms(family: str, make: Any) -> None:
    checkpoint = make(family)
    spec = model_spec(checkpoint)
    assert (spec.family, spec.hidden, spec.vocab, spec.context_length, len(spec.layers)) == (family, H, V, 512, 2)
    assert spec.norm_eps == 1e-6
    assert spec.is_moe == (family != "llama")
    assert spec.layers[0].mixer.head_dim == 16
    # Every tensor of the file has a role, and every role is a tensor of the file.
    assert {ref.name for ref in spec.weights.values()} == set(checkpoint.tensors)


@pytest.mark.parametrize(
    ("family", "make", "expected"),
    [
        ("llama", from_config, {"qkv_bias": False, "qk_norm": None, "interleaved": False}),
        ("llama", from_gguf, {"qkv_bias": False, "qk_norm": None, "interleaved": True}),
        ("qwen2_moe", from_config, {"qkv_bias": True, "qk_norm": None, "interleaved": False}),
        ("qwen2_moe", from_gguf, {"qkv_bias": False, "qk_norm": None, "interleaved": False}),
        ("qwen3_moe", from_config, {"qkv_bias": False, "qk_norm": "head", "interleaved": False}),
        ("qwen3_moe", from_gguf, {"qkv_bias": False, "qk_norm": "head", "interleaved": False}),
    ],
)
def test_attention_switches(family: str, make: Any, expected: dict[str, Any]) -> None:
    attention = model_spec(make(family)).layers[0].mixer
    assert expected == {
        "qkv_bias": attention.qkv_bias,
        "qk_norm": attention.qk_norm,
        "interleaved": attention.rope.interleaved,
    }


def test_router_switches() -> None:
    def moe(checkpoint: HeaderOnly) -> MoeSpec:
        ffn = model_spec(checkpoint).layers[0].ffn
        assert isinstance(ffn, MoeSpec)
        return ffn

    qwen2 = moe(from_config("qwen2_moe"))
    assert (qwen2.experts, qwen2.top_k, qwen2.intermediate, qwen2.renormalise) == (4, 2, 32, False)
    assert qwen2.shared == MlpSpec(48)
    assert qwen2.shared_gated
    assert moe(from_gguf("qwen2_moe")).shared == MlpSpec(48)
    assert not moe(from_gguf("qwen2_moe")).renormalise
    assert moe(from_gguf("qwen2_moe", expert_weights_norm=True)).renormalise
    assert moe(from_gguf("qwen3_moe")).renormalise
    assert not moe(from_config("qwen3_moe")).renormalise
    assert moe(from_config("qwen3_moe", norm_topk_prob=True)).renormalise
    assert moe(from_config("qwen3_moe")).shared is None
    # transformers also writes the older name.
    assert moe(from_config("qwen3_moe", num_experts=None, num_local_experts=4)).experts == 4


def test_dense_layers_of_a_sparse_model() -> None:
    mixed = {
        **{k: v for k, v in hf_shapes(shared=True, bias=True).items() if ".0.mlp" not in k},
        **{k: v for k, v in hf_shapes(moe=False).items() if ".0.mlp" in k},
    }
    for changes in ({"mlp_only_layers": [0]}, {"decoder_sparse_step": 2}):
        spec = model_spec(from_config("qwen2_moe", shapes=mixed, **changes))
        assert isinstance(spec.layers[0].ffn, MlpSpec)
        assert isinstance(spec.layers[1].ffn, MoeSpec)
    gguf = {
        **{k: v for k, v in gguf_shapes(shared=True).items() if not k.startswith("blk.0.ffn_")},
        **{k: v for k, v in gguf_shapes(moe=False).items() if k.startswith("blk.0.ffn_")},
    }
    spec = model_spec(from_gguf("qwen2_moe", shapes=gguf))
    assert [type(layer.ffn) for layer in spec.layers] == [MlpSpec, MoeSpec]


def test_stacked_experts_are_cut_into_gate_and_up() -> None:
    shapes = {k: v for k, v in hf_shapes(qk_norm=True).items() if ".experts." not in k}
    for i in range(2):
        shapes[f"model.layers.{i}.mlp.experts.gate_up_proj"] = (4, 64, H)
        shapes[f"model.layers.{i}.mlp.experts.down_proj"] = (4, H, 32)
    weights = model_spec(from_config("qwen3_moe", shapes=shapes)).weights
    name = "model.layers.1.mlp.experts."
    assert weights["layers.1.moe.experts.3.gate"] == TensorRef(f"{name}gate_up_proj", 3, (0, 32))
    assert weights["layers.1.moe.experts.3.up"] == TensorRef(f"{name}gate_up_proj", 3, (32, 64))
    assert weights["layers.1.moe.experts.3.down"] == TensorRef(f"{name}down_proj", 3)


def test_gguf_experts_are_slices_of_stacked_tensors() -> None:
    weights = model_spec(from_gguf("qwen3_moe")).weights
    assert weights["layers.0.moe.experts.2.up"] == TensorRef("blk.0.ffn_up_exps.weight", 2)
    fused = gguf_shapes(qk_norm=True)
    for i in range(2):
        del fused[f"blk.{i}.ffn_gate_exps.weight"], fused[f"blk.{i}.ffn_up_exps.weight"]
        fused[f"blk.{i}.ffn_gate_up_exps.weight"] = (4, 64, H)
    weights = model_spec(from_gguf("qwen3_moe", shapes=fused)).weights
    assert weights["layers.0.moe.experts.2.up"] == TensorRef("blk.0.ffn_gate_up_exps.weight", 2, (32, 64))


def test_tied_embeddings() -> None:
    assert "lm_head" in model_spec(from_config("llama")).weights
    assert "lm_head" not in model_spec(from_config("llama", tie_word_embeddings=True)).weights
    assert "lm_head" not in model_spec(from_gguf("llama")).weights
    untied = model_spec(from_gguf("llama", shapes={**gguf_shapes(moe=False), "output.weight": (V, H)}))
    assert untied.weights["lm_head"].name == "output.weight"
    without = {k: v for k, v in hf_shapes(moe=False).items() if k != "lm_head.weight"}
    with pytest.raises(GreenroomError, match=r"lm_head\.weight"):
        model_spec(from_config("llama", shapes=without))


def test_a_sliding_window_is_in_use_where_the_header_says_so() -> None:
    def windows(checkpoint: HeaderOnly) -> list[int | None]:
        return [attention.window for attention in model_spec(checkpoint).attentions]

    mistral = HeaderOnly("safetensors", "mistral", {**hf_config(sliding_window=128)}, hf_shapes(moe=False))
    mistral.config.pop("num_experts")
    assert windows(mistral) == [128, 128]
    assert windows(from_config("qwen3_moe", sliding_window=128)) == [None, None]
    assert windows(from_config("qwen3_moe", sliding_window=128, use_sliding_window=True)) == [128, 128]
    assert windows(from_config("qwen2_moe", sliding_window=128)) == [None, None]
    assert windows(from_config("qwen2_moe", sliding_window=128, use_sliding_window=True)) == [128, None]
    types = ["full_attention", "sliding_attention"]
    both = {"sliding_window": 128, "use_sliding_window": True, "layer_types": types}
    assert windows(from_config("qwen2_moe", **both)) == [None, 128]
    with pytest.raises(GreenroomError, match="layer_types"):
        windows(from_config("qwen2_moe", **{**both, "layer_types": ["full_attention"]}))


def test_unknown_architecture_is_named_with_the_known_families() -> None:
    with pytest.raises(GreenroomError) as caught:
        model_spec(HeaderOnly("gguf", "mamba9", {}, {}))
    assert '"mamba9"' in caught.value.why
    assert all(family.title in caught.value.remedy for family in FAMILIES)


@pytest.mark.parametrize(
    ("form", "architecture", "said"),
    [
        ("safetensors", "deepseek_v4", "DeepSeek-V4"),
        ("safetensors", "deepseek_v3", "DeepSeek-V3 or R1"),
        ("gguf", "deepseek2", "Kimi-K2"),
        ("safetensors", "kimi_k3", "Kimi-K3"),
        ("safetensors", "qwen3_next", "Qwen3-Next, which Greenroom does not compute yet: layers with a running state"),
        ("gguf", "qwen35moe", "Qwen3.5 or 3.6 MoE"),
        ("safetensors", "granitemoehybrid", "Granite 4"),
        ("gguf", "nemotron_h_moe", "Nemotron 3"),
        ("safetensors", "minimax", "MiniMax-01"),
        ("gguf", "clip", "it is a picture encoder"),
    ],
)
def test_a_family_of_another_kind_is_called_by_its_name(form: str, architecture: str, said: str) -> None:
    with pytest.raises(GreenroomError) as caught:
        model_spec(HeaderOnly(form, architecture, {}, {}))
    assert said in caught.value.why
    assert '"' not in caught.value.why


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": 2**60}, "num_hidden_layers"),
        ({"num_attention_heads": 3.5}, "num_attention_heads"),
        ({"num_key_value_heads": 3}, "3 key-value heads"),
        ({"num_attention_heads": 5, "num_key_value_heads": 5}, "5 heads"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"max_position_embeddings": "many"}, "max_position_embeddings"),
        ({"rms_norm_eps": math.nan}, "rms_norm_eps"),
        ({"rms_norm_eps": None}, "rms_norm_eps"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"num_experts_per_tok": 9}, "9 of only 4"),
        ({"num_experts": 2**50}, "num_experts"),
        ({"num_experts": 5}, "mlp.gate.weight"),
        ({"norm_topk_prob": "yes"}, "norm_topk_prob"),
        ({"mlp_only_layers": "0"}, "mlp_only_layers"),
        ({"rope_theta": -1.0}, "rope_theta"),
        ({"rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}}, "spiral"),
        ({"rope_parameters": [1, 2]}, "rope_parameters"),
        ({"vocab_size": 161}, "model.embed_tokens.weight"),
        ({"moe_intermediate_size": 64}, "experts.0"),
        ({"head_dim": 32}, "q_proj"),
    ],
)
def test_a_bad_config_is_one_clear_sentence(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(GreenroomError) as caught:
        model_spec(from_config("qwen3_moe", **changes))
    assert named in caught.value.why
    assert len(str(caught.value)) < 300


def test_a_bad_gguf_header_is_named_by_its_own_key() -> None:
    with pytest.raises(GreenroomError, match=r"qwen3moe\.attention\.head_count"):
        model_spec(from_gguf("qwen3_moe", attention__head_count=None))
    with pytest.raises(GreenroomError, match="spiral"):
        model_spec(from_gguf("llama", rope__scaling__type="spiral"))


def test_llama_with_mlp_biases_needs_them() -> None:
    with pytest.raises(GreenroomError, match=r"gate_proj\.bias"):
        model_spec(from_config("llama", mlp_bias=True))


@pytest.mark.parametrize("family", CASES)
@pytest.mark.parametrize("make", [from_config, from_gguf])
def test_every_tensor_is_required_and_its_shape_checked(family: str, make: Any) -> None:
    usual = dict(make(family).tensors)
    # Without these the file says something else, not something wrong: no biases, or not a sparse layer.
    optional = {"blk.0.ffn_down_exps.weight", "blk.1.ffn_down_exps.weight"}
    for name, info in usual.items():
        shapes = {key: tensor.shape for key, tensor in usual.items()}
        for wrong in ((*info.shape[:-1], info.shape[-1] + 1), (*info.shape, 1)):
            with pytest.raises(GreenroomError):
                model_spec(make(family, shapes={**shapes, name: wrong}))
        del shapes[name]
        if name not in optional:
            with pytest.raises(GreenroomError, match="missing"):
                model_spec(make(family, shapes=shapes))


_JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.lists(st.integers(), max_size=3)
)


@given(st.dictionaries(st.sampled_from([*sorted(hf_config()), "rope_parameters", "head_dim"]), _JUNK, max_size=3))
def test_no_config_value_causes_anything_but_a_spec_or_a_clear_error(changes: dict[str, Any]) -> None:
    checkpoint = HeaderOnly("safetensors", "qwen2_moe", {**hf_config(), **changes}, hf_shapes(shared=True, bias=True))
    try:
        spec = model_spec(checkpoint)
    except GreenroomError:
        return
    assert spec.hidden == H


def test_models_do_not_import_torch() -> None:
    code = "import sys, engine.models; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
