"""Parameters: filled, checked, canonical; what is wrong is named with what is allowed."""

import pytest

from core.errors import UserError
from workloads.registry import cost, estimate_memory_bytes, parse_params


def test_preset_gives_dimensions_and_values_override_them():
    params = parse_params("decode", {"preset": "llama-7b", "context": "1024"})

    assert (params["layers"], params["d_model"], params["vocab"]) == (32, 4096, 32000)
    assert (params["context"], params["preset"]) == (1024, "llama-7b")


def test_changed_dimension_is_no_longer_the_preset():
    assert parse_params("decode", {"preset": "llama-7b", "layers": 2})["preset"] == "custom"


def test_equal_dimensions_have_the_preset_name_however_they_were_given():
    named = parse_params("transformer", {"preset": "medium"})
    typed = {"d_model": 1024, "layers": 24, "heads": 16, "ff": 4096}

    assert parse_params("transformer", typed) == named


def test_cpu_default_is_tiny_and_still_gives_ten_samples():
    params = parse_params("decode", {}, gpu_is_cpu=True)

    assert params["preset"] == "tiny"
    assert params["d_model"] <= 64
    assert params["iterations"] >= 10


@pytest.mark.parametrize(
    "values",
    [{}, {"preset": "tiny"}, {"preset": "llama-3-8b", "layers": 2}, {"compile": "default"}],
)
def test_parsing_canonical_params_again_changes_nothing(values):
    once = parse_params("decode", values)

    assert parse_params("decode", once) == once
    assert parse_params("decode", once, gpu_is_cpu=True) == once


@pytest.mark.parametrize(
    ("text", "value"), [("on", True), ("FALSE", False), ("1", True), (True, True), ("no", False)]
)
def test_switches_are_read_from_text(text, value):
    assert parse_params("decode", {"rope": text})["rope"] is value


@pytest.mark.parametrize(
    ("workload", "values", "parts"),
    [
        ("decod", {}, ("decod", "did you mean 'decode'", "transformer")),
        ("decode", {"contxt": 4}, ("contxt", "did you mean 'context'", "kv_heads")),
        ("decode", {"compile": "autotune"}, ("compile=autotune", "max-autotune", "none")),
        ("decode", {"layers": "two"}, ("layers=two", "whole number")),
        ("decode", {"layers": "1.5"}, ("layers=1.5", "whole number")),
        ("decode", {"layers": 0}, ("layers=0", "less than 1")),
        ("decode", {"layers": True}, ("layers=true", "whole number")),
        ("decode", {"layers": None}, ("layers=null", "whole number")),
        ("decode", {"rope": "maybe"}, ("rope=maybe", "on or off")),
        ("decode", {"memory_cap_gib": "nan"}, ("memory_cap_gib=nan", "a number")),
        ("decode", {"memory_cap_gib": -1}, ("memory_cap_gib=-1", "GiB")),
        ("decode", {"preset": "lama-7b"}, ("preset=lama-7b", "did you mean 'llama-7b'")),
        ("decode", {"d_model": 100}, ("d_model: 100", "heads=32")),
        ("decode", {"kv_heads": 3}, ("heads: 32", "kv_heads=3")),
        ("transformer", {"heads": 7}, ("d_model: 768", "heads=7")),
        ("attention", {"backend": "flash"}, ("backend: flash", "sdpa")),
        ("attention", {"implementation": "triton", "head_dim": 80}, ("head_dim: 80", "128")),
        ("moe_routing", {"top_k": 64, "experts": 8}, ("top_k: 64", "experts=8")),
        ("gemm", {"tile_m": 48}, ("tile_m=48", "64")),
        ("command", {"argv": "/bin/true -x"}, ("argv", "JSON")),
        ("gemm", {"dtype": "fp8", "k": 100}, ("k: 100", "multiple of 16")),
        ("command", {"argv": "[1]"}, ("argv", "list of texts")),
    ],
)
def test_wrong_input_is_named_with_what_is_allowed(workload, values, parts):
    with pytest.raises(UserError) as raised:
        parse_params(workload, values)

    message = str(raised.value)
    assert "\n" not in message
    assert [part for part in parts if part not in message] == []


def test_decode_cost_is_that_of_the_formula_by_hand():
    values = {"preset": "custom", "layers": 1, "d_model": 8, "heads": 2, "kv_heads": 1, "ff": 16,
              "context": 10, "batch": 3, "dtype": "bf16"}  # fmt: skip

    work = cost("decode", values)

    weights = 2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 16  # q and o; k and v; the MLP: 576
    assert work.flops == 2 * 3 * weights + 4 * 3 * 10 * 8
    assert work.bytes == weights * 2 + 2 * 3 * 11 * 4 * 2
    assert work.num_tokens == 3


@pytest.mark.parametrize(("weights", "products"), [("int8", "bf16"), ("fp8", "fp8")])
def test_quantised_decode_reads_a_byte_a_weight(weights, products):
    values = {"preset": "llama-7b", "dtype": "bf16", "context": 2}

    native, quantised = cost("decode", values), cost("decode", {**values, "weights": weights})

    assert 1.99 < native.bytes / quantised.bytes <= 2
    assert quantised.flops == native.flops and quantised.flops_dtype == products


def test_llama_7b_has_the_weights_of_its_name():
    assert 12e9 < estimate_memory_bytes("decode", {"preset": "llama-7b"}) < 16e9


def test_gpt_27b_training_needs_four_copies_in_fp32():
    params = {"preset": "2.7B", "mode": "train_step", "batch": 1, "seq_len": 128}

    assert 40e9 < estimate_memory_bytes("transformer", params) < 60e9


def test_backward_triples_the_flops_and_causal_halves_them():
    forward = cost("transformer", {"mode": "forward"}).flops
    causal = cost("attention", {"causal": True}).flops

    assert cost("transformer", {"mode": "forward_backward"}).flops == 3 * forward
    assert cost("attention", {"causal": False}).flops == 2 * causal
