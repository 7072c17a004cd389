"""Bytes from headers against hand-made sums."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from fake_models import dense_model, moe_model
from hypothesis import given
from hypothesis import strategies as st

from engine import _native
from engine.models import model_spec
from engine.models.spec import ROLLBACK
from engine.placement import packing, sizes
from engine.placement.device_buffers import device_work_bytes
from engine.placement.packing import CODES, RECODES, packed_nbytes, packed_nbytes_rule
from engine.placement.sizes import Inventory, Layout, Shape, role_of, take_inventory

GB = 1_000_000_000


def inventory_of(model) -> Inventory:
    return take_inventory(model_spec(model), model)


@given(
    st.sampled_from(list(CODES)),
    st.sampled_from([None, *RECODES]),
    st.integers(1, 5000),
    st.integers(1, 40),
    st.sampled_from([1, 32, 256]),
)
def test_the_rule_is_the_kernels_own(format: str, recode: str | None, rows: int, blocks: int, block: int) -> None:
    columns = blocks * block
    try:
        native = _native.packed_nbytes(rows, columns, format, recode, None)
    except ValueError:
        native = None  # a shape the format cannot have
    rule = packed_nbytes_rule(rows, columns, format, recode)
    assert native in (None, rule)
    assert packed_nbytes(rows, columns, format, recode) == rule


def test_without_the_kernels_the_rule_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_native_rule", lambda: None)
    # 16 strips of 16 rows; per row 64 groups of 16 bytes of codes and a 2-byte scale.
    assert packed_nbytes(256, 2048, "Q4_0") == 256 * 64 * 18


def test_an_experts_object_takes_what_its_matrices_take() -> None:
    for formats in (("Q4_0", "Q4_0", "Q6_K"), ("BF16", "BF16", "BF16"), ("Q4_K", "Q4_K", "Q6_K")):
        experts = _native.Experts(3, 256, 512, *formats)
        shapes = zip(formats, ((512, 256), (512, 256), (256, 512)), strict=True)
        assert experts.nbytes == 3 * sum(packed_nbytes(*shape, name) for name, shape in shapes)


def test_qwen3_30b_experts_by_hand() -> None:
    inventory = inventory_of(moe_model("Q4_0"))
    layout = Layout("packed")
    # 48 layers x 128 experts x 3 matrices of 768 x 2048 weights at 4.5 bits.
    assert sizes.expert_bytes(inventory, layout) == 48 * 128 * 3 * 768 * 2048 * 9 // 16
    # 8 of them are read per token: the 1.02 GB of the published tables.
    assert sizes.active_expert_bytes(inventory, layout) == 48 * 8 * 3 * 768 * 2048 * 9 // 16
    assert round(sizes.active_expert_bytes(inventory, layout) / GB, 2) == 1.02
    assert sizes.active_expert_values(inventory) == 48 * 8 * 3 * 768 * 2048


def test_qwen3_30b_dense_part_by_hand() -> None:
    inventory = inventory_of(moe_model("Q8_0"))
    hidden, vocab = 2048, 151936
    attention = 48 * (4096 * hidden + 2 * 512 * hidden + hidden * 4096)
    norms = 48 * (2 * hidden + 2 * 128) + hidden
    routers = 48 * 128 * hidden
    assert sizes.dense_bytes(inventory, Layout("packed")) == {
        "embeddings": vocab * hidden * 34 // 32,
        "lm_head": vocab * hidden * 34 // 32,
        "attention": attention * 34 // 32,
        "router_and_norms": 4 * (routers + norms),
    }
    assert sizes.dense_bytes(inventory, Layout("bfloat16")) == {
        "embeddings": vocab * hidden * 34 // 32,  # stays as stored
        "lm_head": 2 * vocab * hidden,
        "attention": 2 * attention,
        "router_and_norms": 4 * (routers + norms),
    }
    assert sizes.dense_values(inventory) == attention + norms + routers + vocab * hidden


def test_a_tied_head_is_counted_once_more_only_for_torch() -> None:
    tied, own = inventory_of(moe_model(tied=True)), inventory_of(moe_model())
    assert tied.roles["lm_head"] == own.roles["lm_head"] == Counter({Shape(151936, 2048, "Q4_0"): 1})
    stored = 151936 * 2048 * 18 // 32
    packed, floats = (sizes.dense_bytes(tied, Layout(values)) for values in ("packed", "bfloat16"))
    assert (packed["embeddings"], packed["lm_head"]) == (0, stored)
    assert floats["embeddings"] == sizes.dense_bytes(own, Layout("packed"))["embeddings"] == stored


def test_widened_types_count_what_they_take_where() -> None:
    inventory = inventory_of(moe_model("IQ3_XXS"))
    weights, embeddings = 48 * 128 * 3 * 768 * 2048, 151936 * 2048
    shapes = [shape for _, group in inventory.experts for shape in group]
    assert {shape.widened for shape in shapes} == {"IQ3_XXS"}
    assert sum(s.stored_bytes * n for _, group in inventory.experts for s, n in group.items()) == weights * 98 // 256
    assert sizes.expert_bytes(inventory, Layout("packed")) == weights * 36 // 32
    assert sizes.dense_bytes(inventory, Layout("packed"))["embeddings"] == embeddings * 36 // 32
    other = inventory.stored_as("Q4_0")
    assert other is not None
    assert sum(s.stored_bytes * n for _, group in other.experts for s, n in group.items()) == weights * 18 // 32


def test_recoding_applies_to_packed_experts() -> None:
    inventory = inventory_of(moe_model("BF16"))
    weights = 48 * 128 * 3 * 768 * 2048
    assert sizes.expert_bytes(inventory, Layout("packed")) == 2 * weights
    assert sizes.expert_bytes(inventory, Layout("packed", "int8")) == weights * 34 // 32
    assert sizes.expert_bytes(inventory, Layout("packed", "int4")) == weights * 18 // 32
    assert sizes.expert_bytes(inventory, Layout("packed", "float32")) == 4 * weights


def test_recoding_keeps_what_has_the_code_already() -> None:
    assert packed_nbytes_rule(16, 256, "Q4_K", "int4") == packed_nbytes_rule(16, 256, "Q4_K")
    assert packed_nbytes_rule(16, 256, "Q6_K", "int8") == packed_nbytes_rule(16, 256, "Q6_K")


def test_dense_models_have_an_mlp_role() -> None:
    inventory = inventory_of(dense_model("Q4_1"))
    assert inventory.experts == ()
    assert sizes.dense_bytes(inventory, Layout("packed"))["dense_mlp"] == 32 * 3 * 4096 * 14336 * 20 // 32
    assert sizes.expert_bytes(inventory, Layout("packed")) == 0


@pytest.mark.parametrize(
    ("weight", "role"),
    [
        ("embed", "embeddings"),
        ("norm", "router_and_norms"),
        ("lm_head", "lm_head"),
        ("layers.3.attention.norm", "router_and_norms"),
        ("layers.3.attention.q", "attention"),
        ("layers.3.attention.q_bias", "attention"),
        ("layers.3.attention.k_norm", "router_and_norms"),
        ("layers.11.ffn.norm", "router_and_norms"),
        ("layers.11.ffn.down", "dense_mlp"),
        ("layers.0.moe.router", "router_and_norms"),
        ("layers.0.moe.experts.17.gate", "experts"),
        ("layers.0.moe.shared.up", "shared_experts"),
        ("layers.0.moe.shared.router", "router_and_norms"),
        ("layers.0.moe.router_bias", "router_and_norms"),
        ("layers.0.moe.choice_bias", "router_and_norms"),
        ("layers.0.moe.experts.17.gate_bias", "experts"),
        ("layers.0.moe.dense.up", "dense_mlp"),
        ("layers.0.moe.dense.post_norm", "router_and_norms"),
        ("layers.0.attention.norm_bias", "router_and_norms"),
        ("layers.0.attention.post_norm", "router_and_norms"),
        ("layers.0.attention.sinks", "attention"),
        ("layers.0.conv.in", "attention"),
        ("layers.0.output_scale", "router_and_norms"),
    ],
)
def test_roles(weight: str, role: str) -> None:
    assert role_of(weight) == role


def test_another_format_for_the_same_model() -> None:
    inventory = inventory_of(moe_model("BF16"))
    smaller = inventory.stored_as("Q4_K")
    assert smaller is not None
    assert smaller.expert_formats() == {"Q4_K"}
    assert smaller.roles["router_and_norms"] == inventory.roles["router_and_norms"]
    assert sizes.active_expert_values(smaller) == sizes.active_expert_values(inventory)
    odd = inventory_of(moe_model("BF16", layers=1, intermediate=96, vocab=100))
    assert odd.stored_as("Q4_K") is None
    assert odd.stored_as("Q8_0") is not None


@pytest.mark.parametrize(
    ("total", "reserve"),
    [
        (2 * GB, GB // 2),
        (8 * GB, 2 * GB),
        (16 * GB, 2 * GB),
        (64 * GB, 64 * GB * 8 // 100),
        (1024 * GB, 16 * GB),
    ],
)
def test_ram_reserve(total: int, reserve: int) -> None:
    assert sizes.ram_reserve(total) == reserve


@given(st.integers(0, 10**13), st.integers(0, 10**13))
def test_more_ram_always_leaves_more_after_the_reserve(a: int, b: int) -> None:
    small, large = sorted((a, b))
    assert small - sizes.ram_reserve(small) <= large - sizes.ram_reserve(large)


def test_longer_contexts_need_more_work_space() -> None:
    spec = model_spec(moe_model())
    spaces = [sizes.activation_bytes(spec, context) for context in (32, 128, 1024, 8192)]
    assert spaces == sorted(spaces)
    # Activations of a chunk, or the logits of a chunk that is scored.
    widest = 6 * 2048 + 3 * 768 * 8
    assert spaces[3] == 4 * max(512 * widest, 128 * 151936)
    # torch on a device has a mask over the context beside.
    inventory = inventory_of(moe_model())
    there = [device_work_bytes(spec, inventory, context, "bfloat16", "bf16") for context in (1024, 8192, 40960)]
    assert [there[1] - there[0], there[2] - there[1]] == [2 * 512 * 7168, 2 * 512 * 32768]


def test_a_window_bounds_memory_traffic_and_work() -> None:
    spec = model_spec(dense_model("Q4_0"))
    attention = spec.attentions[0]
    half = replace(
        spec,
        layers=tuple(
            replace(layer, mixer=replace(attention, window=100)) if i % 2 else layer
            for i, layer in enumerate(spec.layers)
        ),
    )
    width = 2 * attention.kv_heads * attention.head_dim * 2
    count = len(spec.layers) // 2
    assert half.kv_bytes(8192) == width * count * (8192 + 2 * (100 + ROLLBACK))
    assert half.kv_bytes(64) == spec.kv_bytes(64)
    assert sizes.kv_traffic(spec, 8192, "f16") == spec.kv_bytes(8192)
    assert sizes.kv_traffic(half, 8192, "f16") == width * count * (8192 + 100)
    assert sizes.kv_traffic(half, 64, "f16") == spec.kv_bytes(64)
    per_layer = 4 * attention.heads * attention.head_dim
    assert sizes.attention_ops(spec, 512) == per_layer * len(spec.layers)
    seen = sum(min(t, 100) for t in range(1, 513)) / sum(range(1, 513))
    assert sizes.attention_ops(half, 512) == pytest.approx(per_layer * count * (1 + seen), abs=1)


def test_sinks_take_work_space_where_torch_attends() -> None:
    spec = model_spec(dense_model("Q4_0"))
    layers = tuple(replace(layer, mixer=replace(spec.attentions[0], sinks=True)) for layer in spec.layers)
    sinks = replace(spec, layers=layers)
    heads = spec.attentions[0].heads
    inventory = inventory_of(dense_model("Q4_0"))
    # Scores and their exponentials: a bounded number of rows, but at least one.
    for context, scores in ((4096, sizes.SINK_SCORES), (1 << 21, heads << 21)):
        with_sinks = device_work_bytes(sinks, inventory, context, "bfloat16", "bf16")
        masks, turns = 2 * 512 * context, 4 * 512 * 128
        tokens = 512 * 4 * (2 * spec.hidden + (3 * heads + 2 * spec.attentions[0].kv_heads) * 128)
        assert with_sinks == masks + turns + 6 * scores + tokens
        own, others = (sizes.activation_bytes(s, context) for s in (sinks, spec))
        assert own == others


def test_a_device_turns_as_many_experts_into_numbers_as_have_room() -> None:
    inventory = inventory_of(moe_model())
    matrix = 2048 * 768
    at_once = sizes.DEQUANTISED_AT_ONCE // (3 * matrix)
    assert at_once == 3
    spec = model_spec(moe_model())

    def work(experts: str, context: int = 64, **more: int) -> int:
        return device_work_bytes(spec, inventory, context, "bfloat16", "bf16", experts, **more)

    # Gate and up of three experts of a token; of large copies these as well.
    assert work("cached") == pytest.approx(8.2 * 2 * 3 * matrix)
    assert work("cached", copy_bytes=matrix) == work("cached") + 3 * matrix
    # Of few copies the same.
    assert work("few") == work("cached")
    # All of a token's, a matrix at a time, where no other part of them is kept.
    assert work("device") == 7 * min(8 * matrix, sizes.DEQUANTISED_AT_ONCE)
    # None where the CPU computes them.
    assert work("ram") < work("cached")


def test_keys_that_are_values_too_are_loaded_twice() -> None:
    model = dense_model("Q4_0")
    spec = model_spec(model)
    mixer = replace(spec.attentions[0], keys_as_values=True)
    weights = {name: ref for name, ref in spec.weights.items() if not name.endswith("attention.v")}
    both = replace(spec, layers=tuple(replace(layer, mixer=mixer) for layer in spec.layers), weights=weights)
    layout = Layout("packed")
    shared, apart = (sizes.dense_bytes(take_inventory(s, model), layout)["attention"] for s in (both, spec))
    assert shared == apart
