"""FLOPs of operators against PyTorch's own counter, for programs that run under the profiler.

PyTorch takes seconds to import: the tests do it themselves.
"""

from pathlib import Path

import pytest

from analysis.trace.flops import WITH_VALUES, operator_flops


def test_programs_compute_what_pytorch_counts(tmp_path: Path) -> None:
    from pytorch_programs import ALIKE, counted, read

    theirs = {name: counted(program) for name, program in ALIKE.items()}

    assert {name: read(program, tmp_path / "t.json") for name, program in ALIKE.items()} == theirs
    assert all(theirs.values())


def test_the_backward_pass_of_a_grouped_convolution_costs_two_forward_passes(
    tmp_path: Path,
) -> None:
    """PyTorch's counter counts the weight's gradient as if there were no groups: 4 + 1 times."""
    from pytorch_programs import F, counted, read, some, torch

    def program() -> torch.Tensor:
        return F.conv2d(some(2, 8, 8, 8), some(8, 2, 3, 3), None, 1, 1, 1, 4)

    ours, theirs = read(program, tmp_path / "trace.json"), counted(program)

    forward = 2 * (2 * 8 * 8 * 8) * (2 * 3 * 3)
    assert ours == {"aten::convolution": forward, "aten::convolution_backward": 2 * forward}
    assert theirs == {"aten::convolution": forward, "aten::convolution_backward": 5 * forward}


@pytest.mark.parametrize("heads", [4, 2], ids=["as many keys", "grouped queries"])
@pytest.mark.parametrize("is_causal", [False, True], ids=["all pairs", "causal"])
def test_fused_attention_on_a_cpu_computes_what_its_mask_leaves(
    heads: int, is_causal: bool, tmp_path: Path
) -> None:
    """PyTorch's counter has no formula for the operator, and counts causal ones whole."""
    import torch
    from pytorch_programs import SDPBackend, read, scaled_dot_product
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    program = scaled_dot_product(SDPBackend.FLASH_ATTENTION, heads, is_causal=is_causal)

    ours = read(program, tmp_path / "trace.json")

    query, key = (2, 4, 6, 8), (2, heads, 10, 8)
    left = torch.ones(6, 10).tril().sum().item() / 60 if is_causal else 1
    operator = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert ours == {
        operator: sdpa_flop_count(query, key, key) * left,
        f"{operator}_backward": sdpa_backward_flop_count(query, query, key, key) * left,
    }


FUSED = sorted(name for name in WITH_VALUES if "attention" in name)


@pytest.mark.parametrize("heads", [4, 2], ids=["as many keys", "grouped queries"])
@pytest.mark.parametrize("operator", FUSED)
def test_each_fused_attention_reads_whether_it_is_causal_where_its_schema_says(
    operator: str, heads: int
) -> None:
    import torch
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    schema = getattr(torch.ops.aten, operator.removeprefix("aten::")).default._schema
    query, key = [2, 4, 6, 8], [2, heads, 10, 8]
    shapes = {"grad_out": query, "query": query, "key": key, "value": key, "out": query}
    is_backward = "backward" in operator

    def flops(is_causal: str) -> float | None:
        values = shapes | {"is_causal": is_causal}
        return operator_flops(operator, [values.get(a.name, []) for a in schema.arguments])

    whole = (
        sdpa_backward_flop_count(query, query, key, key)
        if is_backward
        else sdpa_flop_count(query, key, key)
    )
    assert flops("False") == whole
    assert flops("True") == whole * 21 / 60  # 1 + 2 + ... + 6 of 6 x 10 pairs


def test_a_causal_attention_with_more_queries_than_keys_counts_the_pairs_of_its_mask() -> None:
    import torch

    inputs = [[1, 1, 5, 2], [1, 1, 3, 2], [1, 1, 3, 2], "0.", "True"]

    pairs = torch.ones(5, 3).tril().sum().item()
    assert operator_flops("aten::_scaled_dot_product_flash_attention", inputs) == 2 * pairs * 4
