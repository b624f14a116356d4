"""What a chart draws of a long table, and on which axis."""

from analysis.export.svg import rows_svg
from analysis.studies.engine.drawn import (
    MAX_BAR_ROWS,
    distinguishing_fields,
    is_wide,
    label_of,
    of_sweeps,
)


def test_a_heat_map_leaves_lines_of_one_cell_to_the_table() -> None:
    sweep = [{"model": "small", "seq_len": n} for n in ("128", "256")]
    alone = {"model": "large", "seq_len": "512"}

    assert of_sweeps([*sweep, alone], ["model"], "seq_len") == sweep
    assert of_sweeps([alone], ["model"], "seq_len") == [alone]


def test_bars_of_very_different_length_ask_for_a_logarithmic_axis() -> None:
    assert is_wide([0.02, None, 270.0])
    assert not is_wide([1.0, 50.0]) and not is_wide([None])


def test_a_file_says_how_its_bars_are_drawn_and_how_many_rows_are_not() -> None:
    many = {"H100": {f"job {i}": 1.0 for i in range(MAX_BAR_ROWS + 5)}}

    assert "logarithmic" in rows_svg({"a": {"x": 0.1, "y": 99.0}}, ["x", "y"], "t")
    shown = rows_svg(many, list(many["H100"]), "t")
    assert f"the first {MAX_BAR_ROWS} of {MAX_BAR_ROWS + 5} rows" in shown
    assert "logarithmic" not in shown and "job 44" not in shown


def test_a_label_names_the_fewest_fields_that_tell_rows_apart_and_always_the_dtype() -> None:
    rows = [
        {"from": "measured", "model": m, "mode": mode, "batch": batch, "dtype": dtype}
        for m, mode, batch, dtype in (
            ("naive", "forward", "4", "fp16"),
            ("naive", "backward", "8", "fp32"),
            ("sdpa", "forward", "4", "fp16"),
        )
    ]
    names = ["model", "mode", "batch", "dtype"]

    assert distinguishing_fields(rows, names) == ["model", "mode", "dtype"]
    assert distinguishing_fields(rows[:1], names, kept=["model"]) == ["model"]


def test_a_switch_is_told_by_its_name_and_never_leaves_a_label_empty() -> None:
    assert label_of({"dtype": "fp16", "causal": "true"}) == "fp16, causal"
    assert label_of({"dtype": "fp16", "causal": "false"}) == "fp16"
    assert label_of({"causal": "false"}) == "causal false"
