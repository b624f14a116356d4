"""Numbers as text: SI, three significant digits, a dash for what is not known."""

from datetime import UTC, datetime

import pandas as pd
import pytest

from analysis.colours import CATEGORY_COLOURS, chip_colour, luminance
from app.ui import format as fmt


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (12_578_217, "12.6\u00a0ms"),
        (999.96, "1.00\u00a0\u00b5s"),
        (436_862, "437\u00a0\u00b5s"),
        (0, "0\u00a0ns"),
        (61e9, "61.0\u00a0s"),
        (None, fmt.UNKNOWN),
        (float("nan"), fmt.UNKNOWN),
        (pd.NA, fmt.UNKNOWN),
    ],
)
def test_duration(ns: float | None, text: str) -> None:
    assert fmt.duration(ns) == text


def test_bytes_are_decimal() -> None:
    assert fmt.bytes_(2_876_290_056) == "2.88\u00a0GB"


def test_rounding_up_does_not_add_a_digit() -> None:
    assert fmt.significant(9.996) == "10.0"


def test_unknown_is_never_zero() -> None:
    assert fmt.percent(None) == fmt.count(None) == fmt.ratio(None) == fmt.UNKNOWN


def test_a_share_of_almost_nothing_or_almost_all_does_not_read_as_such() -> None:
    shown = [fmt.percent(v) for v in (0.0, 1e-6, 0.5, 0.99999, 1.0)]
    assert [s.replace(fmt._NBSP, " ") for s in shown] == [
        *("0.0 %", "< 0.01 %", "50.0 %", "> 99.9 %", "100.0 %")
    ]


def test_age_is_in_the_largest_unit() -> None:
    now = datetime(2026, 11, 27, 12, tzinfo=UTC)
    assert fmt.ago("2026-11-27T10:30:00Z", now) == "1\u00a0h ago"


def test_a_timestamp_that_cannot_be_read_is_shown_as_it_is() -> None:
    assert fmt.when("yesterday") == "yesterday"


def test_a_gpu_is_named_without_its_maker() -> None:
    assert [fmt.gpu_name(m) for m in ("NVIDIA H200", "cpu", None)] == ["H200", "CPU", fmt.UNKNOWN]


def test_counts_agree_with_their_noun() -> None:
    assert [fmt.many(n, "launch") for n in (1, 2)] == ["1 launch", "2 launches"]
    assert fmt.many(0, "run") == "0 runs"


@pytest.mark.parametrize("colour", CATEGORY_COLOURS.values())
def test_text_on_a_chip_of_any_class_can_be_read(colour: str) -> None:
    shade = luminance(chip_colour(colour))
    text = 0.0 if shade > 0.5 else 1.0  # as Streamlit chooses it
    lighter, darker = max(shade, text), min(shade, text)
    assert (lighter + 0.05) / (darker + 0.05) >= 3


def test_noise_floor_names_both_kinds_of_work_where_both_are_known():
    both = {"gpu_bound": 0.023, "launch_bound": 0.34}
    assert (
        fmt.noise_floor(0.34, both) == "noise floor 2.3\u00a0% GPU-bound, 34.0\u00a0% launch-bound"
    )
    assert fmt.noise_floor(0.34, {"gpu_bound": None}) == "noise floor 34.0\u00a0%"
    assert fmt.noise_floor(None, {}) == "noise floor not measured"


def test_counts_have_a_decimal_only_where_one_has_a_part() -> None:
    assert fmt.count_format([171.0, 4, None]) == "%.0f"
    assert fmt.count_format([54.0, 3.2]) == "%.1f"


def test_a_sentence_has_the_signs_of_pages() -> None:
    assert (
        fmt.with_micro("lies 0.43 us apart, 84% less") == "lies 0.43 \u00b5s apart, 84\u00a0% less"
    )


def test_one_unit_serves_a_column_and_hours_are_no_microseconds() -> None:
    assert fmt.time_unit([1_200, 88_000_000], "\u00b5s") == ("\u00b5s", 1e3)
    assert fmt.time_unit([2_000, 7.3e12], "\u00b5s") == ("s", 1e9)
    assert fmt.time_unit([1_200, None], "ms") == ("ms", 1e6)
    assert fmt.time_unit([], "\u00b5s") == ("\u00b5s", 1e3)
